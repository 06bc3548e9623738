// A job's output: ANSI colours, progress bars that redraw their line, search, one list or a column per task.

const BLOCK = 200; // lines in an element that the browser skips while it is off screen
const MOST = 100000; // lines that are kept

const log = document.getElementById("log");
const option = (name) => document.querySelector(`[data-log-${name}]`);
const status = option("status");
const panes = new Map();

class Pane {
  constructor(label) {
    this.root = document.createElement("div");
    this.root.className = "log-pane";
    if (label) {
      const head = document.createElement("div");
      head.className = "log-head";
      head.textContent = label;
      this.root.append(head);
    }
    this.body = document.createElement("div");
    this.body.className = "log-lines";
    this.root.append(this.body);
    this.count = 0;
    this.pending = new Map(); // the unfinished line of each task
  }

  add(task, text, labelled) {
    const state = this.pending.get(task) ?? { line: null, text: "", style: "" };
    this.pending.set(task, state);
    const parts = text.split("\n");
    parts.forEach((part, number) => {
      state.text += part;
      const isWhole = number < parts.length - 1;
      if (isWhole || part) this.draw(task, state, labelled);
      if (isWhole) {
        state.line = null;
        state.text = "";
      }
    });
  }

  draw(task, state, labelled) {
    if (!state.line) {
      state.line = this.newLine();
      state.begin = state.style;
    }
    const shown = visible(state.text);
    const { nodes, style } = paint(shown, state.begin);
    state.style = style;
    if (labelled && task) {
      const label = document.createElement("span");
      label.className = `log-label hue-${hue(task)}`;
      label.textContent = task;
      nodes.unshift(label);
    }
    state.line.replaceChildren(...nodes);
  }

  newLine() {
    let block = this.body.lastElementChild;
    if (!block || block.childElementCount >= BLOCK) {
      block = document.createElement("div");
      block.className = "log-block";
      this.body.append(block);
      if (this.body.childElementCount > MOST / BLOCK) this.body.firstElementChild.remove();
    }
    const line = document.createElement("div");
    line.className = "log-line";
    block.append(line);
    this.count += 1;
    return line;
  }
}

// What a terminal would show of a line in which carriage returns move back to its start.
function visible(text) {
  const parts = text.replace(/\r+$/, "").split("\r");
  return parts[parts.length - 1] || parts[parts.length - 2] || "";
}

// eslint-disable-next-line no-control-regex
const SEQUENCE = /\x1b\[([0-9;]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]/g;

function paint(text, begin) {
  const nodes = [];
  let style = begin;
  let last = 0;
  const put = (piece) => {
    if (!piece) return;
    if (!style) {
      nodes.push(document.createTextNode(piece));
      return;
    }
    const span = document.createElement("span");
    span.className = style;
    span.textContent = piece;
    nodes.push(span);
  };
  for (const match of text.matchAll(SEQUENCE)) {
    put(text.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[1] !== undefined) style = restyle(style, match[1]);
  }
  put(text.slice(last));
  return { nodes, style };
}

function restyle(style, codes) {
  let names = new Set(style.split(" ").filter(Boolean));
  const colour = (name) => {
    names = new Set([...names].filter((one) => !one.startsWith("fg-")));
    if (name) names.add(name);
  };
  const numbers = codes.split(";").map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) names.clear();
    else if (code === 1) names.add("bold");
    else if (code === 2) names.add("faint");
    else if (code === 3) names.add("italic");
    else if (code === 4) names.add("underline");
    else if (code === 22) names.delete("bold"), names.delete("faint");
    else if (code === 23) names.delete("italic");
    else if (code === 24) names.delete("underline");
    else if (code >= 30 && code <= 37) colour(`fg-${code - 30}`);
    else if (code >= 90 && code <= 97) colour(`fg-${code - 90}`);
    else if (code === 39) colour("");
    else if (code === 38 || code === 48) at += numbers[at + 1] === 2 ? 4 : 2;
  }
  return [...names].join(" ");
}

function hue(label) {
  let sum = 0;
  for (const sign of label) sum = (sum * 31 + sign.codePointAt(0)) % 997;
  return sum % 8;
}

function paneFor(task) {
  const name = option("view").value === "columns" ? task : "";
  if (!panes.has(name)) {
    const pane = new Pane(name);
    panes.set(name, pane);
    log.append(pane.root);
  }
  return panes.get(name);
}

let source = null;
let lines = 0;

function open() {
  source?.close();
  panes.clear();
  log.replaceChildren();
  lines = 0;
  const address = new URL(log.dataset.log, location.href);
  const task = option("task").value;
  if (task) {
    const cut = task.lastIndexOf("-");
    address.searchParams.set("role", task.slice(0, cut));
    address.searchParams.set("index", task.slice(cut + 1));
  }
  log.classList.toggle("columns", option("view").value === "columns");
  source = new EventSource(address);
  let waiting = [];
  const flush = () => {
    const columns = option("view").value === "columns";
    for (const [name, text] of waiting) paneFor(name).add(name, text, !columns);
    waiting = [];
    lines = [...panes.values()].reduce((sum, pane) => sum + pane.count, 0);
    status.textContent = `${lines.toLocaleString()} lines`;
    if (option("follow").checked) log.scrollTop = log.scrollHeight;
    search();
  };
  source.addEventListener("log", (event) => {
    if (!waiting.length) requestAnimationFrame(flush);
    waiting.push(JSON.parse(event.data));
  });
  source.addEventListener("open", () => {
    // A connection that was lost starts again from the beginning.
    if (lines) panes.clear(), log.replaceChildren();
  });
  source.addEventListener("end", () => {
    source.close();
    requestAnimationFrame(() => (status.textContent = `${lines.toLocaleString()} lines, complete`));
  });
  source.addEventListener("problem", (event) => {
    source.close();
    status.textContent = JSON.parse(event.data);
  });
}

function search() {
  const words = option("search").value.toLowerCase();
  let found = 0;
  for (const line of log.querySelectorAll(".log-line")) {
    const isHit = Boolean(words) && line.textContent.toLowerCase().includes(words);
    line.classList.toggle("hit", isHit);
    found += isHit;
  }
  option("found").textContent = words ? `${found} ${found === 1 ? "line" : "lines"}` : "";
  return found;
}

option("search").addEventListener("input", () => {
  if (search()) log.querySelector(".hit").scrollIntoView({ block: "center" });
});
option("wrap").addEventListener("change", (event) => log.classList.toggle("nowrap", !event.target.checked));
option("task").addEventListener("change", open);
option("view").addEventListener("change", open);
log.addEventListener("wheel", (event) => {
  if (event.deltaY < 0) option("follow").checked = false;
}, { passive: true });
addEventListener("pagehide", () => source?.close());
open();
