"""Run a notebook in a job, cell by cell. This file is sent with the job and needs only the standard library.

It needs Python 3.9, nbclient, nbformat, nbconvert and a kernel; packages that the image lacks are installed
in a folder beside it. Lines such as ``notebook: cell 2 of 5: x = 1`` on stdout show the progress, and
``notebook| ...`` why a cell failed. The executed notebook is in ``$PAI_OUTPUT_DIR`` from the first cell on.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[:1] == [os.path.dirname(os.path.realpath(__file__))]:
    del sys.path[0]  # the user's files there may have the names of modules needed here

import argparse
import ast
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
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

CELL_FAILED, CANNOT_RUN, NOT_CONVERTED, NOT_SAVED, TIMED_OUT, STOPPED = 1, 2, 3, 4, 124, 143
"""Exit codes other than 0."""
STATE = "openpai_run"
"""Key in the notebook's metadata with the state of the run."""
PARAMETERS, INJECTED, EXPECTED = "parameters", "injected-parameters", "raises-exception"
PACKAGES, PIP, JUPYTER_DIRS = ".pai-notebook-packages", ".pai-notebook-pip", ".pai-notebook-jupyter"
"""Folders beside this file for installed packages and Jupyter's own files."""
EXECUTED = "pai-run"
"""Suffix for a result whose plain name is taken by a file that the notebook wrote."""
UNUSED = ("rfc3987_syntax", "rfc3986_validator", "isoduration", "fqdn", "uri_template", "webcolors")
"""Modules for formats that no schema of notebooks has: jsonschema works without them, and sooner."""
KERNEL_STARTS = 3
OUTPUT_SECONDS = 60  # to wait for the last output of a cell that has ended; what comes later is lost
SOCKET_PATH_BYTES = 90  # a system takes 104 or 108, with the channel's number
SAVE_SECONDS = 2.0  # between two saves while a cell runs
SAVE_BACKOFF = 10  # wait at least this many times as long as the last save took
LINES, LETTERS, WIDTH = 200, 20_000, 100  # limits of a failed cell in the log, and of a cell's first line
BROWSERS = (
    *("chromium-headless-shell", "chrome-headless-shell"),  # which print in half the time
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
)

CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\x1b\[\n]?")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TERMINAL_PIECES = re.compile(
    rf"(?P<colour>{COLOUR.pattern})|(?P<erase>\x1b\[[02]?K)|(?P<move>[\r\b])|(?P<text>[^\x1b\r\b]+)"
)
"""The parts of a terminal line that are understood here."""
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


Pen = tuple[str, ...]
"""The active colour sequences."""


class RunStopped(SystemExit):
    """Raised when the job is stopped; a SystemExit, as asyncio swallows other exceptions."""


class CellFailed(Exception):
    """A cell has ended the run: the reason, the exit code, and the error name for the notebook."""

    def __init__(self, reason: str, code: int = CELL_FAILED, kind: str = "") -> None:
        super().__init__(reason)
        self.reason, self.code, self.kind = reason, code, kind


# Log lines


def say(text: str) -> None:
    _write("notebook: " + visible(text) + "\n")


def say_detail(text: str) -> None:
    """Write the details of the last line, cut to a size that suits a log."""
    lines = CONTROL.sub("", text)[-LETTERS:].splitlines()
    left_out = ["..."] if len(lines) > LINES else []
    _write("".join("notebook| " + visible(line) + "\n" for line in left_out + lines[-LINES:]))


def stop(text: str, code: int = CANNOT_RUN) -> NoReturn:
    say("error: " + text)
    sys.exit(code)


def visible(text: str) -> str:
    """Return text as one line without terminal control characters."""
    return _INVISIBLE.sub(
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


def is_runnable(cell: dict[str, Any]) -> bool:
    return cell.get("cell_type") == "code" and bool(source_of(cell).strip())


def first_line(cell: dict[str, Any], width: int = WIDTH) -> str:
    line = next((line.strip() for line in source_of(cell).splitlines() if line.strip()), "")
    return line if len(line) <= width else line[: width - 1] + "…"


def inject(notebook: dict[str, Any], parameters: dict[str, Any]) -> bool:
    """Insert a cell with the values after the defaults, else at the top; return whether there are defaults.

    The values of an earlier run are replaced.
    """
    cells = [cell for cell in notebook["cells"] if INJECTED not in tags_of(cell)]
    place = parameters_cell(cells, parameters)
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


def parameters_cell(cells: list[dict[str, Any]], names: Iterable[str]) -> int:
    """Return the number of the cell after which values are set, from 1; 0 for the top.

    It is the tagged one, else the first that reads or sets one of the names, if it only sets plain values.
    """
    for number, cell in enumerate(cells, 1):
        if PARAMETERS in tags_of(cell):
            return number
    wanted = set(names)
    for number, cell in enumerate(cells, 1):
        if cell.get("cell_type") == "code" and _mentions(source_of(cell), wanted):
            return number if wanted & set(_plain_names(source_of(cell))) else 0
    return 0


NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What parsing raises for text that is not Python, or is nested too deeply."""


def _mentions(source: str, names: set[str]) -> bool:
    """Return whether a cell reads or sets one of the names; any word counts in what is not plain Python."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except NOT_PYTHON:
        return not names.isdisjoint(re.findall(r"\w+", source))
    return any(isinstance(node, ast.Name) and node.id in names for node in nodes)


def _plain_names(source: str) -> list[str]:
    """Return the names that a cell sets, if it does nothing but set names to values without any in them."""
    try:
        body = ast.parse(source).body
    except NOT_PYTHON:
        return []
    found = []
    for one in body:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            continue  # text
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        value = one.value if isinstance(one, (ast.Assign, ast.AnnAssign)) else None
        if value is None or any(isinstance(node, ast.Name) for node in ast.walk(value)):
            return []
        for target in targets:
            if not isinstance(target, ast.Name):
                return []
            found.append(target.id)
    return found


def literal(value: Any) -> str:
    """Return the value as a Python literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def clear_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook without the results of an earlier run."""
    metadata = {key: value for key, value in notebook["metadata"].items() if key not in ("widgets", STATE)}
    cells = [
        {**cell, "outputs": [], "execution_count": None} if cell.get("cell_type") == "code" else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "metadata": metadata, "cells": cells}


def merge_streams(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with each cell's printed text joined, as a terminal would show it.

    The original stays as it is, because a live kernel refers to outputs by index.
    """
    cells = [
        {**cell, "outputs": _merge_outputs(cell["outputs"])} if cell.get("cell_type") == "code" else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def _merge_outputs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for stream, group in itertools.groupby(outputs, lambda output: output.get("name")):
        pieces = list(group)
        if stream and all(piece["output_type"] == "stream" for piece in pieces):
            pieces = [{**pieces[0], "text": render_text("".join(piece["text"] for piece in pieces))}]
        found += pieces
    return found


def render_text(text: str) -> str:
    """Return text as a terminal shows it after carriage returns, with colours.

    A line with other control sequences stays as it is.
    """
    if "\r" not in text:
        return text
    pen: Pen = ()
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if "\r" in line and "\x1b" not in TERMINAL_PIECES.sub("", line):
            line, pen = _render_line(line, pen)
        else:
            pen = functools.reduce(_add_colour, COLOUR.findall(line), pen)
        lines.append(line)
    return "\n".join(lines)


def _render_line(line: str, before: Pen) -> tuple[str, Pen]:
    """Return the line as finally shown, and the colours after it."""
    at, pen = 0, before
    shown: list[tuple[Pen, str]] = []  # each character with its colours
    for piece in TERMINAL_PIECES.finditer(line):
        kind, value = piece.lastgroup, piece[0]
        if kind == "colour":
            pen = _add_colour(pen, value)
        elif kind == "move":
            at = 0 if value == "\r" else max(at - 1, 0)
        elif kind == "erase":
            shown = [((), " ")] * at if value == "\x1b[2K" else shown[:at]
        else:
            shown[at : at + len(value)] = [(pen, letter) for letter in value]
            at += len(value)
    return _join_coloured([*shown, (pen, "")], before), pen


def _add_colour(pen: Pen, colour: str) -> Pen:
    """Add a colour sequence; a reset clears the others."""
    if not colour.strip("\x1b[0;m"):
        return ()
    kept = () if re.match(r"\x1b\[0*;", colour) else (one for one in pen if one != colour)
    return (*kept, colour)


def _join_coloured(shown: list[tuple[Pen, str]], pen: Pen) -> str:
    joined = ""
    for after, text in shown:
        is_more = after[: len(pen)] == pen
        joined += ("".join(after[len(pen) :]) if is_more else "\x1b[0m" + "".join(after)) + text
        pen = after
    return joined


# Packages that the image lacks


def install_missing(*packages: str) -> None:
    """Install the packages that cannot be imported, for this job only."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if not missing:
        return
    say(f"installing {', '.join(missing)}, missing from {sys.executable}")
    target = Path(PACKAGES).absolute()
    done = _install(missing, target)
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        last = lines[-1] if lines else ""
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), last)
        hint = "choose another image or --python, or give the job access to a package index"
        stop(f"cannot install {', '.join(missing)}: {reason}; {hint}")
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    prepend_path("JUPYTER_PATH", target / "share" / "jupyter")
    if "ipykernel" in missing:
        prepend_path("PYTHONPATH", target)


def check_imports(*modules: str) -> None:
    """Import the modules, so that broken packages are reported before the first cell runs."""
    for unused in UNUSED:
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type]
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as err:  # any dependency may raise anything
            reason = _error_line(type(err).__name__, str(err))
            stop(f"{sys.executable} cannot import {module}: {reason}; choose another image or --python")


def _install(names: list[str], target: Path) -> subprocess.CompletedProcess[str]:
    """Install with pip into a folder, which works in externally managed environments too."""
    words = ["install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    words += ["--target", str(target), *names]
    return subprocess.run(
        [sys.executable, "-m", "pip", *words],
        env={**_where_pip_is(), "PIP_USER": "0", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _where_pip_is() -> dict[str, str]:
    """Return the environment in which this Python finds pip, which is unpacked where it is not installed."""
    if importlib.util.find_spec("pip"):
        return dict(os.environ)
    wheel = next(_bundled_pips(), None)
    if wheel is None:
        stop(f"cannot install jupyter, missing from {sys.executable}, which has neither pip nor venv")
    folder = os.path.abspath(PIP)
    shutil.unpack_archive(wheel, folder, "zip")  # in a tenth of the time that a virtual environment takes
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{path}" if path else folder}


def _bundled_pips() -> Iterator[Path]:
    """Yield the wheels from which this Python puts pip into virtual environments."""
    spec = importlib.util.find_spec("ensurepip")
    bundled = [
        os.path.join(folder, "_bundled") for folder in (spec and spec.submodule_search_locations) or ()
    ]
    for folder in (sysconfig.get_config_var("WHEEL_PKG_DIR"), *bundled, "/usr/share/python-wheels"):
        if folder:
            yield from Path(folder).glob("pip-*.whl")


def prepend_path(variable: str, path: Path) -> None:
    """Put a path first in an environment variable."""
    before = filter(None, os.environ.get(variable, "").split(os.pathsep))
    os.environ[variable] = os.pathsep.join(dict.fromkeys([str(path), *before]))


def set_jupyter_folders() -> None:
    """Keep Jupyter out of the user's home folder, unless the image sets its folders."""
    Path(JUPYTER_DIRS).mkdir(exist_ok=True)
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ.setdefault(variable, os.path.abspath(os.path.join(JUPYTER_DIRS, variable.lower())))
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")


# Results


class ResultWriter:
    """Writes results to the output folder, never over files that the notebook wrote itself."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder, self.stem = folder, stem
        self._own: dict[str, tuple[str, tuple[int, ...]]] = {}  # digest and stamp of what was written last
        self._numbers: dict[str, int] = {}
        self._adopt()

    def write(self, extension: str, content: bytes) -> str:
        """Write a result unless it is unchanged; return its name."""
        path, fresh = self._place(extension), digest(content)
        if not path.exists() or path.name not in self._own or self._own[path.name][0] != fresh:
            with replacing(path) as file:
                file.write(content)
            self._own[path.name] = fresh, _stamp(path)
        return path.name

    def _place(self, extension: str) -> Path:
        for number in itertools.count(self._numbers.get(extension, 0)):
            path = self.folder / f"{self.stem}{name_suffix(number)}{extension}"
            if not os.path.lexists(path) or self._is_own(path):
                self._numbers[extension] = number
                return path
            say(f"keeping {path.name}, which the notebook wrote; the result gets another name")
        raise AssertionError("numbers do not end")

    def _is_own(self, path: Path) -> bool:
        """Return whether the file is as we wrote it; a mounted storage may change its time."""
        if path.name not in self._own or not path.is_file():
            return False
        written, stamp = self._own[path.name]
        return stamp == _stamp(path) or written == digest_of(path)

    def _adopt(self) -> None:
        """Take over the results of an earlier attempt of the job, so that they are replaced."""
        for number in itertools.count():
            path = self.folder / f"{self.stem}{name_suffix(number)}.ipynb"
            if not path.is_file():
                return
            results = _results_of(path)
            for own in () if results is None else (path, *(self.folder / name for name in results)):
                if own.parent == self.folder and own.is_file():
                    self._own[own.name] = digest_of(own), _stamp(own)


def name_suffix(number: int) -> str:
    """Return the text between the notebook's name and a result's extension."""
    return "" if number == 0 else f".{EXECUTED}" if number == 1 else f".{EXECUTED}-{number}"


def _results_of(path: Path) -> list[str] | None:
    """Return the files that an executed notebook lists; None for any other file."""
    try:
        note = json.loads(path.read_bytes())["metadata"][STATE]
        return [name for name in note.get("files", ()) if isinstance(name, str)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    """Return a file's digest without loading it whole."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# The run


class NotebookRun:
    """The run of one notebook."""

    def __init__(self, options: argparse.Namespace, notebook: Any, folder: Path) -> None:
        self.options, self.notebook = options, notebook
        self.stem = Path(options.file).stem
        self.results = ResultWriter(folder, self.stem)
        self.total = sum(map(is_runnable, notebook.cells))
        self.number = self.failed = 0
        self.name = f"{self.stem}.ipynb"
        self.save_error = ""  # why the last save failed
        self._save_took = self._saved = 0.0

    def execute(self, kernel: str) -> None:
        """Run every cell in turn; raise when one ends the run."""
        try:
            with self._started(kernel) as client:
                try:
                    self._cells(client)
                except BaseException:
                    client.shutdown_kernel = "immediate"  # a busy kernel would be waited for
                    _synchronous(_cancel_tasks)()
                    self.save()
                    raise
        except CellFailed as err:
            say_detail(self._failure_text())
            raise err from None

    @contextlib.contextmanager
    def _started(self, kernel: str) -> Iterator[Any]:
        """Start the kernel; again if it dies at once, as another process may have taken its ports."""
        for number in range(1, KERNEL_STARTS + 1):
            with contextlib.ExitStack() as stack:
                sockets = tempfile.mkdtemp(prefix="kernel-")
                stack.callback(shutil.rmtree, sockets, ignore_errors=True)
                client = self._client(kernel, sockets)
                try:
                    stack.enter_context(client.setup_kernel())
                except RuntimeError as err:
                    if "died" in str(err) and number < KERNEL_STARTS:
                        continue
                    stop(f"cannot start kernel {kernel}: {err}")
                client.km.cleanup_connection_file()  # both sides have read it, and a kill would leave it
                yield client
                return

    def _client(self, kernel: str, sockets: str) -> Any:
        from jupyter_client.kernelspec import get_kernel_spec
        from nbclient import NotebookClient
        from traitlets.config import Config

        has_ipykernel = any("ipykernel" in word for word in get_kernel_spec(kernel).argv)
        client = NotebookClient(
            self.notebook,
            timeout=self.options.timeout_per_cell,
            iopub_timeout=OUTPUT_SECONDS,
            kernel_name=kernel,
            allow_errors=self.options.allow_errors,
            # without the warning that it listens on loopback only
            extra_arguments=["--log-level=ERROR"] if has_ipykernel else [],
            config=Config(KernelManager=private_transport(sockets) if has_ipykernel else {}),
            resources=self.resources(),
        )
        client.reset_execution_trackers()
        return client

    def _cells(self, client: Any) -> None:
        info = client.wait_for_reply(client.kc.kernel_info())
        if info and "language_info" in info["content"]:
            self.notebook.metadata["language_info"] = info["content"]["language_info"]
        for index, cell in enumerate(self.notebook.cells):
            if is_runnable(cell):
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
            reason = "the kernel died, often from lack of memory (see --memoryMB)"
            self._fail(cell, index, CellFailed(reason, CELL_FAILED, "DeadKernel"))
        error = next((output for output in cell.outputs if output.output_type == "error"), None)
        if error and EXPECTED not in tags_of(cell):
            self.failed += 1
            line = _error_line(error.ename, error.evalue)
            say(f"cell {self.number} of {self.total} failed, which is allowed: {line}")

    async def _shown(self, client: Any, cell: Any, index: int) -> None:
        """Run a cell and save its output meanwhile, as it may take days or never finish."""
        saving = asyncio.ensure_future(self._save_often())
        try:
            await client.async_execute_cell(cell, index)
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(max(SAVE_SECONDS, SAVE_BACKOFF * self._save_took))
            self.save()

    def _fail(self, cell: Any, index: int, failure: CellFailed) -> NoReturn:
        """Record the failure, also in the cell's outputs if the kernel could not."""
        if failure.kind:
            shown = {"ename": failure.kind, "evalue": failure.reason, "traceback": [failure.reason]}
            cell.outputs = [*cell.outputs, _node({"output_type": "error", **shown})]
        self._note("failed", index, failure.reason)
        say(f"cell {self.number} of {self.total} failed: {failure.reason}")
        raise failure

    def _failure_text(self) -> str:
        """Return the failed cell's source and traceback."""
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
        """Record that the job was stopped."""
        index = self.notebook.metadata.get(STATE, {}).get("index")
        self._note("stopped", index, "the job was stopped")

    def save(self, is_last: bool = True) -> None:
        """Save the notebook; skip saves between cells while saving is slow.

        A failed save does not end the run, as the storage may recover.
        """
        began = time.monotonic()
        if not is_last and self._save_took > 1 and began - self._saved < SAVE_BACKOFF * self._save_took:
            return
        import nbformat

        text = nbformat.writes(_node(merge_streams(self.notebook)))
        try:
            self.name = self.write(".ipynb", text)
        except OSError as err:
            reason = _reason(err)
            if reason != self.save_error:
                say(f"cannot save the notebook: {reason}; the run continues and will try again")
            self.save_error = reason
        else:
            self.save_error = ""
        self._saved = time.monotonic()
        self._save_took = self._saved - began

    def convert(self) -> int:
        """Convert the notebook to the requested formats; return the number of failures."""
        wrote, failures = [self.name], 0
        self.notebook = _node(merge_streams(self.notebook))
        for name in self.options.to:
            try:
                wrote.append(FORMATS[name](self))
            except Exception as err:  # converters raise anything, and the other formats still follow
                failures += 1
                say(f"error: cannot convert to {name}: {_error_line(type(err).__name__, str(err))}")
        if wrote[1:]:
            self.notebook.metadata[STATE]["files"] = wrote
            self.save()
        say(f"wrote {', '.join(wrote)}")
        return failures

    def resources(self) -> dict[str, Any]:
        return {"metadata": {"name": self.stem, "path": str(Path(self.options.file).absolute().parent)}}

    def write(self, extension: str, content: str) -> str:
        return self.results.write(extension, content.encode("utf-8", "surrogatepass"))


def _synchronous(function: Any) -> Any:
    """Wrap a coroutine function so that it runs in nbclient's event loop."""
    from nbclient.util import run_sync

    return run_sync(function)


async def _cancel_tasks() -> None:
    """Cancel tasks that wait for the kernel, which would complain once it is gone."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    for task in (await asyncio.wait(left, timeout=5))[0] if left else ():
        if not task.cancelled():
            task.exception()


def _node(value: dict[str, Any]) -> Any:
    from nbformat import from_dict

    return from_dict(value)


def _error_line(ename: str, evalue: str) -> str:
    lines = CONTROL.sub("", evalue).strip().splitlines()
    return f"{ename}: {lines[0][:300]}" if lines else ename


def _reason(err: OSError) -> str:
    return err.strerror or str(err)


@contextlib.contextmanager
def replacing(path: Path, folder: int | None = None) -> Iterator[Any]:
    """Open a file that replaces ``path``, in an open folder, atomically when it is complete."""
    part = path.with_name(f".pai-part-{int(time.time()):08x}{secrets.token_hex(4)}")
    try:
        with open(part, "xb", opener=lambda name, how: os.open(name, how, 0o666, dir_fd=folder)) as file:
            yield file
        os.replace(part, path, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)


# Formats


def _html_text(run: NotebookRun) -> str:
    from nbconvert.exporters import HTMLExporter

    exporter = HTMLExporter()
    if hasattr(exporter, "embed_images"):
        exporter.embed_images = True  # the page moves to another folder
    return str(exporter.from_notebook_node(run.notebook, resources=run.resources())[0])


def _script(run: NotebookRun) -> str:
    from nbconvert.exporters import ScriptExporter

    body, resources = ScriptExporter().from_notebook_node(run.notebook, resources=run.resources())
    return run.write(str(resources.get("output_extension") or ".txt"), body)


def _pdf(run: NotebookRun) -> str:
    if _browser():
        return run.results.write(".pdf", _print_page(run))
    from nbconvert.exporters import PDFExporter

    content, _ = PDFExporter().from_notebook_node(run.notebook, resources=run.resources())
    return run.results.write(".pdf", bytes(content))


def _print_page(run: NotebookRun) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        page, made = Path(name, "page.html"), Path(name, "page.pdf")
        page.write_text(_html_text(run), encoding="utf-8", errors="surrogatepass")
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        words += ["--no-pdf-header-footer", f"--user-data-dir={name}/profile", f"--print-to-pdf={made}"]
        done = subprocess.run([str(_browser()), *words, page.as_uri()], capture_output=True, timeout=300)
        if not made.exists():
            raise RuntimeError(f"the browser exited with {done.returncode} and printed nothing")
        return made.read_bytes()


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


FORMATS = {"html": lambda run: run.write(".html", _html_text(run)), "pdf": _pdf, "script": _script}
"""Formats besides the executed notebook, which is always written."""


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


def kernel_for(notebook: Any, options: argparse.Namespace) -> str:
    """Return the requested kernel, or the notebook's; refuse parameters for another language than Python."""
    from jupyter_client.kernelspec import KernelSpecManager, get_kernel_spec

    name = str(options.kernel or metadata_of(notebook, "kernelspec").get("name") or "python3")
    known = sorted(KernelSpecManager().find_kernel_specs())
    if name not in known:
        there = f"this image has: {', '.join(known)}" if known else "this image has none"
        stop(f"no kernel named {name!r}: {there}; choose one with --kernel NAME")
    language = get_kernel_spec(name).language or "python"
    if options.parameters and language.lower() != "python":
        stop(f"-p works for Python notebooks only, and kernel {name!r} is for {language}")
    return name


def private_transport(folder: str) -> dict[str, str]:
    """Return settings for Unix sockets: no other process can take them, no other user can listen in."""
    address = os.path.join(folder, "kernel")
    is_possible = os.name == "posix" and len(os.fsencode(address)) < SOCKET_PATH_BYTES
    return {"transport": "ipc", "ip": address} if is_possible else {}


def language_of(notebook: dict[str, Any]) -> str:
    """Return the language in the notebook's metadata; Python by default."""
    spec, info = metadata_of(notebook, "kernelspec"), metadata_of(notebook, "language_info")
    return str(spec.get("language") or info.get("name") or "python")


def metadata_of(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping from the notebook's metadata; empty if it is not one."""
    found = notebook.get("metadata", {}).get(name)
    return found if isinstance(found, dict) else {}


def prepare_notebook(options: argparse.Namespace, written: dict[str, Any]) -> Any:
    """Return the notebook to run, from the content of its file, with its parameters."""
    import nbformat

    is_old = written.get("nbformat") != 4
    if not is_old:
        written["nbformat_minor"] = minor_of(written)
    try:
        notebook = clear_outputs(nbformat.reads(json.dumps(written), as_version=4))
        if options.parameters and not inject(notebook, options.parameters) and is_old:
            say(f"no cell is tagged {PARAMETERS!r}: the parameters are set at the top")
        found = nbformat.from_dict(notebook)
        nbformat.validate(found, relax_add_props=True)  # as the converters do at the end
        return found
    except Exception as err:  # nbformat raises anything for an invalid notebook
        stop(f"cannot read {options.file} as a notebook: {_error_line(type(err).__name__, str(err))}")


def minor_of(notebook: dict[str, Any]) -> int:
    """Return the minor version of a notebook of format 4, or the one its cells imply."""
    minor = notebook.get("nbformat_minor")
    if isinstance(minor, int) and not isinstance(minor, bool) and minor >= 0:
        return minor
    return 5 if any("id" in cell for cell in notebook["cells"]) else 4


def main(words: list[str]) -> int:
    options = arguments(words)
    folder = _output_folder()
    signal.signal(signal.SIGTERM, _on_term)
    if "pdf" in options.to and not (_browser() or shutil.which("xelatex")):
        stop("a PDF needs chromium or xelatex, and this image has neither; leave out `--to pdf`")
    set_jupyter_folders()
    with open(options.file, encoding="utf-8", errors="surrogatepass") as file:
        written = json.load(file)
    is_python = language_of(written).lower() == "python"
    needs_ipykernel = options.kernel == "python3" if options.kernel else is_python
    install_missing("nbformat", "nbclient", "nbconvert", *(["ipykernel"] if needs_ipykernel else []))
    check_imports("nbformat", "nbclient", *(["nbconvert.exporters"] if options.to else []))
    notebook = prepare_notebook(options, written)
    run = NotebookRun(options, notebook, folder)
    kernel = kernel_for(notebook, options)
    say(f"{run.total} cell{'s' * (run.total != 1)}, kernel {kernel}")
    return _run_and_save(run, kernel)


def _output_folder() -> Path:
    folder = Path(os.environ.get("PAI_OUTPUT_DIR") or os.curdir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        stop(f"cannot create the output folder: {_reason(err)}")
    return folder


def _run_and_save(run: NotebookRun, kernel: str) -> int:
    """Run the notebook, save it in any case, and return the exit code."""
    code = 0
    try:
        run.execute(kernel)
    except CellFailed as err:
        code = err.code
    except RunStopped:
        run.stopped()
        code = STOPPED
        say(f"stopped in cell {run.number} of {run.total}")
    run.save()
    failures = 0 if run.save_error else run.convert()
    if run.failed:
        say(f"{run.failed} of {run.total} cell{'' if run.total == 1 else 's'} failed, which is allowed")
    if run.save_error:
        say(f"error: cannot save the result: {run.save_error}")
        return code or NOT_SAVED
    return code or (NOT_CONVERTED if failures else 0)


def _on_term(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise RunStopped(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
