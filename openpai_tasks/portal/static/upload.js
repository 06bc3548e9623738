// Upload by drop or file chooser: several at once, with progress, and a question before files are replaced.

import { announce } from "./portal.js";
import { morph } from "./morph.js";

const AT_ONCE = 3;
const NAMES_AT_ONCE = 1000;
const one = (name) => document.querySelector(`[data-${name}]`);
const box = one("upload");
const csrf = document.querySelector("meta[name=csrf]").content;
const running = new Set();
let queue = []; // { path, file } or { path } for an empty folder
let isActive = false;
let total, done, moved, failed, isCancelled;

// Choose
for (const button of document.querySelectorAll("[data-choose]")) {
  const input = document.querySelector(`[data-choose-input=${button.dataset.choose}]`);
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const chosen = [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
    input.value = "";
    start(chosen);
  });
}

// Drop
let depth = 0;
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
const mark = (isOver) => document.body.classList.toggle("dropping", isOver);

addEventListener("dragenter", (event) => hasFiles(event) && mark(++depth > 0));
addEventListener("dragleave", (event) => hasFiles(event) && mark(--depth > 0));
addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
addEventListener("drop", async (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  mark((depth = 0));
  // The entries must be taken before the event ends.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = entries.length
    ? (await Promise.all(entries.map(read))).flat()
    : [...event.dataTransfer.files].map((file) => ({ path: file.name, file }));
  start(found);
});

async function read(entry) {
  const path = entry.fullPath.replace(/^\//, "");
  if (entry.isFile) return [{ path, file: await new Promise((yes, no) => entry.file(yes, no)) }];
  const reader = entry.createReader();
  const found = [];
  for (let count = -1; count !== found.length; ) { // a reader returns a hundred entries at a time
    count = found.length;
    found.push(...(await new Promise((yes, no) => reader.readEntries(yes, no))));
  }
  return found.length ? (await Promise.all(found.map(read))).flat() : [{ path }];
}

// Send
async function start(items) {
  if (!items.length) return;
  if (!isActive) {
    isActive = true;
    [total, done, moved, failed, isCancelled] = [{ files: 0, bytes: 0 }, 0, new Map(), 0, false];
    one("upload-problems").replaceChildren();
    box.hidden = false;
    one("upload-cancel").textContent = "Cancel";
    show("Looking for existing files…");
  }
  let wanted;
  try {
    wanted = await withoutRefused(items);
  } catch (error) {
    report(String(error.message || error));
  }
  for (const item of wanted ?? []) {
    total.files += 1;
    total.bytes += item.file?.size ?? 0;
    queue.push(item);
  }
  next();
}

async function withoutRefused(items) {
  const existing = new Set();
  for (let at = 0; at < items.length; at += NAMES_AT_ONCE) {
    const paths = items.slice(at, at + NAMES_AT_ONCE).filter((item) => item.file).map((item) => item.path);
    const answer = await post(box.dataset.uploadCheck, { paths: JSON.stringify(paths) });
    for (const path of answer.existing) existing.add(path);
  }
  if (!existing.size) return items;
  const choice = await ask([...existing]);
  if (choice === "cancel") return [];
  if (choice === "skip") return items.filter((item) => !existing.has(item.path));
  return items.map((item) => ({ ...item, isReplacing: existing.has(item.path) }));
}

function ask(names) {
  const dialog = one("upload-question");
  const lines = names.slice(0, 20).map((name) => line(name));
  if (names.length > 20) lines.push(line(`and ${names.length - 20} more`));
  one("upload-names").replaceChildren(...lines);
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue || "cancel"), { once: true });
  });
}

async function post(address, fields) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { accept: "application/json", "x-csrf-token": csrf },
    body: new URLSearchParams(fields),
  });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function next() {
  while (running.size < AT_ONCE && queue.length) send(queue.shift());
  refresh();
  if (!running.size && !queue.length) finish();
}

async function send(item) {
  const job = { abort() {} };
  running.add(job);
  try {
    if (item.file) await put(item, job);
    else await makeFolder(item.path);
    done += 1;
  } catch (error) {
    if (!isCancelled) report(`${item.path}: ${error.message}`);
  }
  running.delete(job);
  next();
}

function put(item, job) {
  // fetch() reports no progress of what it sends
  const call = new XMLHttpRequest();
  const path = item.path.split("/").map(encodeURIComponent).join("/");
  call.open("PUT", `${box.dataset.upload}/${path}${item.isReplacing ? "?replace=yes" : ""}`);
  call.setRequestHeader("accept", "application/json");
  call.setRequestHeader("x-csrf-token", csrf);
  call.responseType = "json";
  job.abort = () => call.abort();
  call.upload.addEventListener("progress", (event) => {
    moved.set(item, event.loaded);
    refresh();
  });
  return new Promise((yes, no) => {
    call.addEventListener("load", () => {
      moved.set(item, item.file.size);
      call.status < 300 ? yes() : no(new Error(call.response?.error ?? `error ${call.status}`));
    });
    call.addEventListener("error", () => no(new Error("the connection broke, or the file cannot be read")));
    call.addEventListener("abort", () => no(new Error("cancelled")));
    call.send(item.file);
  });
}

async function makeFolder(path) {
  const names = path.split("/").map(encodeURIComponent);
  const name = decodeURIComponent(names.pop());
  const address = box.dataset.uploadCheck.replace("/storage.check/", "/storage.folder/").replace(/\/$/, "");
  const answer = await fetch([address, ...names].join("/") + (names.length ? "" : "/"), {
    method: "POST",
    headers: { accept: "text/html", "x-csrf-token": csrf },
    body: new URLSearchParams({ name }),
  });
  if (!answer.ok) throw new Error(`error ${answer.status}`);
}

// Show
const line = (text) => Object.assign(document.createElement("li"), { textContent: text });

function report(text) {
  failed += 1;
  if (failed <= 20) one("upload-problems").append(line(text));
}

function show(text) {
  one("upload-text").textContent = text;
}

function refresh() {
  const bytes = [...moved.values()].reduce((sum, count) => sum + count, 0);
  one("upload-bar").value = total.bytes ? Math.min(1, bytes / total.bytes) : 0;
  if (total.files) show(`Uploading: ${done} of ${total.files} files, ${size(bytes)} of ${size(total.bytes)}`);
}

function size(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; count >= 1024 && at < units.length - 1; at += 1) count /= 1024;
  return `${at ? count.toFixed(1) : count} ${units[at]}`;
}

async function finish() {
  const text = failed || isCancelled ? `Uploaded ${done} of ${total.files} files` : `Uploaded ${done} files`;
  isActive = false;
  box.hidden = !failed;
  show(text);
  announce(text);
  one("upload-cancel").textContent = "Close";
  one("upload-bar").value = 1;
  const page = await (await fetch(location.href, { headers: { accept: "text/html" } })).text();
  const fresh = new DOMParser().parseFromString(page, "text/html").getElementById("files");
  if (fresh) morph(document.getElementById("files"), fresh.innerHTML);
}

one("upload-cancel").addEventListener("click", () => {
  if (!isActive) {
    box.hidden = true;
    return;
  }
  isCancelled = true;
  queue = [];
  for (const job of running) job.abort();
});

addEventListener("beforeunload", (event) => {
  if (running.size) event.preventDefault();
});
