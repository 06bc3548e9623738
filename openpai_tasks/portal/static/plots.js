// Line plots, drawn from the numbers in the page: log scales, smoothing, zoom, and values under the pointer.

import { getJson } from "./get_json.js";

const NS = "http://www.w3.org/2000/svg";
const COLOURS = 12;
const DASHES = 5;
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
const UNITS = [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "font-family", "text-anchor"];
const HELP = "Arrow keys show values, + and - zoom, Escape resets";

// Settings of all plots: those in the address, which can be shared, or else those that the browser has kept
const settings = { x: "", smooth: 0, logX: [], logY: [], ...(sharedSettings() ?? JSON.parse(localStorage.getItem("plots") ?? "{}")) };

function sharedSettings() {
  const query = new URLSearchParams(location.search);
  const lists = { logX: query.getAll("plot-log-x"), logY: query.getAll("plot-log-y") };
  const smooth = Math.min(0.99, Math.max(0, Number(query.get("plot-smooth")) || 0));
  const isShared = [...query.keys()].some((name) => name.startsWith("plot-"));
  return isShared ? { x: query.get("plot-x") ?? "", smooth, ...lists } : null;
}

// Put the settings of the page's plots into its address; the usual ones only if they were chosen here
function share(isChosen = false) {
  const large = document.querySelectorAll("figure[data-plot]:not([data-small])");
  if (!large.length) return;
  const pages = Array.from(large, (figure) => plots.get(figure).page);
  const own = (names) => names.filter((name) => pages.some((page) => page.title === name));
  const address = new URL(location);
  const put = (name, values) => {
    address.searchParams.delete(name);
    for (const value of values) address.searchParams.append(name, value);
  };
  put("plot-x", pages.some((page) => page.xs.includes(settings.x) && (isChosen || page.x !== settings.x)) ? [settings.x] : []);
  put("plot-smooth", settings.smooth || isChosen ? [settings.smooth] : []);
  put("plot-log-x", own(settings.logX));
  put("plot-log-y", own(settings.logY));
  if (address.href !== location.href) history.replaceState(history.state, "", address);
}

function change(values) {
  Object.assign(settings, values);
  localStorage.setItem("plots", JSON.stringify(settings));
  share(true);
  for (const figure of document.querySelectorAll("figure[data-plot]")) plots.get(figure)?.update();
}

function toggled(names, name, isOn) {
  return isOn ? [...names, name] : names.filter((one) => one !== name);
}

// Numbers, and the ticks that render/charts.py chooses, too
const short = (value) => String(Number(value.toPrecision(6)));

function label(value, digits = 4) {
  const [number, power] = value.toExponential(digits - 1).split("e").map(Number);
  return power < -4 || power >= digits ? `${number}e${power}` : String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  const unit = UNITS.find(([, size]) => Math.abs(seconds) >= size);
  if (!unit) return `${label(seconds)}s`;
  if (seconds < 0) return `-${duration(-seconds)}`;
  const [name, size, lower, part] = unit;
  const count = Math.round(seconds / part);
  const rest = count % (size / part);
  return `${Math.trunc(count / (size / part))}${name}${rest ? ` ${rest}${lower}` : ""}`;
}

function roundStep(least, isWhole, isTime) {
  if (isTime && least > 1) {
    return TIME_STEPS.find((step) => step >= least) ?? 86400 * roundStep(least / 86400, true, false);
  }
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5].find((digit) => digit * power >= least) ?? 10) * power;
  return isWhole ? Math.max(1, step) : step;
}

function logTicks({ low, high }, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const powers = [];
  for (let power = first; power <= last; power += Math.max(1, Math.ceil((last - first) / most))) powers.push(power);
  const multiples = (digits) => powers.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)))
    .filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  const found = multiples([1]);
  return found.length > 2 ? found : multiples([1, 2, 5]);
}

export function ticks(scale, most, isWhole = false, isTime = false) {
  const powers = scale.isLog ? logTicks(scale, most) : [];
  if (powers.length > 2) return powers.map((value) => [value, label(value)]);
  const step = roundStep(((scale.high - scale.low) / most) * (1 - 1e-9), isWhole, isTime);
  const power = Math.floor(Math.log10(step) + 1e-9);
  const largest = Math.max(Math.abs(scale.low), Math.abs(scale.high));
  const isPlain = largest < 1e6 && power > -7;
  const digits = Math.max(1, Math.min(17, Math.floor(Math.log10(largest)) - power + 1));
  const found = [];
  for (let at = Math.ceil(scale.low / step - 1e-9); at <= scale.high / step + 1e-9 && found.length < 30; at++) {
    const value = at * step;
    const text = isPlain ? value.toFixed(Math.max(0, -power)) : label(value, digits);
    found.push([value, isTime ? duration(value) : text]);
  }
  return found;
}

// Where values of a range are between two pixels
export class Scale {
  constructor(low, high, isLog, from, to) {
    Object.assign(this, { low, high, isLog, from, to });
    this.begin = this.value(low);
    this.width = this.value(high) - this.begin;
  }

  value(number) {
    return this.isLog ? Math.log10(number) : number;
  }

  at(number) {
    const part = this.width ? (this.value(number) - this.begin) / this.width : 0.5;
    return this.from + part * (this.to - this.from);
  }

  invert(pixel) {
    const value = this.begin + (this.width * (pixel - this.from)) / (this.to - this.from);
    return this.isLog ? 10 ** value : value;
  }

  // With some space around the values; amounts are not below 0
  static around(low, high, isLog, from, to, isAmount = false) {
    if (isAmount && !isLog) return new Scale(0, 1.04 * high || 1, false, from, to);
    if (low === high && isLog) [low, high] = [low / 2, high * 2];
    else if (low === high) [low, high] = [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
    const [begin, end] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
    const space = (end - begin) * 0.04;
    return isLog
      ? new Scale(10 ** (begin - space), 10 ** (end + space), true, from, to)
      : new Scale(begin - space, end + space, false, from, to);
  }
}

function smoothed(values, weight) {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + (1 - weight) * value;
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(NS, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function text(x, y, content, kind) {
  return svg("text", { x, y, class: kind }, content);
}

function download(name, type, content) {
  const link = html("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

class LinePlot {
  constructor(figure) {
    this.figure = figure;
    this.isSmall = figure.hasAttribute("data-small");
    this.hidden = new Set();
    this.range = null; // of x, when zoomed
    this.part = null; // finer data of the range
    this.cursor = null; // x of the values that are shown
    this.picture = svg("svg", { tabindex: 0, role: "group", "aria-roledescription": "plot" });
    this.tip = html("div", { class: "plot-tip", hidden: "" });
    this.spoken = html("p", { class: "visually-hidden", "aria-live": "polite" });
    this.tools = html("div", { class: "plot-tools" });
    this.legend = html("ul", { class: "legend" });
    // Lines are on a canvas, as 50 long ones take seconds as SVG; what follows the pointer is above them
    this.canvas = html("canvas", { class: "plot-lines" });
    this.overlay = svg("svg", { class: "plot-overlay", "aria-hidden": true });
    const frame = html("div", { class: "plot-frame" }, this.picture, this.canvas, this.overlay, this.tip);
    figure.querySelector("[data-drawn]").replaceChildren(this.tools, frame, this.spoken, this.legend);
    this.listen();
    this.read();
    new ResizeObserver(() => this.picture.clientWidth !== this.width && this.draw()).observe(frame);
    new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      this.draw();
    }, { rootMargin: "400px" }).observe(figure);
  }

  // Data

  read() {
    this.page = JSON.parse(this.figure.dataset.plot);
    this.base ??= this.page;
    this.update();
  }

  get x() {
    return this.page.xs.includes(settings.x) ? settings.x : this.page.x;
  }

  isLog(axis) {
    return !this.isSmall && settings[`log${axis}`].includes(this.page.title);
  }

  update() {
    if (this.x !== this.base.x) this.range = this.part = null;
    this.showTools();
    this.load();
  }

  // Get the numbers that are shown; while they are fetched, those before stay
  async load() {
    this.isStale = true;
    if (this.isLoading) return;
    this.isLoading = true;
    while (this.isStale) {
      this.isStale = false;
      const [x, log, range] = [this.x, this.isLog("X") ? "1" : "", this.range];
      const page = this.page;
      const isHere = this.isSmall || (x === page.x && !(log && page.thin));
      const isKnown = this.known?.page === page && this.known.x === x && this.known.log === log;
      const base = isKnown ? this.base : isHere ? page : await this.fetch({ x, log });
      if (base && x === this.x) [this.base, this.known] = [base, { page, x, log }];
      this.draw();
      if (!range || !this.base.thin) continue;
      const part = await this.fetch({ x, log, from: range[0], to: range[1] });
      if (range === this.range) this.part = part;
      this.draw();
    }
    this.isLoading = false;
  }

  async fetch(query) {
    if (!this.figure.dataset.source) return null;
    const address = new URL(this.figure.dataset.source, location);
    const columns = Math.min(4000, Math.round(this.picture.clientWidth * devicePixelRatio) || 640);
    for (const [name, value] of Object.entries({ columns, ...query })) address.searchParams.set(name, value);
    return getJson(address); // the live part of the page reports an error
  }

  zoom(range) {
    [this.range, this.part, this.cursor] = [range, null, null];
    this.draw();
    this.load();
  }

  // Drawing

  // The lines that are shown, with values that the scales can have
  lines() {
    const [logX, logY] = [this.isLog("X"), this.isLog("Y")];
    const weight = this.isSmall ? 0 : settings.smooth;
    const shown = (this.part ?? this.base).series.map((one, number) => ({ ...one, number }));
    return shown
      .filter((one) => !this.hidden.has(one.name))
      .map((one) => {
        const raw = one.y.map((y, at) => ((logY && y <= 0) || (logX && one.x[at] <= 0) ? null : y));
        return { ...one, raw, y: weight ? smoothed(raw, weight) : raw };
      });
  }

  // The lowest and highest x and y of what is shown; null if there is none
  extents() {
    const [low, high] = this.range ?? [-Infinity, Infinity];
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const { x, raw } of this.shown) {
      for (let at = 0; at < x.length; at++) {
        const [across, upwards] = [x[at], raw[at]];
        if (upwards === null || across < low || across > high) continue;
        if (across < x0) x0 = across;
        if (across > x1) x1 = across;
        if (upwards < y0) y0 = upwards;
        if (upwards > y1) y1 = upwards;
      }
    }
    return x0 > x1 ? null : [...(this.range ?? [x0, x1]), y0, y1];
  }

  // Draw before the next frame, however often it is called until then
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.isSeen && this.picture.clientWidth) this.drawNow();
    });
  }

  drawNow() {
    const [width, height] = [this.picture.clientWidth, this.isSmall ? 130 : 260];
    this.width = width;
    this.shown = this.lines();
    this.allPlaces = null;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.setAttribute("aria-label", `${this.base.title} by ${this.base.x}. ${HELP}`);
    const found = this.extents();
    if (!found) {
      this.picture.replaceChildren(text(width / 2, height / 2, "Nothing to draw", "middle"));
      this.canvas.width = 0;
      this.show(null);
      return;
    }
    const [x0, x1, y0, y1] = found;
    this.upwards = Scale.around(y0, y1, this.isLog("Y"), height - (this.isSmall ? 20 : 38), 8, this.base.zero);
    const marks = ticks(this.upwards, this.isSmall ? 3 : 6);
    const left = (this.isSmall ? 8 : 24) + 6.4 * Math.max(...marks.map(([, one]) => one.length));
    this.across = new Scale(x0, x1, this.isLog("X") && x0 > 0, left, width - 14);
    this.overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...this.grid(marks, width, height, left));
    this.drawLines();
    this.showLegend();
    this.show(this.cursor);
  }

  grid(marks, width, height, left) {
    const bottom = this.upwards.from;
    const isTime = this.base.x === "time";
    const across = ticks(this.across, Math.max(2, Math.floor(width / 90)), this.base.whole, isTime);
    const titles = this.isSmall ? [] : [
      text((left + width) / 2, height - 4, this.base.x, "middle"),
      svg("text", { transform: `translate(11 ${bottom / 2}) rotate(-90)`, class: "middle" }, this.base.title.slice(0, 40)),
    ];
    return [
      ...marks.map(([value]) => svg("path", { class: "rule", d: `M${left} ${this.upwards.at(value)}H${width - 14}` })),
      svg("path", { class: "axis", d: `M${left} ${bottom}H${width - 14}` }),
      ...marks.map(([value, one]) => text(left - 5, this.upwards.at(value) + 4, one, "end")),
      ...across.map(([value, one]) => text(this.across.at(value), bottom + 14, one, "middle")),
      ...titles,
    ];
  }

  drawLines() {
    const [left, width, height] = [this.across.from, this.across.to - this.across.from, this.upwards.from];
    const { canvas, highlighted } = this;
    [canvas.width, canvas.height] = [width * devicePixelRatio, height * devicePixelRatio];
    Object.assign(canvas.style, { left: `${left}px`, width: `${width}px`, height: `${height}px` });
    const pen = canvas.getContext("2d");
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, -left * devicePixelRatio, 0);
    pen.lineJoin = "bevel";
    const thin = this.shown.length > COLOURS ? 1 : 1.4; // lines of one pixel are drawn several times faster
    for (const { one, ys, isFaint } of this.strokes()) {
      const { colour, dashes } = paint(one.number);
      const isOther = (highlighted ?? one.number) !== one.number;
      pen.strokeStyle = colour;
      pen.setLineDash(isFaint ? [] : dashes);
      pen.globalAlpha = isFaint ? 0.25 : isOther ? 0.15 : 1;
      pen.lineWidth = one.number === highlighted ? 3 : thin;
      pen.beginPath();
      this.trace(one, ys, (x, y) => pen.moveTo(x, y), (x, y) => pen.lineTo(x, y));
      pen.stroke();
    }
  }

  // What is drawn: with smoothing, the values as they are faintly behind
  strokes() {
    const faint = this.shown.filter((one) => one.y !== one.raw).map((one) => ({ one, ys: one.raw, isFaint: true }));
    return [...faint, ...this.shown.map((one) => ({ one, ys: one.y, isFaint: false }))];
  }

  // Follow a line, which a value that is no number interrupts
  trace(one, ys, moveTo, lineTo) {
    let isOpen = false;
    for (let at = 0; at < ys.length; at++) {
      if (ys[at] !== null) {
        const [x, y] = [this.across.at(one.x[at]), this.upwards.at(ys[at])];
        if (isOpen) lineTo(x, y);
        else moveTo(x, y);
        if (!isOpen && (ys[at + 1] ?? null) === null) lineTo(x + 1.5, y); // a point alone is a dot
      }
      isOpen = ys[at] !== null;
    }
  }

  // Tools and legend

  showTools() {
    if (this.isSmall) return;
    const { title, xs } = this.page;
    const check = (axis) => {
      const act = (event) => change({ [`log${axis}`]: toggled(settings[`log${axis}`], title, event.target.checked) });
      return html("label", { class: "check" }, html("input", { type: "checkbox", change: act }), `Log ${axis.toLowerCase()}`);
    };
    const button = (name, act) => html("button", { type: "button", class: "button quiet", click: act }, name);
    if (!this.tools.firstChild) {
      this.select = html("select", { "aria-label": "X axis", change: (event) => change({ x: event.target.value }) });
      const slide = (event) => change({ smooth: Number(event.target.value) });
      this.slider = html("input", { type: "range", min: 0, max: 0.99, step: 0.01, input: slide });
      this.reset = button("Reset zoom", () => this.zoom(null));
      const rest = [html("label", { class: "check" }, "Smooth", this.slider), this.reset];
      this.tools.append(this.select, check("Y"), check("X"), ...rest, button("SVG", () => this.saveSvg()), button("CSV", () => this.saveCsv()));
    }
    if (this.select.length !== xs.length) this.select.replaceChildren(...xs.map((x) => html("option", { value: x }, `by ${x}`)));
    this.select.hidden = xs.length < 2;
    this.select.value = this.x;
    this.slider.value = settings.smooth;
    const [logY, logX] = this.tools.querySelectorAll("input[type=checkbox]");
    [logY.checked, logX.checked] = [this.isLog("Y"), this.isLog("X")];
  }

  showLegend() {
    if (this.reset) this.reset.hidden = !this.range;
    const names = this.base.series.map((one) => one.name);
    if (!names.some(Boolean) || names.join("\n") === this.named) return;
    this.named = names.join("\n");
    this.legend.replaceChildren(...names.map((name, number) => {
      const toggle = (event) => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        event.currentTarget.setAttribute("aria-pressed", !this.hidden.has(name));
        this.draw();
      };
      const [on, off] = [() => this.highlight(number), () => this.highlight(null)];
      const events = { click: toggle, pointerenter: on, pointerleave: off, focus: on, blur: off };
      return html("li", {}, html("button", { type: "button", "aria-pressed": true, class: style(number), ...events }, sample(number), name));
    }));
  }

  highlight(number) {
    this.highlighted = number;
    this.drawLines();
  }

  // The values of all lines at x, the highest first

  show(x) {
    this.cursor = x;
    this.tip.hidden = x === null;
    this.overlay.replaceChildren(...this.ring());
    if (x === null || !this.shown?.length) return "";
    const found = this.values(x);
    this.tip.hidden = !found.length;
    if (!found.length) return "";
    const place = this.across.at(x);
    this.overlay.append(
      svg("path", { class: "cursor", d: `M${place} ${this.upwards.to}V${this.upwards.from}` }),
      ...found.map((one) => svg("circle", { class: `dot ${style(one.number)}`, r: 3, cx: this.across.at(one.x), cy: this.upwards.at(one.y) })),
    );
    const head = this.base.x === "time" ? duration(x) : `${this.base.x} ${short(x)}`;
    const rows = found.map((one) => html("li", { class: style(one.number) }, sample(one.number), html("span", {}, one.name), html("b", {}, short(one.y))));
    this.tip.replaceChildren(html("strong", {}, head), html("ol", {}, ...rows));
    this.tip.classList.toggle("many", rows.length > 16);
    const isRight = place > (this.across.from + this.across.to) / 2;
    const offset = isRight ? place - 12 - this.tip.offsetWidth : place + 12;
    this.tip.style.left = `${Math.max(0, Math.min(offset, this.picture.clientWidth - this.tip.offsetWidth))}px`;
    return `${head}: ${found.map((one) => `${one.name} ${short(one.y)}`).join(", ")}`;
  }

  // Around the best point
  ring() {
    const best = this.base.best;
    if (!best || !this.shown?.some((one) => one.number === best[0])) return [];
    const [x, y] = [this.across.at(best[1]), this.upwards.at(best[2])];
    const isInside = x >= this.across.from && x <= this.across.to && y <= this.upwards.from && y >= 0;
    return isInside ? [svg("circle", { class: "best", r: 5, cx: x, cy: y })] : [];
  }

  values(x) {
    const found = [];
    for (const one of this.shown) {
      const at = nearest(one.x, x);
      if (!one.x.length || one.y[at] === null) continue;
      const isInside = x >= one.x[0] && x <= one.x[one.x.length - 1];
      if (isInside || Math.abs(this.across.at(one.x[at]) - this.across.at(x)) < 6) {
        found.push({ number: one.number, name: one.name, x: one.x[at], y: one.y[at] });
      }
    }
    return found.sort((one, other) => other.y - one.y);
  }

  // All places that a line has, within the range
  places() {
    return (this.allPlaces ??= this.findPlaces());
  }

  findPlaces() {
    const all = new Set(this.shown.flatMap((one) => one.x.filter((_, at) => one.y[at] !== null)));
    const [low, high] = [this.across.low, this.across.high];
    return [...all].filter((x) => x >= low && x <= high).sort((one, other) => one - other);
  }

  // Pointer and keys

  listen() {
    const where = (event) => event.clientX - this.picture.getBoundingClientRect().left;
    let start = null;
    let band = null;
    const follow = (event) => {
      const x = Math.max(this.across.from, Math.min(this.across.to, where(event)));
      const places = this.places();
      if (places.length) this.show(places[nearest(places, this.across.invert(x))]);
      return x;
    };
    this.picture.addEventListener("pointerdown", (event) => {
      if (this.across && this.shown?.length) follow(event); // a finger does not point before it taps
      if (event.button || this.isSmall || !this.across) return;
      start = where(event);
      this.picture.setPointerCapture(event.pointerId);
    });
    this.picture.addEventListener("pointermove", (event) => {
      if (!this.across || !this.shown?.length) return;
      const x = follow(event);
      if (start !== null && Math.abs(x - start) > 4) {
        band = svg("rect", { class: "band", x: Math.min(x, start), y: this.upwards.to, width: Math.abs(x - start), height: this.upwards.from - this.upwards.to });
        this.overlay.append(band);
      }
    });
    const stop = (event) => {
      band?.remove();
      const ends = [start, Math.max(this.across?.from, Math.min(this.across?.to, where(event)))].sort((one, other) => one - other);
      if (band && event.type === "pointerup") this.zoom(ends.map((pixel) => this.across.invert(pixel)));
      start = band = null;
    };
    this.picture.addEventListener("pointerup", stop);
    this.picture.addEventListener("pointercancel", stop);
    this.picture.addEventListener("pointerleave", (event) => {
      if (start === null && event.pointerType !== "touch") this.show(null); // what was tapped stays
    });
    this.picture.addEventListener("blur", () => this.show(null));
    this.picture.addEventListener("dblclick", () => this.zoom(null));
    this.picture.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (!this.across || event.ctrlKey || event.metaKey || event.altKey) return;
    const places = this.places();
    const here = this.cursor === null ? -1 : nearest(places, this.cursor);
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    const zooms = { "+": 0.25, "=": 0.25, "-": 1 };
    if (event.key in steps && places.length) {
      const at = Math.max(0, Math.min(places.length - 1, here + steps[event.key]));
      this.spoken.textContent = this.show(places[at]);
    } else if (event.key in zooms && !this.isSmall) this.zoomBy(zooms[event.key]);
    else if (event.key === "Escape") this.zoom(null);
    else return;
    event.preventDefault();
  }

  // Zoom to a part of the picture around the cursor; 0.25 shows half of it, 1 twice as much
  zoomBy(part) {
    const { from, to } = this.across;
    const middle = this.cursor === null ? (from + to) / 2 : this.across.at(this.cursor);
    const [cursor, half] = [this.cursor, part * (to - from)];
    this.zoom([middle - half, middle + half].map((pixel) => this.across.invert(pixel)));
    this.cursor = cursor;
  }

  // Downloads

  saveSvg() {
    this.show(null);
    const [left, right, bottom] = [this.across.from, this.across.to, this.upwards.from];
    const inside = { x: left, y: 0, width: right - left, height: bottom, viewBox: `${left} 0 ${right - left} ${bottom}` };
    const paths = this.strokes().map(({ one, ys, isFaint }) => {
      const parts = [];
      const to = (letter) => (x, y) => parts.push(`${letter}${x.toFixed(1)} ${y.toFixed(1)}`);
      this.trace(one, ys, to("M"), to("L"));
      return svg("path", { class: `${isFaint ? "faint" : "line"} ${style(one.number)}`, d: parts.join("") });
    });
    const lines = svg("svg", inside, ...paths);
    this.picture.append(lines, ...this.ring()); // for a moment, as the style sheet paints them
    const copy = this.picture.cloneNode(true);
    const copies = [copy, ...copy.querySelectorAll("*")];
    [this.picture, ...this.picture.querySelectorAll("*")].forEach((node, at) => {
      const style = getComputedStyle(node);
      for (const name of PAINT) copies[at].setAttribute(name, style.getPropertyValue(name));
      copies[at].removeAttribute("class");
    });
    this.draw();
    const { width, height } = this.picture.viewBox.baseVal;
    const ink = getComputedStyle(this.figure);
    const names = this.named ? this.shown : [];
    const total = height + 16 * names.length;
    fill(copy, { xmlns: NS, width, height: total, viewBox: `0 0 ${width} ${total}` }, []);
    names.forEach((one, at) => {
      const y = height + 16 * at + 8;
      const { colour, dashes } = paint(one.number);
      const line = { stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes.join(" ") };
      copy.append(svg("path", { d: `M24 ${y}h24`, ...line }), svg("text", { x: 56, y: y + 4, fill: ink.color, "font-size": 11, "font-family": ink.fontFamily }, one.name));
    });
    copy.prepend(svg("rect", { width: "100%", height: "100%", fill: ink.backgroundColor }));
    download(`${this.base.title}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
  }

  async saveCsv() {
    const [from, to] = this.range ?? ["", ""];
    const all = this.base.thin && (await this.fetch({ x: this.x, from, to, columns: "all" }));
    const { series, x, title } = all || this.base;
    const quoted = (one) => `"${one.replaceAll('"', '""')}"`;
    const rows = series.flatMap((one) => one.x.map((at, number) => `${quoted(one.name)},${at},${one.y[number] ?? ""}`));
    download(`${title}.csv`, "text/csv", [`series,${x},${quoted(title)}`, ...rows, ""].join("\r\n"));
  }
}

function style(number) {
  return `line-${number % COLOURS} dash-${Math.floor(number / COLOURS) % DASHES}`;
}

// The colour and the dashes of a line, from the style sheet
const paints = new Map();

function paint(number) {
  if (!paints.has(number)) {
    const probe = sample(number);
    document.querySelector("figure[data-plot]").append(probe);
    const { stroke, strokeDasharray } = getComputedStyle(probe.firstChild);
    probe.remove();
    paints.set(number, { colour: stroke, dashes: (strokeDasharray.match(/[\d.]+/g) ?? []).map(Number) });
  }
  return paints.get(number);
}

function sample(number) {
  return svg("svg", { class: "sample", width: 22, height: 8, "aria-hidden": true }, svg("path", { class: `line ${style(number)}`, d: "M0 4H22" }));
}

// Plots of the page, and those that its live parts bring
const plots = new WeakMap();

function start() {
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    if (!plots.has(figure)) plots.set(figure, new LinePlot(figure));
  }
  if (!sharedSettings()) share();
}

new MutationObserver((changes) => {
  for (const one of changes) if (one.type === "attributes") plots.get(one.target)?.read();
  if (changes.some((one) => one.addedNodes.length && !one.target.closest("[data-drawn]"))) start();
}).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-plot"] });
start();
