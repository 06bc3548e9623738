// A small editor around a textarea: line numbers, colours, problems on their lines, indentation, completion.

import { placeAt, suggestions } from "./complete.js";
import { getJson } from "./get_json.js";
import { announce } from "./portal.js";

const MOST_LINES = 3000; // longer texts stay plain
const TOKENS = [
  ["comment", /#.*/y],
  ["hole", /<%.*?%>/y],
  ["key", /(?:"[^"]*"|'[^']*'|[\w$.-]+)(?=\s*:(?:\s|$))/y],
  ["text", /"(?:[^"\\]|\\.)*"|'[^']*'/y],
  ["value", /(?:[-+]?\d[\d.e+-]*|true|false|null)(?=[\s,}\]]|$)/y],
  ["sign", /[&*][\w-]+|[|>][-+\d]*$|[-{}[\],:]/y],
];
const WORD = /[^\s"'#<&*|>{}[\],:-][^\s"'#<{}[\],:]*|[\s\S]/y;

function make(name, className, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  made.className = className;
  return made;
}

export class Editor {
  constructor(root) {
    this.root = root;
    this.area = root.querySelector("textarea");
    this.gutter = make("div", "editor-gutter", { ariaHidden: "true" });
    this.paper = make("div", "editor-paper", { ariaHidden: "true" });
    this.list = make("ul", "editor-list", { id: "completions", role: "listbox", ariaLabel: "Completions", hidden: true });
    this.list.setAttribute("role", "listbox");
    root.prepend(this.gutter, this.paper);
    root.append(this.list);
    root.classList.add("is-ready");
    this.area.wrap = "off";
    for (const [name, value] of [["autocomplete", "list"], ["haspopup", "listbox"], ["controls", "completions"]]) {
      this.area.setAttribute(`aria-${name}`, value);
    }
    this.rows = [];
    this.problems = new Map();
    this.found = [];
    this.area.addEventListener("input", (event) => {
      this.draw();
      if (event.inputType === "insertText" || event.inputType === "deleteContentBackward") this.suggest(false);
      else this.close();
    });
    this.area.addEventListener("scroll", () => this.follow());
    this.area.addEventListener("keydown", (event) => this.press(event));
    this.area.addEventListener("blur", () => this.close());
    this.area.addEventListener("click", () => this.close());
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // keeps the focus in the text
      const row = event.target.closest("li");
      if (row) this.accept([...this.list.children].indexOf(row));
    });
    this.loadSchema();
    this.draw();
  }

  async loadSchema() {
    // Without an answer there is no completion; the check of the text reports it.
    this.schemas = (await getJson(this.root.dataset.schema)) ?? this.schemas;
    if (this.isAwaited) this.suggest(false);
  }

  get text() {
    return this.area.value;
  }

  // Replace the whole text, so that Ctrl-Z brings it back.
  replace(text) {
    this.area.focus();
    this.area.select();
    this.insert(text);
    this.area.setSelectionRange(0, 0);
    this.area.scrollTop = 0;
  }

  insert(text) {
    // The only way that keeps the browser's history; setRangeText is for browsers without it.
    if (!document.execCommand("insertText", false, text)) {
      this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
      this.area.dispatchEvent(new InputEvent("input", { bubbles: true }));
    }
  }

  // Lines

  draw() {
    const lines = this.text.split("\n");
    const isPlain = lines.length > MOST_LINES;
    this.root.classList.toggle("is-plain", isPlain);
    if (isPlain) {
      this.rows = [];
      this.gutter.replaceChildren();
      this.paper.replaceChildren();
      return;
    }
    while (this.rows.length > lines.length) {
      const row = this.rows.pop();
      row.number.remove();
      row.line.remove();
    }
    while (this.rows.length < lines.length) {
      const number = make("div", "", { textContent: this.rows.length + 1 });
      const row = { number, line: make("div", "editor-line"), text: null };
      this.rows.push(row);
      this.gutter.append(number);
      this.paper.append(row.line);
    }
    let block = -1;
    lines.forEach((text, number) => {
      const indent = text.search(/\S|$/);
      const isBlock = block >= 0 && (indent > block || !text.trim());
      if (!isBlock) block = /(?:^|[\s:-])[|>][-+\d]*\s*$/.test(text) ? indent : -1;
      const problem = this.problems.get(number + 1) ?? "";
      const row = this.rows[number];
      if (row.text === text && row.isBlock === isBlock && row.problem === problem) return;
      Object.assign(row, { text, isBlock, problem });
      row.line.replaceChildren(...paint(text, isBlock));
      row.line.classList.toggle("bad", Boolean(problem));
      row.number.classList.toggle("bad", Boolean(problem));
      if (problem) row.line.append(make("span", "editor-problem", { textContent: problem }));
    });
    this.follow();
  }

  follow() {
    this.gutter.scrollTop = this.area.scrollTop;
    this.paper.scrollTop = this.area.scrollTop;
    this.paper.scrollLeft = this.area.scrollLeft;
    if (!this.list.hidden) this.placeList();
  }

  // Problems by line: [{line, text}]
  show(problems) {
    this.problems = new Map();
    for (const { line, text } of problems) {
      if (line) this.problems.set(line, [this.problems.get(line), text].filter(Boolean).join("; "));
    }
    this.area.setAttribute("aria-invalid", String(problems.length > 0));
    this.draw();
  }

  jump(line) {
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    const height = parseFloat(getComputedStyle(this.area).lineHeight);
    this.area.scrollTop = Math.max(0, (line - 1) * height - this.area.clientHeight / 3);
  }

  // Keys

  press(event) {
    const isOpen = !this.list.hidden;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.suggest(true);
    } else if (isOpen && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      this.select(this.selected + (event.key === "ArrowDown" ? 1 : -1));
    } else if (isOpen && ["Enter", "Tab"].includes(event.key) && !event.shiftKey) {
      event.preventDefault();
      this.accept(this.selected);
    } else if (event.key === "Escape") {
      if (isOpen) event.preventDefault();
      else this.leaves = true;
      this.close();
      return;
    } else if (event.key === "Tab" && !this.leaves && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      this.indent(event.shiftKey);
    } else if (event.key === "Enter" && !event.isComposing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.breakLine();
    } else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"].includes(event.key)) {
      this.close();
    }
    if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) this.leaves = false;
  }

  breakLine() {
    const { selectionStart: at } = this.area;
    const line = this.text.slice(this.text.lastIndexOf("\n", at - 1) + 1, at);
    const deeper = /[:{[]\s*$/.test(line) || /[:-]\s+[|>][-+\d]*$/.test(line) ? "  " : "";
    const dash = line.match(/^\s*-\s(?=\s*\S+:)/); // the next key of a list's item
    this.insert("\n" + (dash ? " ".repeat(dash[0].length) : line.match(/^\s*/)[0]) + deeper);
  }

  indent(isBack) {
    const { selectionStart: from, selectionEnd: to } = this.area;
    const start = this.text.lastIndexOf("\n", from - 1) + 1;
    if (!isBack && from === to) {
      this.insert(" ".repeat(2 - ((from - start) % 2)));
      return;
    }
    const lines = this.text.slice(start, to).split("\n");
    const moved = lines.map((line) => (isBack ? line.replace(/^ {1,2}/, "") : line && `  ${line}`));
    this.area.setSelectionRange(start, to);
    this.insert(moved.join("\n"));
    const first = Math.max(start, from + moved[0].length - lines[0].length);
    this.area.setSelectionRange(first, start + moved.join("\n").length);
  }

  // Completion

  suggest(isAsked) {
    const { selectionStart: at, selectionEnd } = this.area;
    this.close();
    this.isAwaited = !this.schemas;
    if (at !== selectionEnd || this.isAwaited) return;
    const place = placeAt(this.text, at);
    if (!place || (!isAsked && place.kind === "key" && !place.typed)) return;
    const isOld = /"jobName"|^jobName:/m.test(this.text) && !/protocolVersion/.test(this.text);
    this.found = suggestions(isOld ? this.schemas.v1 : this.schemas.v2, place);
    this.place = place;
    if (!this.found.length) {
      if (isAsked) announce("No completions here");
      return;
    }
    this.list.replaceChildren(
      ...this.found.map(({ name, about }, number) => {
        const row = make("li", "", { id: `completion-${number}` });
        row.setAttribute("role", "option");
        row.append(make("b", "", { textContent: name }), make("span", "muted", { textContent: about }));
        return row;
      }),
    );
    this.list.hidden = false;
    this.placeList();
    this.select(0);
    announce(`${this.found.length} completions`);
  }

  placeList() {
    const style = getComputedStyle(this.area);
    const lines = this.text.slice(0, this.place.start).split("\n");
    const height = parseFloat(style.lineHeight);
    this.letter ??= width(this.paper);
    const top = lines.length * height + parseFloat(style.paddingTop) - this.area.scrollTop;
    const left = lines[lines.length - 1].length * this.letter + parseFloat(style.paddingLeft) - this.area.scrollLeft;
    const room = this.root.clientWidth - this.list.offsetWidth - 8;
    this.list.style.left = `${Math.max(0, Math.min(this.area.offsetLeft + left, room))}px`;
    const isAbove = top + this.list.offsetHeight > this.area.clientHeight && top > this.list.offsetHeight + height;
    this.list.style.top = `${isAbove ? top - height - this.list.offsetHeight : top}px`;
  }

  select(number) {
    const rows = [...this.list.children];
    this.selected = (number + rows.length) % rows.length;
    rows.forEach((row, index) => row.setAttribute("aria-selected", String(index === this.selected)));
    rows[this.selected].scrollIntoView({ block: "nearest" });
    this.area.setAttribute("aria-activedescendant", rows[this.selected].id);
  }

  accept(number) {
    const { start, isQuoted } = this.place;
    const { insert } = this.found[number];
    let { selectionStart: end } = this.area;
    if (isQuoted && this.text[end] === '"') end += 1;
    this.close();
    this.area.setSelectionRange(start, end);
    this.insert(insert);
    if (insert.endsWith(": ")) this.suggest(false);
  }

  close() {
    this.isAwaited = false;
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }
}

function width(paper) {
  const probe = make("span", "", { textContent: "0".repeat(100) });
  paper.append(probe);
  const found = probe.getBoundingClientRect().width / 100;
  probe.remove();
  return found;
}

function paint(text, isBlock) {
  const nodes = [];
  let plain = "";
  const put = (kind, piece) => {
    if (!kind) {
      plain += piece;
      return;
    }
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(make("span", `code-${kind}`, { textContent: piece }));
  };
  for (let at = 0; at < text.length; ) {
    const [kind, piece] = next(text, at, isBlock);
    put(kind, piece);
    at += piece.length;
  }
  return plain ? [...nodes, plain] : nodes;
}

function next(text, at, isBlock) {
  for (const [kind, pattern] of TOKENS) {
    if (isBlock && kind !== "hole") continue;
    if (kind === "comment" && at > 0 && !/\s/.test(text[at - 1])) continue;
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) return [kind, match[0]];
  }
  WORD.lastIndex = at;
  return ["", WORD.exec(text)[0]];
}
