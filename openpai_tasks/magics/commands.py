"""Run commands for a notebook, each in its own process, and show their output as it arrives."""

from __future__ import annotations

import codecs
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from openpai_tasks import exits
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings import config
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.trust import ConfinedSources

Publish = Callable[[dict[str, str]], None]
"""Displays a bundle of MIME types."""

DISPLAY = "OPENPAI_DISPLAY"
"""The variable with the number of the pipe for HTML."""

# Like the script `pai`, but with this Python; modules are not imported from the current folder.
PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from openpai_tasks.__main__ import main; main()"

ERROR = "error: "
CHUNK_BYTES = 1 << 16
POLL_SECONDS = 0.2  # an ended process may have left others behind that keep its pipes open
HELD_LINES = 20  # lines after an error that may belong to it


class Failed(PaiError):
    """Raised when a command fails, with its exit code; notebooks show it in one line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def _render_traceback_(self) -> list[str]:
        return [f"{ERROR}{self}"]


@dataclass(frozen=True)
class TableView:
    """A table that a command has shown: its rows, and their bundle of MIME types."""

    rows: list[dict[str, Any]]
    data: dict[str, str]


def run(words: Sequence[str], publish: Publish) -> TableView | None:
    """Run `pai WORDS`, show its output, and return its last table."""
    command = _Command(words, publish)
    code = command.wait()
    if code:
        raise Failed(_error_message(words, command.errors.error(), code), code)
    return command.shown


def settings(**flags: Any) -> Settings:
    """Load the settings of a command in this folder, including the project's tasks.py and invoke.yaml."""
    done = _start(["config.show", "--output", "json"])
    out, err = done.communicate()
    if done.returncode:
        errors = ErrorStream()
        errors.feed(err.decode(errors="replace"))
        raise Failed(_error_message(["config.show"], errors.error(), done.returncode), done.returncode)
    rows = json.loads(out)
    refused = [line for row in rows for line in row.get("not_trusted", ())]
    if refused:
        hint = "this needs a trusted folder: `%pai config.trust` trusts it"
        raise Failed(f"{'; '.join(refused)}; {hint}", ConfigError.exit_code)
    found = {config.find(row["name"]).field: _value(row) for row in rows}
    given = {name: value for name, value in flags.items() if value is not None}
    own = Settings.load(None, given).own("cluster-alias")
    # passed as flags, the project's values look like the user's
    loaded = Settings.load(None, {**found, **given})
    return dataclasses.replace(loaded, overruled={"cluster-alias": own})


def _value(row: dict[str, Any]) -> Any:
    return ConfinedSources.within(row["within"], row["value"]) if "within" in row else row["value"]


def _error_message(words: Sequence[str], error: str, code: int) -> str:
    if code == exits.INTERRUPTED:
        return "interrupted"
    return f"{error or f'`pai {words[0]}` failed'} (exit code {code})"


def _start(words: Sequence[str], pipe: int | None = None) -> subprocess.Popen[bytes]:
    """Start a command in its own session, so that interrupting the kernel does not interrupt it directly."""
    return subprocess.Popen(
        [sys.executable, "-u", "-X", "utf8", "-c", PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, DISPLAY: str(pipe)} if pipe is not None else None,
        pass_fds=() if pipe is None else (pipe,),
        start_new_session=True,
    )


class _Command:
    """A running command whose stdout, stderr and HTML are shown as they arrive."""

    def __init__(self, words: Sequence[str], publish: Publish) -> None:
        self.shown: TableView | None = None
        self.errors = ErrorStream()
        self._publish = publish
        self._stream = sys.stdout
        self._partial_line = b""
        self._output_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._error_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._html_pipe, pipe = os.pipe()
        try:
            self._process = _start(words, pipe)
        finally:
            os.close(pipe)

    def wait(self) -> int:
        """Show everything until it ends; pass the first interrupt on, and kill it on the second."""
        out, err = self._process.stdout, self._process.stderr
        assert out and err
        with out, err, open(self._html_pipe, "rb", 0) as drawn, selectors.DefaultSelector() as waiting:
            for stream, take in ((out, self._print), (err, self._say), (drawn, self._draw)):
                waiting.register(stream, selectors.EVENT_READ, take)
            self._watch(waiting)
        self._show(sys.stderr, self.errors.rest())
        self._show(sys.stdout, "")
        return self._process.wait()

    def _watch(self, waiting: selectors.BaseSelector) -> None:
        signals = [signal.SIGKILL, signal.SIGINT]
        while waiting.get_map():
            try:
                has_ended = self._process.poll() is not None  # before the look, which finds all of its output
                if not self._read_ready(waiting) and has_ended:
                    return
            except KeyboardInterrupt:
                if not signals:
                    raise
                self._process.send_signal(signals.pop())

    def _read_ready(self, waiting: selectors.BaseSelector) -> bool:
        """Process what has arrived, printed text before HTML."""
        ready = [key for key, _ in waiting.select(POLL_SECONDS)]
        for key in [key for key in ready if key.data != self._draw] or ready:
            data = os.read(key.fd, CHUNK_BYTES)
            key.data(data)
            if not data:
                waiting.unregister(key.fileobj)
        return bool(ready)

    def _print(self, data: bytes) -> None:
        self._show(sys.stdout, self._output_decoder.decode(data, final=not data))

    def _say(self, data: bytes) -> None:
        self._show(sys.stderr, self.errors.feed(self._error_decoder.decode(data, final=not data)))

    def _draw(self, data: bytes) -> None:
        *whole, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in whole:
            self.shown = TableView(**json.loads(line))
            self._show(sys.stdout, "")
            self._publish(self.shown.data)

    def _show(self, stream: Any, text: str) -> None:
        """Write text, after flushing what went to the other stream before."""
        if stream is not self._stream:
            self._stream.flush()
            self._stream = stream
        stream.write(text)


class ErrorStream:
    """The lines of a command's stderr; holds back its last error, which the cell fails with."""

    def __init__(self) -> None:
        self._part = ""
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """Add text, and return what can be shown now."""
        *lines, self._part = (self._part + text).split("\n")
        return "".join(self._take(f"{line}\n") for line in lines)

    def _take(self, line: str) -> str:
        if line.startswith(ERROR):
            before, self._held = "".join(self._held), [line]
            return before
        if not self._held:
            return line
        self._held.append(line)
        if len(self._held) <= HELD_LINES:
            return ""
        before, self._held = "".join(self._held), []
        return before

    def rest(self) -> str:
        """Return what remains to be shown at the end, without the line that the cell fails with."""
        return "".join(self._held[1:]) + self._part

    def error(self) -> str:
        return self._held[0].removeprefix(ERROR).strip() if self._held else ""
