// One line of a terminal: colours, carriage returns and erasing; everything else that a terminal obeys is ignored.

const LONGEST = 20000; // characters of a line that are shown

// eslint-disable-next-line no-control-regex
const CONTROL = /\x1b\[([0-9;:]*)m|\x1b\[([0-2]?)K|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// eslint-disable-next-line no-control-regex
export const UNFINISHED = /\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b]{0,2000}\x1b?)?$/;

// The look of text: null for plain text, else {fg, bg} (a number of our palette or "#rrggbb") and flags.
export class TerminalLine {
  constructor(style = null) {
    this.runs = []; // [text, style]
    this.length = 0;
    this.at = 0; // the cursor
    this.style = style;
    this.isCut = false;
  }

  write(text) {
    let last = 0;
    for (const match of text.matchAll(CONTROL)) {
      if (match.index > last) this.put(text.slice(last, match.index));
      last = match.index + match[0].length;
      if (match[1] !== undefined) this.style = restyle(this.style, match[1]);
      else if (match[2] !== undefined) this.erase(match[2]);
      else if (match[0] === "\r") this.at = 0;
      else if (match[0] === "\b") this.at = Math.max(0, this.at - 1);
    }
    if (last < text.length) this.put(last ? text.slice(last) : text);
  }

  put(text) {
    const room = LONGEST - this.at;
    if (text.length > room) {
      this.isCut = true;
      text = text.slice(0, Math.max(0, room));
    }
    if (!text) return;
    const end = this.at + text.length;
    if (this.at < this.length) {
      const rest = cut(this.runs, end, this.length);
      this.runs = [...cut(this.runs, 0, this.at), [text, this.style], ...rest];
    } else {
      const run = this.runs[this.runs.length - 1];
      if (run && run[1] === this.style) run[0] += text;
      else this.runs.push([text, this.style]);
    }
    this.at = end;
    this.length = Math.max(this.length, end);
  }

  erase(how) {
    if (how === "2") this.runs = [];
    else if (how === "1") this.runs = [[" ".repeat(Math.min(this.at, this.length)), null], ...cut(this.runs, this.at, this.length)];
    else this.runs = cut(this.runs, 0, this.at);
    this.length = this.runs.reduce((sum, run) => sum + run[0].length, 0);
    if (this.at > this.length) {
      this.runs.push([" ".repeat(this.at - this.length), null]);
      this.length = this.at;
    }
  }

  nodes() {
    const made = this.runs.map(([text, style]) => (style ? span(text, style) : text));
    if (this.isCut) made.push(span(" … this line is longer; the download has all of it", { faint: true }));
    return made;
  }
}

function cut(runs, begin, end) {
  const found = [];
  let at = 0;
  for (const [text, style] of runs) {
    const piece = text.slice(Math.max(0, begin - at), Math.max(0, end - at));
    if (piece) found.push([piece, style]);
    at += text.length;
  }
  return found;
}

const FLAGS = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"], 39: ["fg"], 49: ["bg"] };

function restyle(style, codes) {
  const made = { ...style };
  const numbers = codes.split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) for (const name of Object.keys(made)) delete made[name];
    else if (FLAGS[code]) made[FLAGS[code]] = true;
    else if (ENDS[code]) for (const name of ENDS[code]) delete made[name];
    else if (code >= 30 && code <= 37) made.fg = code - 30;
    else if (code >= 90 && code <= 97) made.fg = code - 82;
    else if (code >= 40 && code <= 47) made.bg = code - 40;
    else if (code >= 100 && code <= 107) made.bg = code - 92;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers, at + 1);
      if (colour !== null) made[code === 38 ? "fg" : "bg"] = colour;
      at += used;
    }
  }
  return Object.keys(made).length ? made : null;
}

// A colour of 256, or one of red, green and blue; and how many numbers name it.
function extended(numbers, at) {
  if (numbers[at] === 2) {
    const parts = numbers.slice(at + 1, at + 4);
    return [parts.length === 3 && parts.every((part) => part >= 0 && part < 256) ? hex(parts) : null, 4];
  }
  const number = numbers[at + 1];
  if (numbers[at] !== 5 || !(number >= 0 && number < 256)) return [null, 2];
  if (number < 16) return [number, 2];
  if (number >= 232) return [hex(Array(3).fill(8 + 10 * (number - 232))), 2];
  const cube = [36, 6, 1].map((size) => Math.floor((number - 16) / size) % 6);
  return [hex(cube.map((part) => (part ? 55 + 40 * part : 0))), 2];
}

function hex(parts) {
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function span(text, style) {
  const made = document.createElement("span");
  const { fg, bg } = style.inverse ? { fg: style.bg ?? "#10151c", bg: style.fg ?? "#d7dde6" } : style;
  const names = Object.values(FLAGS).filter((name) => style[name]);
  if (typeof fg === "number") names.push(`fg-${fg}`);
  else if (fg) made.style.color = fg;
  if (typeof bg === "number") names.push(`bg-${bg}`);
  else if (bg) made.style.backgroundColor = bg;
  made.className = names.join(" ");
  made.textContent = text;
  return made;
}
