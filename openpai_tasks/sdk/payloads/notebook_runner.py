"""Runs a notebook in a job, cell by cell: one file that travels with the job and needs nothing else of ours.

It wants Python 3.9 and nbclient, nbformat, nbconvert and a kernel; what of it the image lacks is installed
beside it, for this job alone. ``notebook: cell 2 of 5: x = 1`` and the like on stdout tell how far it is,
``notebook| ...`` why a cell failed. The executed notebook is in ``$PAI_OUTPUT_DIR`` from the first cell on.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[:1] == [os.path.dirname(os.path.realpath(__file__))]:
    del sys.path[0]  # beside it is code of the user, whose names may be those of modules that are needed here

import argparse
import asyncio
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import itertools
import json
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

CELL_FAILED, CANNOT, NOT_CONVERTED, NOT_SAVED, TIMED_OUT, STOPPED = 1, 2, 3, 4, 124, 143
"""What it ends with, if not with 0."""
STATE = "openpai_run"
"""The key of the notebook's metadata that says how far it came."""
PARAMETERS, INJECTED, EXPECTED = "parameters", "injected-parameters", "raises-exception"
PACKAGES, PIP, OWN = ".pai-notebook-packages", ".pai-notebook-pip", ".pai-notebook-jupyter"
"""Folders beside it, where something is installed or kept apart."""
EXECUTED = "pai-run"
"""What a result has in its name where a file of the notebook's own has the plain one."""
EVERY = 2.0  # seconds between two looks at what a running cell has shown
PATIENCE = 10  # a notebook that takes long to save is saved again after so many times as long
LINES, LETTERS, WIDTH = 200, 20_000, 100  # of what a failing cell shows in the log, and of one line of a cell
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

STEERING = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\x1b\[\n]?")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PIECES = re.compile(
    rf"(?P<colour>{COLOUR.pattern})|(?P<erase>\x1b\[[02]?K)|(?P<move>[\r\b])|(?P<text>[^\x1b\r\b]+)"
)
"""What a line is made of that a terminal is shown, as far as it is understood here."""
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


Pen = tuple[str, ...]
"""The colours that what is written has, as the sequences that choose them."""


class Stopped(SystemExit):
    """The job was asked to end; an exit, as asyncio lets nothing else through."""


class CellFailed(Exception):
    """A cell that ended the run: what is told of it, the exit code, and what it shows in the notebook."""

    def __init__(self, reason: str, code: int = CELL_FAILED, kind: str = "") -> None:
        super().__init__(reason)
        self.reason, self.code, self.kind = reason, code, kind


# What is said


def say(text: str) -> None:
    _write("notebook: " + visible(text) + "\n")


def detail(text: str) -> None:
    """More about the last thing said, as far as a log can take it."""
    lines = STEERING.sub("", text)[-LETTERS:].splitlines()
    left_out = ["..."] if len(lines) > LINES else []
    _write("".join("notebook| " + visible(line) + "\n" for line in left_out + lines[-LINES:]))


def stop(text: str, code: int = CANNOT) -> NoReturn:
    say("error: " + text)
    sys.exit(code)


def visible(text: str) -> str:
    """One line that cannot steer a terminal."""
    return _HIDDEN.sub(
        lambda found: f"\\x{ord(found[0]):02x}", text.replace("\t", "    ").replace("\n", "\\n")
    )


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


# The notebook


def source_of(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def tags_of(cell: dict[str, Any]) -> list[str]:
    tags = cell.get("metadata", {}).get("tags", [])
    return tags if isinstance(tags, list) else []


def runs(cell: dict[str, Any]) -> bool:
    return cell.get("cell_type") == "code" and bool(source_of(cell).strip())


def first_line(cell: dict[str, Any]) -> str:
    line = next((line.strip() for line in source_of(cell).splitlines() if line.strip()), "")
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def inject(notebook: dict[str, Any], parameters: dict[str, Any]) -> bool:
    """Put the values in a cell behind the one that is tagged for it; whether there is one, else on top.

    The values of an earlier run are replaced.
    """
    cells = [cell for cell in notebook["cells"] if INJECTED not in tags_of(cell)]
    place = next((number for number, cell in enumerate(cells, 1) if PARAMETERS in tags_of(cell)), 0)
    lines = ["# Parameters", *(f"{name} = {literal(value)}" for name, value in parameters.items())]
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": [INJECTED]},
        "outputs": [],
        "source": "\n".join(lines),
    }
    if (notebook.get("nbformat", 4), notebook.get("nbformat_minor", 0)) >= (4, 5):
        cell["id"] = secrets.token_hex(4)
    notebook["cells"] = [*cells[:place], cell, *cells[place:]]
    return place > 0


def literal(value: Any) -> str:
    """The value as Python writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def cleared(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook without what an earlier run left in it."""
    metadata = {key: value for key, value in notebook["metadata"].items() if key not in ("widgets", STATE)}
    cells = [
        {**cell, "outputs": [], "execution_count": None} if cell.get("cell_type") == "code" else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "metadata": metadata, "cells": cells}


def merged(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what a cell printed in one piece, as a terminal would show it.

    A copy, as while the kernel is there outputs are found by their number.
    """
    cells = [
        {**cell, "outputs": _merged(cell["outputs"])} if cell.get("cell_type") == "code" else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def _merged(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for stream, group in itertools.groupby(outputs, lambda output: output.get("name")):
        pieces = list(group)
        if stream and all(piece["output_type"] == "stream" for piece in pieces):
            pieces = [{**pieces[0], "text": settled("".join(piece["text"] for piece in pieces))}]
        found += pieces
    return found


def settled(text: str) -> str:
    """What is left to see of a text that goes back to the beginning of its lines, in its colours.

    A line that steers a terminal in other ways stays as it is.
    """
    if "\r" not in text:
        return text
    pen: Pen = ()
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if "\r" in line and "\x1b" not in PIECES.sub("", line):
            line, pen = _settled(line, pen)
        else:
            pen = functools.reduce(_mixed, COLOUR.findall(line), pen)
        lines.append(line)
    return "\n".join(lines)


def _settled(line: str, before: Pen) -> tuple[str, Pen]:
    """The line as it is shown in the end, and the colours behind it."""
    at, width, pen = 0, 0, before
    shown: list[tuple[Pen, str]] = []
    for piece in PIECES.finditer(line):
        kind, value = piece.lastgroup, piece[0]
        if kind == "colour":
            pen = _mixed(pen, value)
        elif kind == "move":
            at = 0 if value == "\r" else max(at - 1, 0)
        elif kind == "erase":
            shown, width = [((), " " * at)] if value == "\x1b[2K" else _columns(shown, 0, at), at
        else:
            start, at = at, at + len(value)
            if start < width:
                shown = [*_columns(shown, 0, start), (pen, value), *_columns(shown, at)]
            else:
                shown.append((pen, value))
            width = max(width, at)
    return _coloured([*shown, (pen, "")], before), pen


def _columns(shown: list[tuple[Pen, str]], start: int, end: int | None = None) -> list[tuple[Pen, str]]:
    """What is shown from one column to another."""
    found, at = [], 0
    for pen, text in shown:
        part = text[max(start - at, 0) : None if end is None else max(end - at, 0)]
        found += [(pen, part)] if part else []
        at += len(text)
    return found


def _mixed(pen: Pen, colour: str) -> Pen:
    """The colours when one is added; some begin anew."""
    if not colour.strip("\x1b[0;m"):
        return ()
    kept = () if re.match(r"\x1b\[0*;", colour) else (one for one in pen if one != colour)
    return (*kept, colour)


def _coloured(shown: list[tuple[Pen, str]], pen: Pen) -> str:
    said = ""
    for after, text in shown:
        is_more = after[: len(pen)] == pen
        said += ("".join(after[len(pen) :]) if is_more else "\x1b[0m" + "".join(after)) + text
        pen = after
    return said


# What the image lacks


def ensure(modules: dict[str, str]) -> None:
    """See that these can be imported; those which cannot are installed for this job, with all they need."""
    missing = [name for module, name in modules.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return
    say(f"installing {', '.join(missing)}, which this image lacks")
    target = Path(PACKAGES).absolute()
    done = _install(missing, target)
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        told = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "")
        hint = "take an image that has it, or see that the job reaches a package index"
        stop(f"{', '.join(missing)} cannot be installed: {told}; {hint}")
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    _extend("JUPYTER_PATH", str(target / "share" / "jupyter"))
    if "ipykernel" in missing:
        _extend("PYTHONPATH", str(target))


def load(*modules: str) -> None:
    """Import them now: packages that do not fit together are told before the first cell runs."""
    # jsonschema can do without it, no schema of notebooks needs it, and it takes two seconds to load.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as err:  # by whatever of all that it needs
            reason = _error_line(type(err).__name__, str(err))
            stop(f"{module} is in this image, but cannot be loaded: {reason}; take another image")


def _install(names: list[str], target: Path) -> subprocess.CompletedProcess[str]:
    """By pip into a folder: that changes no environment, and one that is managed elsewhere allows it."""
    words = ["install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    words += ["--target", str(target), *names]
    return subprocess.run(
        [_python_with_pip(), "-m", "pip", *words],
        env={**os.environ, "PIP_USER": "0", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _python_with_pip() -> str:
    """This python, or where it has no pip, itself in a virtual environment that brings one."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    folder = Path(PIP).absolute()
    words = [sys.executable, "-m", "venv", str(folder)]
    made = subprocess.run(words, capture_output=True, check=False, cwd=os.sep)  # away from code of the user
    if made.returncode:
        stop(
            f"jupyter is not in this image, and {sys.executable} has neither pip nor venv to install it with"
        )
    return str(folder / "bin" / "python")


def _extend(variable: str, path: str) -> None:
    before = os.environ.get(variable)
    os.environ[variable] = f"{path}{os.pathsep}{before}" if before else path


def keep_apart() -> None:
    """No settings and no traces in the home of whoever runs this, unless the image says otherwise."""
    Path(OWN).mkdir(exist_ok=True)
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ.setdefault(variable, os.path.abspath(os.path.join(OWN, variable.lower())))
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")


# What it writes


class Kept:
    """The results in the output folder; what the notebook itself writes there under their names stays."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder, self.stem = folder, stem
        self._own: dict[str, str] = {}  # what was written last, by name
        self._looks: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._adopt()

    def write(self, extension: str, content: bytes) -> str:
        """Put it in its place, unless it is there; the name it has."""
        path, digest = self._place(extension), hashlib.sha256(content).hexdigest()
        if self._own.get(path.name) != digest or not path.exists():
            with replacing(path) as file:
                file.write(content)
            self._own[path.name], self._looks[path.name] = digest, _look(path)
        return path.name

    def _place(self, extension: str) -> Path:
        for number in itertools.count(self._numbers.get(extension, 0)):
            path = self.folder / f"{self.stem}{marked(number)}{extension}"
            if not os.path.lexists(path) or self._is_own(path):
                self._numbers[extension] = number
                return path
            say(f"{path.name} was written by the notebook itself and stays; the result has another name")
        raise AssertionError("numbers do not end")

    def _is_own(self, path: Path) -> bool:
        """Whether it is as it was written; a mounted storage may give it another time."""
        if path.name not in self._own or not path.is_file():
            return False
        return self._looks[path.name] == _look(path) or self._own[path.name] == _digest(path)

    def _adopt(self) -> None:
        """What an earlier attempt of the job has left as results is replaced."""
        for number in itertools.count():
            path = self.folder / f"{self.stem}{marked(number)}.ipynb"
            if not path.is_file():
                return
            results = _results_of(path)
            for name in () if results is None else (path.name, *results):
                self._know(name)

    def _know(self, name: str) -> None:
        path = self.folder / name
        if path.parent == self.folder and path.is_file():
            self._own[name], self._looks[name] = _digest(path), _look(path)


def marked(number: int) -> str:
    """What stands between the name of the notebook and the extension of a result."""
    return "" if number == 0 else f".{EXECUTED}" if number == 1 else f".{EXECUTED}-{number}"


def _results_of(path: Path) -> list[str] | None:
    """What an executed notebook says was made of it; nothing for any other file."""
    try:
        note = json.loads(path.read_bytes())["metadata"][STATE]
        return [name for name in note.get("files", ()) if isinstance(name, str)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _look(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# Running it


class Run:
    """One notebook on its way."""

    def __init__(self, options: argparse.Namespace, notebook: Any, folder: Path) -> None:
        self.options, self.notebook, self.folder = options, notebook, folder
        self.stem = Path(options.file).stem
        self.kept = Kept(folder, self.stem)
        self.total = sum(map(runs, notebook.cells))
        self.number = self.failed = 0
        self.name = f"{self.stem}.ipynb"
        self.trouble = ""  # why what there is now is not kept
        self._save_took = self._saved = 0.0

    def execute(self, kernel: str) -> None:
        """Every cell in turn; raises when one of them ends the run."""
        from nbclient import NotebookClient

        client = NotebookClient(
            self.notebook,
            timeout=self.options.timeout_per_cell,
            kernel_name=kernel,
            allow_errors=self.options.allow_errors,
            extra_arguments=quiet(kernel),
            resources={"metadata": {"path": str(Path(self.options.file).absolute().parent)}},
        )
        client.reset_execution_trackers()
        try:
            with client.setup_kernel():
                try:
                    self._cells(client)
                except BaseException:
                    client.shutdown_kernel = "immediate"  # it may be busy, and would be waited for
                    _synchronous(_abandon)()
                    self.save()
                    raise
        except CellFailed as err:
            detail(self._told())
            raise err from None

    def _cells(self, client: Any) -> None:
        info = client.wait_for_reply(client.kc.kernel_info())
        if info and "language_info" in info["content"]:
            self.notebook.metadata["language_info"] = info["content"]["language_info"]
        for index, cell in enumerate(self.notebook.cells):
            if runs(cell):
                self.number += 1
                self._note("running", index)
                say(f"cell {self.number} of {self.total}: {first_line(cell)}")
                self.save(is_last=False)
                self._cell(client, cell, index)
        client.set_widgets_metadata()
        self._note("done")

    def _cell(self, client: Any, cell: Any, index: int) -> None:
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

        try:
            _synchronous(self._shown)(client, cell, index)
        except CellExecutionError as err:
            self._fail(cell, index, CellFailed(_error_line(err.ename, err.evalue)))
        except CellTimeoutError:
            limit = f"it took longer than {self.options.timeout_per_cell} s (--timeout-per-cell)"
            self._fail(cell, index, CellFailed(limit, TIMED_OUT, "CellTimeout"))
        except DeadKernelError:
            reason = "the kernel died: often there was not enough memory (--memoryMB)"
            self._fail(cell, index, CellFailed(reason, CELL_FAILED, "DeadKernel"))
        error = _error(cell)
        if error and EXPECTED not in tags_of(cell):
            self.failed += 1
            say(f"cell {self.number} of {self.total} failed, as is allowed: {_error_line(**error)}")

    async def _shown(self, client: Any, cell: Any, index: int) -> None:
        """Run a cell, and save what it shows meanwhile: it may take days, and may not come to its end."""
        saving = asyncio.ensure_future(self._save_often())
        try:
            await client.async_execute_cell(cell, index)
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(max(EVERY, PATIENCE * self._save_took))
            self.save()

    def _fail(self, cell: Any, index: int, failure: CellFailed) -> NoReturn:
        """Note it in the notebook too, where the kernel could not do so itself."""
        if failure.kind:
            shown = {"ename": failure.kind, "evalue": failure.reason, "traceback": [failure.reason]}
            cell.outputs = [*cell.outputs, _node({"output_type": "error", **shown})]
        self._note("failed", index, failure.reason)
        say(f"cell {self.number} of {self.total} failed: {failure.reason}")
        raise failure

    def _told(self) -> str:
        """The failing cell and its traceback."""
        cell = self.notebook.cells[self.notebook.metadata[STATE]["index"]]
        outputs = [output for output in cell.outputs if output.output_type == "error"]
        traceback = "\n".join(line for output in outputs for line in output.traceback)
        return f"{source_of(cell)}\n\n{traceback}"

    def _note(self, state: str, index: int | None = None, reason: str = "") -> None:
        note: dict[str, Any] = {"state": state, "cell": self.number, "of": self.total}
        if index is not None:
            note["index"] = index
        if reason:
            note["reason"] = reason
        self.notebook.metadata[STATE] = _node(note)

    def stopped(self) -> None:
        """Note that it was ended from outside."""
        index = self.notebook.metadata.get(STATE, {}).get("index")
        self._note("stopped", index, "the job was stopped")

    def save(self, is_last: bool = True) -> None:
        """Keep what there is; a notebook with very large outputs not after every single cell.

        A storage that takes nothing now may do so later, so it ends no computation.
        """
        began = time.monotonic()
        if not is_last and self._save_took > 1 and began - self._saved < PATIENCE * self._save_took:
            return
        import nbformat

        text = nbformat.writes(_node(merged(self.notebook)))
        try:
            self.name = self.kept.write(".ipynb", text.encode("utf-8", "surrogatepass"))
        except OSError as err:
            self._not_saved(_reason(err))
        else:
            self.trouble = ""
        self._saved = time.monotonic()
        self._save_took = self._saved - began

    def _not_saved(self, reason: str) -> None:
        if reason != self.trouble:
            say(f"the notebook cannot be saved: {reason}; the run goes on, and it is tried again")
        self.trouble = reason

    def convert(self) -> int:
        """The notebook in the formats that were asked for; how many could not be made."""
        wrote, failures = [self.name], 0
        self.notebook = _node(merged(self.notebook))
        for name in self.options.to:
            try:
                wrote.append(FORMATS[name](self))
            except Exception as err:  # by any converter, template or tool: the others are still to be made
                failures += 1
                say(f"error: no {name} could be made: {_error_line(type(err).__name__, str(err))}")
        if wrote[1:]:
            self.notebook.metadata[STATE]["files"] = wrote
            self.save()
        say(f"wrote {', '.join(wrote)}")
        return failures

    def resources(self) -> dict[str, Any]:
        return {"metadata": {"name": self.stem, "path": str(Path(self.options.file).absolute().parent)}}

    def write(self, extension: str, content: str) -> str:
        return self.kept.write(extension, content.encode("utf-8", "surrogatepass"))


def _synchronous(function: Any) -> Any:
    """A coroutine function that runs where the client's own do."""
    from nbclient.util import run_sync

    return run_sync(function)


async def _abandon() -> None:
    """End what still waits for the kernel: it would complain when the kernel is gone."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    for task in (await asyncio.wait(left, timeout=5))[0] if left else ():
        if not task.cancelled():
            task.exception()


def _node(value: dict[str, Any]) -> Any:
    from nbformat import from_dict

    return from_dict(value)


def _error(cell: Any) -> dict[str, str] | None:
    for output in cell.outputs:
        if output.output_type == "error":
            return {"ename": output.ename, "evalue": output.evalue}
    return None


def _error_line(ename: str, evalue: str) -> str:
    lines = STEERING.sub("", evalue).strip().splitlines()
    return f"{ename}: {lines[0][:300]}" if lines else ename


def _reason(err: OSError) -> str:
    return err.strerror or str(err)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A file that takes the place of another one when it is whole."""
    part = path.with_name(f".pai-part-{int(time.time()):08x}{secrets.token_hex(4)}")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


# The formats


def _html(run: Run) -> str:
    return run.write(".html", _html_text(run))


def _html_text(run: Run) -> str:
    from nbconvert.exporters import HTMLExporter

    exporter = HTMLExporter()
    if hasattr(exporter, "embed_images"):
        exporter.embed_images = True  # the page leaves the folder that they are in
    return str(exporter.from_notebook_node(run.notebook, resources=run.resources())[0])


def _script(run: Run) -> str:
    from nbconvert.exporters import ScriptExporter

    body, resources = ScriptExporter().from_notebook_node(run.notebook, resources=run.resources())
    return run.write(str(resources.get("output_extension") or ".txt"), body)


def _pdf(run: Run) -> str:
    return run.kept.write(".pdf", _printed(run) if _browser() else _typeset(run))


def _printed(run: Run) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        page, made = Path(name, "page.html"), Path(name, "page.pdf")
        page.write_text(_html_text(run), encoding="utf-8", errors="surrogatepass")
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        words += ["--no-pdf-header-footer", f"--user-data-dir={name}/profile", f"--print-to-pdf={made}"]
        done = subprocess.run([str(_browser()), *words, page.as_uri()], capture_output=True, timeout=300)
        if not made.exists():
            raise RuntimeError(f"the browser ended with {done.returncode} and printed nothing")
        return made.read_bytes()


def _typeset(run: Run) -> bytes:
    from nbconvert.exporters import PDFExporter

    return bytes(PDFExporter().from_notebook_node(run.notebook, resources=run.resources())[0])


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


FORMATS = {"html": _html, "pdf": _pdf, "script": _script}
"""What can be made of the executed notebook, which itself is always kept."""


# From the command line to the exit code


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a notebook, cell by cell.")
    parser.add_argument("file")
    parser.add_argument("--parameters", type=json.loads, default={})
    parser.add_argument("--to", type=_formats, default=["html"])
    parser.add_argument("--kernel", default="")
    parser.add_argument("--timeout-per-cell", type=int, default=None)
    parser.add_argument("--allow-errors", action="store_true")
    return parser.parse_args(words)


def _formats(text: str) -> list[str]:
    return [name for name in text.split(",") if name in FORMATS]


def kernel_for(notebook: Any, wanted: str) -> str:
    """The kernel that is asked for or that the notebook names, if it is here."""
    from jupyter_client.kernelspec import KernelSpecManager

    named = _told(notebook, "kernelspec").get("name", "")
    name = str(wanted or named or "python3")
    known = sorted(KernelSpecManager().find_kernel_specs())
    if name not in known:
        there = f"this image has: {', '.join(known)}" if known else "this image has none"
        stop(f"no kernel named {name!r}: {there}; choose one with --kernel NAME")
    return name


def check_language(kernel: str) -> None:
    """Parameters are set in Python."""
    from jupyter_client.kernelspec import KernelSpecManager

    language = KernelSpecManager().get_kernel_spec(kernel).language
    if language and language.lower() != "python":
        stop(f"-p can set variables of Python notebooks only, and the kernel {kernel!r} is for {language}")


def quiet(kernel: str) -> list[str]:
    """Words for IPython's kernel, which warns in every log that it listens on this machine only."""
    from jupyter_client.kernelspec import KernelSpecManager

    words = KernelSpecManager().get_kernel_spec(kernel).argv
    return ["--log-level=ERROR"] if any("ipykernel" in word for word in words) else []


def is_python(notebook: dict[str, Any]) -> bool:
    """Whether it is in Python, as far as it says so."""
    spec, info = _told(notebook, "kernelspec"), _told(notebook, "language_info")
    return str(spec.get("language") or info.get("name") or "python").lower() == "python"


def _told(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """What the notebook's metadata says of something."""
    found = notebook.get("metadata", {}).get(name)
    return found if isinstance(found, dict) else {}


def prepared(options: argparse.Namespace) -> Any:
    """The notebook as it is going to be run."""
    import nbformat

    with open(options.file, encoding="utf-8", errors="surrogatepass") as file:
        written = json.load(file)
    is_old = written.get("nbformat") != 4
    if not is_old:
        written["nbformat_minor"] = minor_of(written)
    try:
        notebook = cleared(nbformat.reads(json.dumps(written), as_version=4))
        if options.parameters and not inject(notebook, options.parameters) and is_old:
            say(f"no cell is tagged {PARAMETERS!r}: the parameters go on top")
        found = nbformat.from_dict(notebook)
        nbformat.validate(found, relax_add_props=True)  # as those do that make something of it in the end
        return found
    except Exception as err:  # a converter stumbles in any way over what is no notebook
        stop(f"{options.file} cannot be read as a notebook: {_error_line(type(err).__name__, str(err))}")


def minor_of(notebook: dict[str, Any]) -> int:
    """The minor version that a notebook of format 4 says, or the one its cells are of."""
    said = notebook.get("nbformat_minor")
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    return 5 if any("id" in cell for cell in notebook["cells"]) else 4


def main(words: list[str]) -> int:
    options = arguments(words)
    folder = _output_folder()
    signal.signal(signal.SIGTERM, _on_term)
    keep_apart()
    with open(options.file, encoding="utf-8", errors="surrogatepass") as file:
        needs_ipykernel = is_python(json.load(file)) if not options.kernel else options.kernel == "python3"
    modules = {"nbformat": "nbformat", "nbclient": "nbclient", "nbconvert": "nbconvert"}
    ensure({**modules, **({"ipykernel": "ipykernel"} if needs_ipykernel else {})})
    load("nbformat", "nbclient", *(["nbconvert.exporters"] if options.to else []))
    if "pdf" in options.to and not (_browser() or shutil.which("xelatex")):
        stop("a PDF needs chromium or xelatex, and this image has neither; leave out `--to pdf`")
    notebook = prepared(options)
    run = Run(options, notebook, folder)
    kernel = kernel_for(notebook, options.kernel)
    if options.parameters:
        check_language(kernel)
    say(f"{run.total} cell{'s' * (run.total != 1)}, kernel {kernel}")
    return _ended(run, kernel)


def _output_folder() -> Path:
    folder = Path(os.environ.get("PAI_OUTPUT_DIR") or os.curdir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        stop(f"the output folder cannot be made: {_reason(err)}")
    return folder


def _ended(run: Run, kernel: str) -> int:
    """Run it, and keep what there is, whatever happens."""
    code = 0
    try:
        run.execute(kernel)
    except CellFailed as err:
        code = err.code
    except Stopped:
        run.stopped()
        code = STOPPED
        say(f"stopped in cell {run.number} of {run.total}")
    run.save()
    failures = 0 if run.trouble else run.convert()
    if run.failed:
        say(f"{run.failed} of {run.total} cells failed, as is allowed")
    if run.trouble:
        say(f"error: the result could not be saved: {run.trouble}")
        return code or NOT_SAVED
    return code or (NOT_CONVERTED if failures else 0)


def _on_term(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
