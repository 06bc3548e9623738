// What every page has: themes, live parts, times that pass, selections, questions before changes.

import { morph } from "./morph.js";

const root = document.documentElement;

for (const button of document.querySelectorAll("[data-theme-switch]")) {
  button.addEventListener("click", () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

// On a narrow screen the tabs are wider than the page.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Live parts: the server sends new HTML for them; a hidden page does not listen.
for (const part of document.querySelectorAll("[data-live]")) follow(part);

function follow(part) {
  let source = null;
  let isFirst = true;
  let isOver = false; // what has ended is not read again
  const open = () => {
    if (source || isOver || document.hidden) return;
    const address = new URL(part.dataset.live, location);
    if (!isFirst) address.searchParams.set("from", "start"); // what changed meanwhile is missing here
    isFirst = false;
    source = new EventSource(address);
    source.addEventListener("html", (event) => {
      report("");
      for (const [id, html] of Object.entries(JSON.parse(event.data))) {
        morph(document.getElementById(id), html);
      }
      for (const menu of document.querySelectorAll("details[open]")) fillIn(menu);
      refresh();
    });
    source.addEventListener("end", () => {
      isOver = true;
      close();
    });
    source.addEventListener("problem", (event) => again(`${JSON.parse(event.data)}. Trying again…`));
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) again("The portal does not answer. Trying again…");
      else report("You are signed out. Reload the page to sign in.");
    });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const again = (text) => {
    report(text);
    close();
    setTimeout(open, 3000);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  part.addEventListener("moved", () => {
    close();
    isFirst = true;
    if (part.dataset.live) open();
  });
  open();
}

// Filters act while the user types: the address changes, and the parts that the form names are fetched again.
let typed = 0;
let fetched = null;

for (const kind of ["input", "change"]) {
  document.addEventListener(kind, (event) => {
    const form = event.target.closest?.("form[data-filter]");
    if (!form) return;
    clearTimeout(typed);
    typed = setTimeout(() => filter(form), kind === "input" ? 250 : 0);
  });
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-filter]")) return;
  event.preventDefault();
  document.activeElement?.blur(); // the keys of the list work again
  filter(event.target);
});

async function filter(form) {
  clearTimeout(typed);
  const given = [...new FormData(form)].filter(([, value]) => value !== "");
  const address = new URL(form.action);
  address.search = new URLSearchParams(given);
  if (form.dataset.sent === address.search) return;
  form.dataset.sent = address.search;
  if (!(await swap(address, form.dataset.filter))) delete form.dataset.sent;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-swap]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  swap(new URL(link.href), link.dataset.swap);
});

// Show these parts of another page, whose address becomes the address of this one; return whether it was there.
async function swap(address, parts) {
  fetched?.abort();
  fetched = new AbortController();
  try {
    const answer = await fetch(address, { signal: fetched.signal, headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || answer.redirected) {
      location.assign(address);
      return true;
    }
    history.replaceState(null, "", page.querySelector("link[rel=canonical]")?.getAttribute("href") ?? address);
    for (const id of parts.split(" ")) show(document.getElementById(id), page.getElementById(id));
    refresh();
    return true;
  } catch (error) {
    if (error.name !== "AbortError") report("The portal does not answer.");
    return error.name === "AbortError";
  }
}

// Change a part of the page into the same part of another page.
function show(part, wanted) {
  morph(part, wanted.innerHTML);
  if (part.dataset.live === wanted.dataset.live) return;
  part.dataset.live = wanted.dataset.live ?? "";
  part.dispatchEvent(new Event("moved"));
}

// A problem of the live parts, shown until they work again
function report(text) {
  const place = document.getElementById("problem");
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}

export function announce(text) {
  document.getElementById("announce").textContent = text;
}

// Times that pass
const UNITS = [[31536000, "year"], [2592000, "month"], [86400, "day"], [3600, "hour"], [60, "minute"]];

function ago(seconds) {
  for (const [size, unit] of UNITS) {
    const count = Math.floor(seconds / size);
    if (count >= 1) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }
  return "just now";
}

function lasted(seconds) {
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor(whole / 60) % 60)}m`;
}

function refresh() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-ago]")) {
    setText(time, ago((now - Date.parse(time.dateTime)) / 1000));
  }
  for (const place of document.querySelectorAll("[data-since]")) {
    setText(place, lasted(Math.max(0, now - Number(place.dataset.since)) / 1000));
  }
  for (const form of document.querySelectorAll("[data-selection]")) showSelection(form);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

setInterval(() => document.hidden || refresh(), 1000);

// Selections
function showSelection(form) {
  const boxes = form.querySelectorAll("tbody input[type=checkbox]:checked:enabled");
  const ticked = [...boxes].reduce((sum, box) => sum + Number(box.dataset.count ?? 1), 0);
  const bar = form.querySelector("[data-selection-bar]");
  bar.hidden = ticked === 0;
  setText(bar.querySelector("[data-selection-count]"), `${ticked} selected`);
}

document.addEventListener("change", (event) => {
  const form = event.target.closest?.("[data-selection]");
  if (!form) return;
  if (event.target.matches("[data-select-all]")) {
    for (const box of form.querySelectorAll("tbody input[type=checkbox]:enabled")) box.checked = event.target.checked;
  }
  showSelection(form);
});

// Questions before changes
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

// Copying: a text of the page, or one that the server finds first, when its menu is opened
const found = new Map();

function lookUp(address) {
  const ask = async () => (await fetch(address, { headers: { accept: "application/json" } })).json();
  if (!found.has(address)) found.set(address, ask().catch(() => ({ error: "the portal does not answer" })));
  return found.get(address);
}

async function fillIn(menu) {
  for (const button of menu.querySelectorAll("[data-copy-from]")) {
    const { text, error } = await lookUp(button.dataset.copyFrom);
    setText(button.parentElement.querySelector("[data-copy-shown]"), error ?? text);
    if (error) found.delete(button.dataset.copyFrom);
  }
}

document.addEventListener("toggle", (event) => event.target.open && fillIn(event.target), true);

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-from]");
  if (!button) return;
  let text = button.dataset.copy;
  if (button.dataset.copyFrom) {
    const answer = await lookUp(button.dataset.copyFrom);
    if (answer.error) return announce(answer.error);
    text = answer.text;
  }
  await navigator.clipboard.writeText(text);
  announce("Copied");
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
});

// A menu closes when something else is used
for (const kind of ["click", "keydown"]) {
  document.addEventListener(kind, (event) => {
    for (const menu of document.querySelectorAll("details:is(.menu, .popover)[open]")) {
      if (kind === "keydown" ? event.key !== "Escape" : menu.contains(event.target)) continue;
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
    }
  });
}

// Keys, but not while typing: a marked field takes the focus, rows are walked through, help is shown.
// A dialog that was just closed has the focus until the next frame.
const TYPING = "input:not([type=checkbox], [type=radio]), textarea, select, dialog[open] *";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches(TYPING)) return;
  const field = document.querySelector(`[data-focus-key="${CSS.escape(event.key)}"]`);
  if (field) field.focus();
  else if (event.key === " " && event.target.matches("a[role=button]")) event.target.click();
  else if (event.key === "?") showKeys();
  else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
  else return;
  event.preventDefault();
});

function showKeys() {
  document.getElementById("shortcuts").showModal();
}

document.querySelector("[data-show-keys]")?.addEventListener("click", showKeys);

// The first link of the next row takes the focus, so that Enter opens it.
function moveRow(step) {
  const isShown = (row) => row.querySelector("a[href]") && row.offsetParent !== null;
  const rows = [...document.querySelectorAll(".grid tbody tr")].filter(isShown);
  const here = rows.indexOf(document.activeElement.closest?.("tr"));
  const next = rows[here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step];
  next?.querySelector("a[href]").focus();
}

refresh();
