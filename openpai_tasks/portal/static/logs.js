// A job's output: one list or a column per task, followed, searched, and continued after a lost connection.

import { TerminalLine, UNFINISHED } from "./ansi.js";
import { morph } from "./morph.js";

const BLOCK = 200; // lines in an element that the browser skips while it is off screen
const MOST = 100000; // lines of a pane that are kept
const FRAME = 8; // milliseconds of a frame that showing output may take
const PAUSE = 100; // milliseconds between two changes of the page, at least
const RETRY = 2000;

const log = document.getElementById("log");
const option = (name) => document.querySelector(`[data-log-${name}]`);
const value = (name) => option(name)?.value ?? "";
const status = option("status");
const panes = new Map();

class Pane {
  constructor(label) {
    this.root = document.createElement("div");
    this.root.className = "log-pane";
    if (label) {
      this.root.tabIndex = 0;
      const head = document.createElement("div");
      head.className = "log-head";
      head.textContent = label;
      this.root.append(head);
    }
    this.body = document.createElement("div");
    this.body.className = "log-lines";
    this.root.append(this.body);
    this.scroller = label ? this.root : log;
    this.blocks = [];
    this.fresh = document.createDocumentFragment(); // blocks that are not in the page yet
    this.count = 0;
    this.dropped = 0;
    this.open = new Map(); // the unfinished line of each task
  }

  add(task, text, labelled) {
    const state = this.open.get(task) ?? { line: null, node: null, held: "", style: null };
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
      state.line ??= new TerminalLine(state.style);
      if (end > begin) state.line.write(text.slice(begin, end));
      this.draw(task, state, labelled);
      if (newline >= 0) {
        state.style = state.line.style;
        state.line = state.node = null;
      }
      begin = end + 1;
    }
  }

  draw(task, state, labelled) {
    state.node ??= this.newLine();
    const nodes = state.line.nodes();
    if (labelled && task) {
      const label = document.createElement("span");
      label.className = `log-label hue-${hue(task)}`;
      label.textContent = task;
      nodes.unshift(label);
    }
    state.node.replaceChildren(...nodes);
    if (finder.words) finder.mark(state.node);
  }

  newLine() {
    let block = this.blocks[this.blocks.length - 1];
    if (this.count % BLOCK === 0) {
      block = document.createElement("div");
      block.className = "log-block";
      this.fresh.append(block);
      this.blocks.push(block);
      if (this.blocks.length > MOST / BLOCK) {
        this.blocks.shift().remove();
        this.dropped += BLOCK;
      }
    }
    const line = document.createElement("div");
    line.className = "log-line";
    block.append(line);
    this.count += 1;
    return line;
  }

  show(isFollowed) {
    this.body.append(this.fresh);
    if (isFollowed) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

function hue(label) {
  let sum = 0;
  for (const sign of label) sum = (sum * 31 + sign.codePointAt(0)) % 997;
  return sum % 8;
}

function paneFor(task) {
  const name = isColumns() ? task : "";
  if (!panes.has(name)) {
    const pane = new Pane(name);
    panes.set(name, pane);
    log.append(pane.root);
  }
  return panes.get(name);
}

const isColumns = () => value("view") === "columns";

// Searching
const finder = {
  words: "",
  current: null,

  *lines() {
    for (const pane of panes.values()) for (const block of pane.blocks) yield* block.children;
  },

  mark(line) {
    const isHit = Boolean(this.words) && line.textContent.toLowerCase().includes(this.words);
    if (isHit !== line.classList.contains("hit")) line.classList.toggle("hit", isHit);
  },

  search(words) {
    this.words = words.toLowerCase();
    for (const line of this.lines()) this.mark(line);
    this.go(null);
    if (this.words) this.step(1);
    else this.show();
  },

  step(by) {
    const hits = [...log.getElementsByClassName("hit")];
    if (!hits.length) return this.show();
    const at = hits.indexOf(this.current);
    this.go(hits[at < 0 ? (by > 0 ? 0 : hits.length - 1) : (at + by + hits.length) % hits.length]);
    setFollow(false);
    this.show(hits.indexOf(this.current) + 1);
  },

  go(line) {
    this.current?.classList.remove("current");
    this.current = line;
    line?.classList.add("current");
    const place = scrollY; // only the log scrolls
    line?.scrollIntoView({ block: "center" });
    scrollTo(0, place);
  },

  show(at = 0) {
    const found = log.getElementsByClassName("hit").length;
    const count = `${found.toLocaleString()} ${found === 1 ? "line" : "lines"}`;
    option("found").textContent = this.words ? (at ? `${at} of ${count}` : count) : "";
  },
};

// Following
let source = null;
let after = ""; // the last event that was seen
let waiting = [];
let isComplete = false;
let notice = "";
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
  panes.clear();
  log.replaceChildren();
  waiting = [];
  finder.current = null;
  notice = "";
}

function restart() {
  after = "";
  clear();
  isComplete = false;
  status.textContent = "Loading…";
  log.classList.toggle("columns", isColumns());
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
  if (log.dataset.most) from.searchParams.set("lines", "most");
  source = new EventSource(from);
  const on = (name, act) =>
    source.addEventListener(name, (event) => {
      if (event.lastEventId) after = event.lastEventId;
      act(JSON.parse(event.data));
    });
  on("begin", clear);
  on("log", (pieces) => {
    waiting.push(...pieces);
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(() => requestAnimationFrame(flush), Math.max(0, shown + pause - performance.now()));
  });
  on("html", (parts) => {
    for (const [id, html] of Object.entries(parts)) morph(document.getElementById(id), html);
  });
  on("tasks", addTasks);
  on("cut", (lines) => {
    notice = `Only the last ${lines.toLocaleString()} lines of each task are shown.`;
    report();
  });
  on("end", () => {
    isComplete = true;
    close();
    report();
  });
  on("problem", (text) => retry(text));
  source.onerror = () => retry("The connection was lost; trying again…");
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
  const columns = isColumns();
  let done = 0;
  while (done < waiting.length && performance.now() < limit) {
    const [task, text] = waiting[done];
    paneFor(task).add(task, text, !columns);
    done += 1;
  }
  waiting = waiting.slice(done);
  if (waiting.length) requestAnimationFrame(flush);
  else isScheduled = false;
  // A long output goes into the page in few steps: the browser lays out and paints each of them.
  if (waiting.length && limit - shown < 2 * pause) return;
  for (const pane of panes.values()) pane.show(option("follow").checked);
  report();
  shown = performance.now();
  requestAnimationFrame(() => requestAnimationFrame((now) => (pause = Math.max(PAUSE, 6 * (now - limit)))));
}

function report() {
  const all = [...panes.values()];
  const lines = all.reduce((sum, pane) => sum + pane.count, 0);
  const dropped = all.reduce((sum, pane) => sum + pane.dropped, 0);
  const isAll = isComplete && !waiting.length;
  const count = lines ? `${lines.toLocaleString()} ${lines === 1 ? "line" : "lines"}` : "No output";
  status.textContent = `${count}${isAll ? ", complete" : lines ? "" : " yet"}`;
  const box = option("notice");
  const text = dropped ? `The first ${dropped.toLocaleString()} lines are no longer shown.` : notice;
  if (text && box.dataset.text !== text) {
    box.dataset.text = text;
    box.replaceChildren(`${text} The download has all of them. `);
    if (!dropped && !log.dataset.most) box.append(showMore());
  }
  box.hidden = !text;
  if (finder.words && !finder.current) finder.show();
}

function showMore() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  button.textContent = `Show up to ${MOST.toLocaleString()} lines`;
  button.addEventListener("click", () => {
    log.dataset.most = "yes";
    restart();
  });
  return button;
}

function setFollow(isOn) {
  option("follow").checked = isOn;
}

let typing = 0;
option("search").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => finder.search(event.target.value), 150);
});
option("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  clearTimeout(typing);
  if (finder.words === event.target.value.toLowerCase()) finder.step(event.shiftKey ? -1 : 1);
  else finder.search(event.target.value);
});
option("next").addEventListener("click", () => finder.step(1));
option("previous").addEventListener("click", () => finder.step(-1));
option("wrap").addEventListener("change", (event) => log.classList.toggle("nowrap", !event.target.checked));
for (const name of ["task", "view", "stream", "attempt"]) option(name)?.addEventListener("change", restart);
log.addEventListener("wheel", (event) => event.deltaY < 0 && setFollow(false), { passive: true });
log.addEventListener("keydown", (event) => {
  if (["ArrowUp", "PageUp", "Home"].includes(event.key)) setFollow(false);
  if (event.key === "End") setFollow(true);
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
restart();
