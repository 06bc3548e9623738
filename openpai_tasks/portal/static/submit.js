// The pages that submit jobs: validation while typing, preview, sources by drop, texts to copy.

import { Editor } from "./editor.js";
import { announce } from "./portal.js";

const PAUSE = 300; // milliseconds without typing before the text is checked
const BATCH_FILES = 200;
const BATCH_BYTES = 32 << 20;

const form = document.querySelector("#job-file, #job-form");
const find = (selector, root = document) => root.querySelector(selector);
const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

const NO_ANSWER = "The portal does not answer. Is it running?";

async function post(path, body) {
  const answer = await fetch(`${form.action}/${path}`, {
    method: "POST",
    body,
    headers: { accept: "application/json", "x-csrf-token": find("meta[name=csrf]").content },
  }).catch(() => {
    throw new Error(NO_ANSWER);
  });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function trouble(text) {
  const notice = document.createElement("p");
  notice.className = "notice bad";
  notice.setAttribute("role", "alert");
  notice.textContent = text;
  find("#trouble").replaceChildren(notice);
  find("#trouble").scrollIntoView({ block: "nearest" });
}

// Check when nothing was typed for a moment; an answer to an older text is dropped.
function checker(show) {
  let timer = 0;
  let latest = 0;
  let hasFailed = false;
  return (pause = PAUSE) => {
    clearTimeout(timer);
    const mine = (latest += 1);
    timer = setTimeout(async () => {
      try {
        const found = await post("check", new FormData(form));
        if (mine !== latest) return;
        if (hasFailed) find("#trouble").replaceChildren();
        hasFailed = false;
        show(found);
      } catch (error) {
        if (mine === latest) trouble(error.message);
        hasFailed = true;
      }
    }, pause);
  };
}

let uploads = Promise.resolve(true); // false after a failure

// Submit once, and keep what was typed if the job is refused
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = find("button.primary", form);
  if (button.disabled) return;
  button.disabled = true;
  announce("Submitting");
  const areThere = await uploads;
  if (!areThere) {
    uploads = Promise.resolve(true); // the failure is on the page
    button.disabled = false;
    return;
  }
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { accept: "text/html" } });
    if (answer.redirected && answer.ok) {
      location.assign(answer.url);
      return; // the button stays off until the job's page is there
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const reason = page.querySelector("#trouble") ?? page.querySelector("main");
    find("#trouble").replaceChildren(...reason.childNodes);
    const wrong = find("[aria-invalid=true]", form);
    wrong?.closest("details")?.setAttribute("open", "");
    (wrong ?? find("#trouble")).focus();
  } catch {
    trouble(NO_ANSWER);
  }
  button.disabled = false;
});

// Preview
const dialog = find("#preview");
find("[data-close]").addEventListener("click", () => dialog.close());
find("[data-preview]").addEventListener("click", async () => {
  try {
    const { plan, text, folded, is_masked: isMasked, notes, files } = await post("preview", new FormData(form));
    const masked = isMasked ? ["Secrets are masked here."] : [];
    find("[data-preview-about]").textContent = ["Nothing was sent.", ...masked, ...notes].join(" ");
    find("[data-preview-plan]").replaceChildren(...plan.map(fact));
    find("[data-preview-all-files]").hidden = !files.length;
    find("[data-preview-files]").replaceChildren(
      ...files.map(([name, size]) => item(`${name}  ${sizeText(size)}`)),
    );
    find("[data-preview-text]").textContent = folded;
    find("[data-preview-whole]").textContent = text;
    find("[data-preview-more]").hidden = text === folded;
    find("#trouble").replaceChildren();
    dialog.showModal();
  } catch (error) {
    trouble(error.message);
  }
});

function fact([name, value]) {
  const made = document.createElement("div");
  for (const [kind, text] of [["dt", name], ["dd", value]]) {
    made.append(Object.assign(document.createElement(kind), { textContent: text }));
  }
  return made;
}

function item(text) {
  const made = document.createElement("li");
  made.textContent = text;
  return made;
}

function sizeText(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  const power = Math.min(3, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

if (form.id === "job-file") startEditor();
else startForm();

// Job files
function startEditor() {
  const editor = new Editor(find("[data-editor]"));
  const verdict = find("#verdict");
  const list = find("#problems");
  const notes = find("#notes");
  const original = editor.text;
  const check = checker((found) => {
    const texts = found.problems.map(({ line, path, rule }) => ({ line, text: path ? `${path}: ${rule}` : rule }));
    editor.show(texts.map(({ line, text }, at) => ({ line, text: found.problems[at].rule || text })));
    list.replaceChildren(...texts.map(({ line, text }) => problem(line, text)));
    list.hidden = !texts.length;
    notes.hidden = !found.notes.length;
    find("p", notes).textContent = found.notes.join(" ");
    const summary = texts.length ? count(texts.length, "problem") : `Valid v${found.version} job`;
    verdict.classList.toggle("bad", texts.length > 0);
    if (verdict.textContent !== summary) {
      verdict.textContent = summary;
      announce(texts.length ? `${summary}: ${texts[0].text}` : summary);
    }
  });
  const problem = (line, text) => {
    const made = item("");
    if (!line) {
      made.textContent = text;
      return made;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link";
    button.textContent = `Line ${line}: ${text}`;
    button.addEventListener("click", () => editor.jump(line));
    made.append(button);
    return made;
  };
  editor.area.addEventListener("input", () => check());
  find("[data-convert]").addEventListener("click", async () => {
    try {
      editor.replace((await post("convert", new FormData(form))).text);
    } catch (error) {
      trouble(error.message);
    }
  });
  for (const link of document.querySelectorAll("[data-replaces]")) {
    link.addEventListener(link.matches("form") ? "submit" : "click", (event) => {
      const isChanged = editor.text !== original;
      if (isChanged && !confirm("Replace the text in the editor?")) event.preventDefault();
    });
  }
  check(0);
}

// The form
function startForm() {
  const check = checker(({ command, python, problem, field }) => {
    if (find("#same-command")) {
      find("#same-command").textContent = command;
      find("#same-python").textContent = python;
    }
    const notice = find("#form-problem");
    notice.hidden = !problem;
    for (const input of form.querySelectorAll("[aria-invalid]")) mark(input, false);
    const wrong = field ? form.querySelectorAll(`[name=${field}]`) : [];
    for (const input of wrong) mark(input, true);
    const place = wrong[0]?.closest(".field"); // the sentence is at its field
    if (place) place.after(notice);
    else find(".actions:last-of-type", form).before(notice);
    notice.classList.toggle("at-field", Boolean(place));
    if (notice.textContent !== problem) {
      notice.textContent = problem;
      announce(problem);
    }
  });
  form.addEventListener("input", () => {
    const hasSecret = [...form.querySelectorAll("[name=secret_name]")].some((one) => one.value);
    for (const about of document.querySelectorAll("[data-about-secrets]")) about.hidden = !hasSecret;
    check();
  });
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
      announce("Copied");
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
  }
  for (const part of form.querySelectorAll("[data-pairs]")) startPairs(part, check);
  startSources(find("#sources"), check);
  check(0);
}

function mark(input, isInvalid) {
  input.toggleAttribute("aria-invalid", isInvalid);
  if (!isInvalid) return input.removeAttribute("aria-describedby");
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", "form-problem");
}

function startPairs(part, check) {
  const add = find("[data-add-row]", part);
  add.addEventListener("click", () => {
    const row = find(".pair", part).cloneNode(true);
    for (const input of row.querySelectorAll("input")) input.value = "";
    add.before(row);
    find("input", row).focus();
  });
  part.addEventListener("click", (event) => {
    const row = event.target.closest("[data-remove-row]")?.closest(".pair");
    if (!row) return;
    if (part.querySelectorAll(".pair").length > 1) row.remove();
    else for (const input of row.querySelectorAll("input")) input.value = "";
    add.focus();
    check();
  });
}

// Sources
function startSources(part, check) {
  const list = find("[data-uploaded]", part);
  const bar = find("progress", part);
  const body = () => {
    const made = new FormData();
    made.append("draft", form.elements.draft.value);
    return made;
  };
  const show = (entries) => {
    list.replaceChildren(...entries.map(row));
    check();
  };
  const row = ({ name, is_folder: isFolder, files, size }) => {
    const inside = isFolder ? `${name}/ ${count(files, "file")}, ` : `${name} `;
    const made = item(`${inside}${sizeText(size)}`);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button quiet icon-button";
    button.textContent = "✕";
    button.ariaLabel = `Remove ${name}`;
    button.addEventListener("click", async () => {
      const removal = body();
      removal.append("path", name);
      await post("remove", removal).then(show, (error) => trouble(error.message));
    });
    made.append(button);
    return made;
  };
  const send = async (files) => {
    bar.hidden = false;
    bar.value = 0;
    try {
      let done = 0;
      for (const batch of batches(files)) {
        const made = body();
        for (const { path } of batch) made.append("path", path);
        for (const { file } of batch) made.append("file", file, "file");
        show(await post("upload", made));
        done += batch.length;
        bar.value = done / files.length;
      }
      if (files.length) announce(`${count(files.length, "file")} uploaded`);
      return true;
    } catch (error) {
      trouble(error.message);
      return false;
    } finally {
      bar.hidden = true;
    }
  };
  const add = (found) => {
    uploads = uploads.then(async (areThere) => (await send(await found)) && areThere);
  };
  for (const input of part.querySelectorAll("input[data-files]")) {
    input.addEventListener("change", () => {
      add([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      input.value = "";
    });
  }
  part.addEventListener("dragover", (event) => {
    event.preventDefault();
    part.classList.add("is-over");
  });
  for (const name of ["dragleave", "drop"]) part.addEventListener(name, () => part.classList.remove("is-over"));
  part.addEventListener("drop", (event) => {
    event.preventDefault();
    const dropped = [...event.dataTransfer.items].filter((one) => one.kind === "file");
    const found = dropped.map((one) => filesOf(one.webkitGetAsEntry?.(), one.getAsFile()));
    add(Promise.all(found).then((several) => several.flat()));
  });
  show(
    [...list.children].map(({ dataset }) => ({
      name: dataset.name,
      is_folder: dataset.folder === "1",
      files: Number(dataset.files),
      size: Number(dataset.size),
    })),
  );
}

function batches(files) {
  const made = [];
  let bytes = Infinity;
  for (const one of files) {
    const last = made[made.length - 1];
    if (!last || last.length >= BATCH_FILES || bytes + one.file.size > BATCH_BYTES) {
      made.push([one]);
      bytes = one.file.size;
    } else {
      last.push(one);
      bytes += one.file.size;
    }
  }
  return made;
}

// The files of a dropped file or folder, with their relative names
async function filesOf(entry, single) {
  if (!entry) return [{ path: single.name, file: single }];
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path: entry.fullPath.replace(/^\//, ""), file }];
  }
  const reader = entry.createReader();
  const inside = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) break;
    inside.push(...some);
  }
  return (await Promise.all(inside.map((one) => filesOf(one)))).flat();
}
