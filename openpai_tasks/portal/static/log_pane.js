// Lines of output in a scrolled box. Only lines near the visible ones are in the page; lines that are not
// loaded have empty space in the box, and are loaded when it is scrolled there.

import { TerminalLine, UNFINISHED } from "./ansi.js";

const AROUND = 120; // lines in the page before and after those that are visible
const MOST_NODES = 3500; // of the lines in the page
const MOST = 100000; // lines that are kept
const AT_ONCE = 1000; // lines that are loaded together
const TALLEST = 8e6; // pixels that a browser can scroll

export class Pane {
  // `load` fetches lines by number; null if other lines than those of the feed cannot be loaded
  constructor(log, label, { load = null, link, onChange, onEnd }) {
    Object.assign(this, { load, link, onChange, onEnd });
    this.root = element("div", "log-pane");
    this.isLabelled = !label;
    if (label) {
      this.root.tabIndex = 0;
      const head = element("div", "log-head");
      head.textContent = label;
      this.root.append(head);
    }
    [this.above, this.body, this.below] = ["log-space", "log-lines", "log-space"].map((name) => element("div", name));
    this.root.append(this.above, this.body, this.below);
    this.scroller = label ? this.root : log;
    this.lines = []; // {line, task, number, time, isError}
    this.from = this.to = 0; // the lines in the page
    this.open = new Map(); // the unfinished line of each task
    this.start = null; // number of the first line that the feed sent; null while it is unknown
    this.received = 0; // lines that the feed sent
    this.first = null; // number of the first of `lines`
    this.isTail = true; // whether `lines` ends with the last line of the feed
    this.words = "";
    this.selected = null; // {task, number}
    this.jump = 0; // how often other lines were loaded in place of these
    this.height = 16;
    this.ending = new AbortController();
    this.scroller.addEventListener("scroll", () => this.later(), { passive: true, signal: this.ending.signal });
  }

  remove() {
    this.ending.abort();
    this.jump += 1;
    this.root.remove();
  }

  get total() {
    return this.start === null ? null : this.start + this.received;
  }

  // Lines of the log before and after the loaded ones, for which there is space in the box.
  get before() {
    return (this.load && this.first) || 0;
  }

  get after() {
    return this.isTail || this.total === null ? 0 : Math.max(0, this.total - this.first - this.lines.length);
  }

  // The feed

  add(task, text, time, isError) {
    const state = this.open.get(task) ?? { record: null, held: "", style: null, number: null };
    this.open.set(task, state);
    text = state.held + text;
    state.held = "";
    const unfinished = text.includes("\x1b") && UNFINISHED.exec(text.slice(-2100));
    if (unfinished) {
      state.held = unfinished[0];
      text = text.slice(0, text.length - state.held.length);
    }
    let begin = 0;
    while (begin < text.length) {
      const newline = text.indexOf("\n", begin);
      const end = newline < 0 ? text.length : newline;
      if (!state.record) {
        state.record = { line: new TerminalLine(state.style), task, number: state.number, time, isError };
        if (state.number !== null) state.number += 1;
        this.received += 1;
        if (this.isTail) this.push(state.record);
      }
      if (end > begin) {
        state.record.line.write(text.slice(begin, end));
        if (this.isTail) this.redraw(state.record);
      }
      if (newline >= 0) {
        state.style = state.record.line.style;
        state.record = null;
      }
      begin = end + 1;
    }
  }

  push(record) {
    this.lines.push(record);
    if (this.lines.length > MOST + AT_ONCE) this.drop(AT_ONCE);
  }

  drop(count) {
    this.lines.splice(0, count);
    if (this.first !== null) this.first += count;
    else this.dropped = (this.dropped ?? 0) + count;
    for (let left = Math.min(count, this.to) - this.from; left > 0; left -= 1) this.body.firstChild.remove();
    this.from = Math.max(0, this.from - count);
    this.to = Math.max(0, this.to - count);
  }

  redraw(record) {
    const at = this.lines.length - 1;
    const isLast = this.lines[at] === record && at < this.to;
    const index = isLast ? at : this.lines.lastIndexOf(record);
    if (index >= this.from && index < this.to) this.body.children[index - this.from].replaceWith(this.draw(index));
  }

  // Another log of a task begins, at a line whose number may be unknown.
  begin(task, line) {
    this.open.set(task, { record: null, held: "", style: null, number: line });
  }

  // The number of the feed's first line is known now.
  setStart(line) {
    this.start = line;
    if (this.isTail) this.first = line + (this.dropped ?? 0);
    this.keep(() => this.render(this.from, this.to, true));
    this.onChange();
  }

  // Show what the feed has added.
  show(isFollowed) {
    if (isFollowed && this.isTail) {
      this.renderAround(this.lines.length - 1);
      this.scroller.scrollTop = this.scroller.scrollHeight;
    } else if (this.to - this.from < AROUND) {
      this.renderAround(this.from);
    } else {
      this.keep(() => this.setSpace());
    }
  }

  // What is in the page

  renderAround(index) {
    const view = Math.ceil(this.scroller.clientHeight / this.height);
    const [least, most] = [Math.max(0, index - view - AROUND), Math.min(this.lines.length, index + view + AROUND)];
    let from = Math.max(0, Math.min(index, this.lines.length));
    let to = from;
    let nodes = 0;
    while (nodes < MOST_NODES && (from > least || to < most)) {
      if (to < most) nodes += this.cost(to++);
      if (from > least) nodes += this.cost(--from);
    }
    this.render(from, to);
  }

  cost(index) {
    return 4 + 2 * this.lines[index].line.runs.length;
  }

  render(from, to, isAnew = false) {
    const { body } = this;
    if (isAnew || from >= this.to || to <= this.from) {
      body.replaceChildren(...this.drawAll(from, to));
    } else {
      for (; this.from < from; this.from += 1) body.firstChild.remove();
      for (; this.to > to; this.to -= 1) body.lastChild.remove();
      body.prepend(...this.drawAll(from, this.from));
      body.append(...this.drawAll(this.to, to));
    }
    [this.from, this.to] = [from, to];
    this.setSpace();
  }

  setSpace() {
    const lines = this.before + this.lines.length + this.after;
    this.unit = Math.min(this.height, TALLEST / Math.max(1, lines));
    this.above.style.height = `${(this.before + this.from) * this.unit}px`;
    this.below.style.height = `${(this.lines.length - this.to + this.after) * this.unit}px`;
  }

  drawAll(from, to) {
    return Array.from({ length: Math.max(0, to - from) }, (_, at) => this.draw(from + at));
  }

  draw(index) {
    const record = this.lines[index];
    const number = this.numberOf(index);
    const line = element("div", record.isError ? "log-line error" : "log-line");
    const mark = element("a", "log-number");
    if (number !== null) {
      mark.dataset.number = number + 1;
      mark.href = this.link(record.task, number + 1);
      mark.tabIndex = -1;
      mark.setAttribute("aria-label", `Line ${number + 1}`);
    }
    if (record.time) {
      mark.dataset.time = clock(record.time);
      mark.title = new Date(record.time).toLocaleString();
    }
    line.append(mark);
    if (this.isLabelled && record.task) {
      const label = element("span", `log-label hue-${hue(record.task)}`);
      label.textContent = record.task;
      line.append(label);
    }
    line.append(...record.line.nodes());
    if (this.words && this.isHit(record)) line.classList.add("hit");
    if (this.isSelected(record, number)) line.classList.add("current");
    return line;
  }

  numberOf(index) {
    if (this.lines[index].number !== null) return this.lines[index].number;
    return this.first === null || this.lines[index].task ? null : this.first + index;
  }

  isSelected(record, number) {
    return this.selected !== null && number === this.selected.number && record.task === this.selected.task;
  }

  isHit(record) {
    const text = record.line.runs.map((run) => run[0]).join("");
    return (this.words === this.words.toLowerCase() ? text.toLowerCase() : text).includes(this.words);
  }

  mark(words, selected) {
    this.words = words;
    this.selected = selected;
    this.render(this.from, this.to, true);
  }

  // Scrolling

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.update();
    });
  }

  // Change the page without moving the lines that are visible.
  keep(change) {
    const view = this.scroller.getBoundingClientRect();
    const index = this.firstVisible(view.top);
    const record = this.lines[index];
    const place = this.body.children[index - this.from]?.getBoundingClientRect();
    const isVisible = record && place && place.top < view.bottom && place.bottom > view.top;
    change();
    if (!isVisible) return; // the box was scrolled to lines that are not loaded yet
    const now = this.body.children[this.lines.indexOf(record, Math.max(0, this.from)) - this.from];
    if (now) this.scroller.scrollTop += now.getBoundingClientRect().top - place.top;
  }

  firstVisible(top) {
    const nodes = this.body.children;
    let [low, high] = [0, nodes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (nodes[middle].getBoundingClientRect().bottom > top) high = middle;
      else low = middle + 1;
    }
    return this.from + Math.min(low, Math.max(0, nodes.length - 1));
  }

  update() {
    if (!this.lines.length || !this.root.isConnected) return;
    const view = this.scroller.getBoundingClientRect();
    const box = this.body.getBoundingClientRect();
    if (box.bottom <= view.top || box.top >= view.bottom) {
      const { scrollTop, scrollHeight, clientHeight } = this.scroller;
      const isEnd = scrollTop + clientHeight > scrollHeight - 2;
      const place = isEnd ? this.before + this.lines.length + this.after - 1 : Math.floor(scrollTop / this.unit);
      if (this.load && this.first !== null) this.goTo(place, isEnd ? 0.9 : 0);
      else this.showIndex(Math.min(place, this.lines.length - 1), isEnd ? 0.9 : 0);
      return;
    }
    const height = Math.max(15, Math.min(box.height / (this.to - this.from), 200));
    if (Math.abs(height - this.height) > this.height / 5) this.height = height;
    const first = this.firstVisible(view.top);
    const last = this.firstVisible(view.bottom);
    const isNear = (from, edge) => Math.abs(from - edge) < AROUND / 3;
    if ((this.from > 0 && isNear(first, this.from)) || (this.to < this.lines.length && isNear(last, this.to))) {
      this.keep(() => this.renderAround(first));
    }
    if (!this.load || this.first === null) return;
    const isAll = this.total !== null && this.first + this.lines.length >= this.total;
    if (this.first > 0 && first < AROUND) this.loadEarlier();
    else if (!this.isTail && !isAll && last > this.lines.length - AROUND) this.loadLater();
    else if (!this.isTail && isAll && last >= this.lines.length - 1) this.onEnd();
  }

  // Show a line by its number; `share` of the box is above it. Return false if there is no such line.
  async goTo(number, share = 0.3) {
    const isLoaded = this.first !== null && number >= this.first && number < this.first + this.lines.length;
    if (!isLoaded) {
      if (!this.load) return false;
      const found = await this.loadAround(number);
      if (!found) return found === null; // it failed, or another jump began
    }
    this.showIndex(Math.min(number - this.first, this.lines.length - 1), share);
    return number < this.first + this.lines.length;
  }

  showIndex(index, share = 0.3) {
    this.renderAround(index);
    const node = this.body.children[index - this.from];
    if (!node) return;
    const box = this.scroller.getBoundingClientRect();
    this.scroller.scrollTop += node.getBoundingClientRect().top - box.top - share * box.height;
  }

  // Loading

  // Fetch lines; null if that failed, or another jump has begun since then.
  async fetch(first, count) {
    const { jump } = this;
    const found = await this.load(first, count);
    if (jump !== this.jump || !found) return null;
    let style = null;
    return found.map(([text, time, isError]) => {
      const line = new TerminalLine(style);
      line.write(text);
      style = line.style;
      return { line, task: "", number: null, time, isError };
    });
  }

  async loadAround(number) {
    this.jump += 1;
    const first = Math.max(0, number - AT_ONCE / 2);
    const found = await this.fetch(first, AT_ONCE);
    if (!found?.length) return found && false;
    Object.assign(this, { lines: found, first, isTail: false });
    this.body.replaceChildren();
    this.from = this.to = 0;
    this.onChange();
    return true;
  }

  async loadEarlier() {
    if (this.isLoading) return;
    this.isLoading = true;
    const count = Math.min(AT_ONCE, this.first);
    const begin = this.first - count;
    const found = await this.fetch(begin, count).finally(() => (this.isLoading = false));
    if (!found || this.first !== begin + found.length) return;
    this.keep(() => {
      this.lines = found.concat(this.lines);
      this.first = begin;
      [this.from, this.to] = [this.from + found.length, this.to + found.length];
      if (this.lines.length > MOST) {
        this.lines.length = MOST;
        this.isTail = false;
      }
      this.setSpace();
    });
    this.onChange();
    this.later();
  }

  async loadLater() {
    if (this.isLoading) return;
    this.isLoading = true;
    const end = this.first + this.lines.length;
    const found = await this.fetch(end, AT_ONCE).finally(() => (this.isLoading = false));
    if (!found || end !== this.first + this.lines.length) return;
    this.keep(() => {
      this.lines.push(...found);
      if (this.lines.length > MOST) this.drop(this.lines.length - MOST);
      this.setSpace();
    });
    this.onChange();
    if (found.length) this.later();
  }
}

function element(tag, name) {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}

function hue(label) {
  let sum = 0;
  for (const sign of label) sum = (sum * 31 + sign.codePointAt(0)) % 997;
  return sum % 8;
}

function clock(time) {
  const at = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const hour = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${day} ${hour}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}
