// A job's output: one list or a column per task, followed, searched, and continued after a lost connection.

import { getJson } from "./get_json.js";
import { Pane } from "./log_pane.js";
import { morph } from "./morph.js";

const FRAME = 8; // milliseconds of a frame that showing output may take
const PAUSE = 100; // milliseconds between two changes of the page, at least
const RETRY = 2000;
const MEGABYTE = 1e6;

const log = document.getElementById("log");
const option = (name) => document.querySelector(`[data-log-${name}]`);
const value = (name) => option(name)?.value ?? "";
const status = option("status");
const panes = new Map();
const isColumns = () => value("view") === "columns";
const single = () => panes.get("");
const counted = (count) => `${count.toLocaleString()} ${count === 1 ? "line" : "lines"}`;

function paneFor(task) {
  const name = isColumns() ? task : "";
  if (!panes.has(name)) {
    const load = task ? null : loadLines;
    const pane = new Pane(log, name, { load, link: lineLink, onChange: report, onEnd: reachEnd });
    pane.words = finder.words;
    panes.set(name, pane);
    log.append(pane.root);
  }
  return panes.get(name);
}

async function ask(path, words) {
  const from = address(path);
  for (const [name, word] of Object.entries(words)) from.searchParams.set(name, word);
  const found = await getJson(from);
  if (!found) status.textContent = "Other lines cannot be loaded now.";
  return found;
}

const loadLines = async (first, count) => (await ask(log.dataset.lines, { first, count }))?.lines;

// The task of a label in the list of tasks
const optionOf = (task) => [...option("task").options].find((one) => one.dataset.label === task);

function lineLink(task, number) {
  const from = new URL(address(location.pathname));
  const [, index, role] = /^(\d+) (.*)$/s.exec((task && optionOf(task)?.value) || value("task")) ?? [];
  if (role) {
    from.searchParams.set("role", role);
    from.searchParams.set("index", index);
  }
  return `${from.pathname}${from.search}#L${number}`;
}

function reachEnd() {
  if (!isComplete) {
    setFollow(true);
    restart();
  } else if (!waiting.length) {
    single().isTail = true; // what the feed has sent is all counted
    report();
  }
}

// Lines by number

let target = null; // number of the line to show when the page is loaded

async function goToLine(number, task = "") {
  setFollow(false);
  const selected = { task, number: number - 1 };
  const place = [...panes.values()].find((pane) => !task || pane.lines.some((one) => one.task === task && one.number === number - 1));
  if (!place && task) return choose(task, number);
  if (!place) return (target = number);
  const index = task ? place.lines.findIndex((one) => one.task === task && one.number === number - 1) : -1;
  for (const pane of panes.values()) pane.mark(finder.words, selected);
  if (index >= 0) place.showIndex(index);
  else if (!(await place.goTo(number - 1))) status.textContent = `There is no line ${number.toLocaleString()}.`;
}

// Show one task of several, at a line.
function choose(task, number) {
  option("task").value = optionOf(task)?.value ?? "";
  restart();
  target = number;
}

function readHash() {
  const found = /^#L([1-9]\d{0,14})$/.exec(location.hash);
  if (found) goToLine(Number(found[1]));
}

// Searching, by the portal: it reads the whole log
const finder = {
  words: "",
  hits: [], // [task, number, text]
  at: -1,
  source: null,
  isMore: false,
  searched: 0,
  failures: 0,

  search(words) {
    this.stop();
    Object.assign(this, { words, hits: [], at: -1, isMore: false, searched: 0, failures: 0 });
    option("hits").replaceChildren();
    for (const pane of panes.values()) pane.mark(words, null);
    if (words) this.open();
    else this.show();
  },

  open() {
    const from = address(log.dataset.find);
    from.searchParams.set("q", this.words);
    from.searchParams.set("skip", this.hits.length);
    this.isMore = false;
    this.source = new EventSource(from);
    const on = (name, act) => this.source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    on("found", ({ lines, searched }) => {
      this.searched = searched;
      this.add(lines);
    });
    on("more", () => (this.isMore = true));
    on("end", () => this.finish());
    on("problem", (text) => this.finish(text));
    this.source.onerror = () => this.goOn();
    this.show();
  },

  // Search after the lines that were found before the connection was lost.
  goOn() {
    this.failures += 1;
    if (this.failures > 3) return this.finish("The connection was lost; search again.");
    this.stop();
    const { words } = this;
    setTimeout(() => words === this.words && !this.source && this.open(), RETRY);
  },

  stop() {
    this.source?.close();
    this.source = null;
  },

  finish(text = "") {
    this.stop();
    this.show();
    if (text) option("found").textContent = text;
  },

  add(lines) {
    const rows = lines.map(([task, number, text]) => {
      const row = document.createElement("li");
      const link = document.createElement("a");
      link.href = lineLink(task, number);
      link.dataset.number = (task ? `${task}:` : "") + number.toLocaleString();
      link.textContent = text;
      row.append(link);
      return row;
    });
    option("hits").append(...rows);
    this.hits.push(...lines);
    if (this.at < 0 && this.hits.length) this.go(0);
    else this.show();
  },

  step(by) {
    if (by > 0 && this.at === this.hits.length - 1 && this.isMore) return this.open();
    if (this.hits.length) this.go((this.at + by + this.hits.length) % this.hits.length);
  },

  go(at) {
    option("hits").children[this.at]?.classList.remove("current");
    this.at = at;
    const [task, number] = this.hits[at];
    const row = option("hits").children[at];
    row.classList.add("current");
    option("hits").scrollTop = row.offsetTop - option("hits").clientHeight / 2;
    goToLine(number, task);
    this.show();
  },

  show() {
    const isOn = Boolean(this.words);
    const found = `${counted(this.hits.length).replace(" ", this.isMore ? "+ " : " ")}`;
    const place = this.at >= 0 ? `${(this.at + 1).toLocaleString()} of ` : "";
    const progress = this.source ? `, searching: ${Math.round(this.searched / MEGABYTE).toLocaleString()} MB` : "";
    option("found").textContent = isOn ? place + found + progress : "";
    option("hits").hidden = !this.hits.length;
    option("more").hidden = !(isOn && this.isMore);
  },
};

// Following
let source = null;
let after = ""; // the last event that was seen
let waiting = [];
let isComplete = false;
let shown = 0; // when output last went into the page
let pause = PAUSE;
let isScheduled = false;

function address(path) {
  const found = new URL(path, location.href);
  const [, index, role] = /^(\d+) (.*)$/s.exec(value("task")) ?? [];
  const words = { role, index, stream: value("stream") === "all" ? "" : value("stream"), attempt: value("attempt") };
  for (const [name, word] of Object.entries(words)) if (word) found.searchParams.set(name, word);
  return found;
}

function clear() {
  removePanes();
  waiting = [];
}

function removePanes() {
  for (const pane of panes.values()) pane.remove();
  panes.clear();
}

function restart() {
  after = "";
  target = null;
  clear();
  isComplete = false;
  status.textContent = "Loading…";
  log.classList.toggle("columns", isColumns());
  log.classList.toggle("both", value("stream") === "all");
  const link = option("download");
  link.href = address(link.getAttribute("href").split("?")[0]);
  const label = option("task").selectedOptions[0].dataset.label;
  link.download = [link.dataset.logDownload, label, value("attempt")].filter(Boolean).join("-") + ".log";
  open();
}

function open() {
  close();
  if (isComplete || document.hidden) return;
  const from = address(log.dataset.log);
  if (after) from.searchParams.set("after", after);
  source = new EventSource(from);
  const on = (name, act) =>
    source.addEventListener(name, (event) => {
      if (event.lastEventId) after = event.lastEventId;
      act(JSON.parse(event.data));
    });
  on("begin", clear);
  on("log", (pieces) => {
    waiting.push(...pieces);
    schedule();
  });
  on("html", (parts) => {
    for (const [id, html] of Object.entries(parts)) morph(document.getElementById(id), html);
  });
  on("tasks", addTasks);
  on("start", (start) => {
    waiting.push(start);
    schedule();
  });
  on("end", () => {
    isComplete = true;
    close();
    report();
  });
  on("problem", (text) => retry(text));
  source.onerror = () => retry("The connection was lost; trying again…");
}

function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  setTimeout(() => requestAnimationFrame(flush), Math.max(0, shown + pause - performance.now()));
}

// A log begins: that of a task, or of its next attempt, whose lines have numbers of their own.
function begin({ task, offset, line }) {
  if (!task && single()?.open.size) removePanes();
  const pane = paneFor(task);
  pane.begin(task, task ? line : null);
  if (task) {
    pane.isCut ||= line !== 0;
    return;
  }
  if (offset === null) pane.load = null;
  if (line !== null) pane.setStart(line);
  else countLines(pane, offset);
}

async function countLines(pane, offset) {
  const found = await ask(log.dataset.count, { offset });
  if (found && pane === single()) pane.setStart(found.line);
}

// Tasks that started after the page was opened can be chosen, too.
function addTasks(tasks) {
  const list = option("task");
  const known = new Set([...list.options].map((one) => one.value));
  for (const [role, index, label] of tasks) {
    if (known.has(`${index} ${role}`)) continue;
    const added = new Option(label, `${index} ${role}`);
    added.dataset.label = label;
    list.append(added);
  }
}

function close() {
  source?.close();
  source = null;
}

let timer = 0;

function retry(text) {
  close();
  status.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(open, RETRY);
}

function flush() {
  const limit = performance.now() + FRAME;
  let done = 0;
  while (done < waiting.length && performance.now() < limit) {
    if (Array.isArray(waiting[done])) paneFor(waiting[done][0]).add(...waiting[done]);
    else begin(waiting[done]);
    done += 1;
  }
  waiting = waiting.slice(done);
  if (waiting.length) requestAnimationFrame(flush);
  else isScheduled = false;
  // A long output goes into the page in few steps: the browser lays out and paints each of them.
  if (waiting.length && limit - shown < 2 * pause) return;
  for (const pane of panes.values()) pane.show(option("follow").checked);
  if (isComplete && !waiting.length) single()?.later(); // its end may have been reached before
  report();
  shown = performance.now();
  requestAnimationFrame(() => requestAnimationFrame((now) => (pause = Math.max(PAUSE, 6 * (now - limit)))));
}

function report() {
  const all = [...panes.values()];
  const lines = all.reduce((sum, pane) => sum + (pane.total ?? pane.received), 0);
  const isAll = isComplete && !waiting.length;
  status.textContent = `${lines ? counted(lines) : "No output"}${isAll ? ", complete" : lines ? "" : " yet"}`;
  const box = option("notice");
  const isUntimed = option("times").checked && lines && !all.some((pane) => pane.lines.some((one) => one.time));
  const missing = isUntimed ? "No times were recorded for this output." : "";
  box.textContent = [describe(all), missing].filter(Boolean).join(" ");
  box.hidden = !box.textContent;
  if (target !== null && single()?.received && !waiting.length) {
    const number = target;
    target = null;
    goToLine(number);
  }
}

function describe(all) {
  const pane = single();
  if (pane?.load) return describePart(pane);
  const cut = all.find((one) => one.isCut || one.start > 0);
  if (cut && pane === cut && cut.start) return `Only the last ${cut.received.toLocaleString()} of ${counted(cut.total)} are shown. The download has all of them.`;
  return cut ? "Only the last lines of each task are shown. Choose a task to see all of its lines." : "";
}

function describePart(pane) {
  const { first, total } = pane;
  const loaded = pane.lines.length.toLocaleString();
  if (first === null) return `The last ${loaded} lines are loaded; counting the others…`;
  if (pane.isTail) return first ? `The last ${loaded} of ${counted(total)} are loaded; scroll up for earlier ones.` : "";
  const all = total === null ? "" : ` of ${total.toLocaleString()}`;
  return `Lines ${(first + 1).toLocaleString()} to ${(first + pane.lines.length).toLocaleString()}${all} are loaded; scroll for others.`;
}

function setFollow(isOn) {
  option("follow").checked = isOn;
}

let typing = 0;
option("search").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => finder.search(event.target.value), 250);
});
option("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  clearTimeout(typing);
  if (finder.words === event.target.value) finder.step(event.shiftKey ? -1 : 1);
  else finder.search(event.target.value);
});
option("next").addEventListener("click", () => finder.step(1));
option("previous").addEventListener("click", () => finder.step(-1));
option("more").addEventListener("click", () => finder.open());
option("hits").addEventListener("click", (event) => {
  const row = event.target.closest("li");
  if (!row || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  finder.go([...option("hits").children].indexOf(row));
});
// A number of a line is a link to it; that of another task opens its log.
log.addEventListener("click", (event) => {
  const mark = event.target.closest("a.log-number");
  if (!mark?.href || event.ctrlKey || event.metaKey || !single()?.load) return;
  event.preventDefault();
  history.replaceState(null, "", mark.href);
  setFollow(false);
  single().mark(finder.words, { task: "", number: Number(mark.dataset.number) - 1 });
});
addEventListener("hashchange", readHash);
option("wrap").addEventListener("change", (event) => log.classList.toggle("nowrap", !event.target.checked));
option("times").addEventListener("change", (event) => {
  log.classList.toggle("times", event.target.checked);
  report();
});
option("follow").addEventListener("change", (event) => {
  if (!event.target.checked) return;
  if (single() && !single().isTail) restart();
  else for (const pane of panes.values()) pane.show(true);
});
for (const name of ["task", "view", "stream", "attempt"]) {
  option(name)?.addEventListener("change", () => {
    restart();
    history.replaceState(null, "", address(location.pathname));
  });
}
log.addEventListener("wheel", (event) => event.deltaY < 0 && setFollow(false), { passive: true });
log.addEventListener("keydown", (event) => {
  if (["ArrowUp", "PageUp", "Home"].includes(event.key)) setFollow(false);
  if (event.key === "End") setFollow(true);
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
restart();
readHash();
