"""Commands run for a notebook: each a process of its own, whose output is shown as it comes."""

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
from dataclasses import dataclass
from typing import Any

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.settings.config import VARIABLES, Settings
from openpai_tasks.settings.trust import Fenced

Publish = Callable[[dict[str, str]], None]
"""What shows a bundle of MIME types."""

DISPLAY = "OPENPAI_DISPLAY"
"""The variable that tells the command which pipe takes pictures."""

# As the script `pai`, but of this very python; the folder it is started in is no place for modules.
PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from openpai_tasks.__main__ import main; main()"

INTERRUPTED = 130
ERROR = "error: "
PIECE = 1 << 16
LOOK = 0.2  # seconds: a process that has ended may have left others behind that hold its pipes
HELD = 20  # lines after an error that may belong to it


class Failed(PaiError):
    """A command that failed, with its exit code; a notebook shows it in one line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def _render_traceback_(self) -> list[str]:
        return [f"{ERROR}{self}"]


@dataclass(frozen=True)
class Shown:
    """A table that a command has shown: the values, and the bundle of MIME types made of them."""

    rows: list[dict[str, Any]]
    data: dict[str, str]


def run(words: Sequence[str], publish: Publish) -> Shown | None:
    """Run `pai WORDS`, show what it says, and return its last table."""
    command = _Command(words, publish)
    code = command.until_over()
    if code:
        raise Failed(_last_words(words, command.talk.error(), code), code)
    return command.shown


def settings(**flags: Any) -> Settings:
    """The settings as a command in this folder finds them, in the project's tasks.py and invoke.yaml too."""
    done = _start(["config.show", "--output", "json"])
    out, said = done.communicate()
    if done.returncode:
        talk = Talk()
        talk.feed(said.decode(errors="replace"))
        raise Failed(_last_words(["config.show"], talk.error(), done.returncode), done.returncode)
    rows = json.loads(out)
    refused = [line for row in rows for line in row.get("not_trusted", ())]
    if refused:
        hint = "this counts only in a folder that you trust: `%pai config.trust`"
        raise Failed(f"{'; '.join(refused)}; {hint}", ConfigError.exit_code)
    found = {VARIABLES[row["name"]].field: _value(row) for row in rows}
    given = {name: value for name, value in flags.items() if value is not None}
    own = Settings.load(None, given).own("cluster-alias")
    loaded = Settings.load(None, {**found, **given})  # as flags, values of the project look like the user's
    return dataclasses.replace(loaded, overruled={"cluster-alias": own})


def _value(row: dict[str, Any]) -> Any:
    return Fenced.within(row["within"], row["value"]) if "within" in row else row["value"]


def _last_words(words: Sequence[str], error: str, code: int) -> str:
    if code == INTERRUPTED:
        return "interrupted"
    return f"{error or f'`pai {words[0]}` failed'} (exit code {code})"


def _start(words: Sequence[str], pipe: int | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own: who interrupts the kernel must not interrupt it a second time."""
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
    """A running command: what it prints, says and draws, each shown when it comes."""

    def __init__(self, words: Sequence[str], publish: Publish) -> None:
        self.shown: Shown | None = None
        self.talk = Talk()
        self._publish = publish
        self._stream = sys.stdout
        self._drawn = b""
        self._output = codecs.getincrementaldecoder("utf-8")("replace")
        self._said = codecs.getincrementaldecoder("utf-8")("replace")
        self._pictures, pipe = os.pipe()
        try:
            self._process = _start(words, pipe)
        finally:
            os.close(pipe)

    def until_over(self) -> int:
        """Show everything until it ends; the first interrupt is passed on to it, the second one ends it."""
        out, err = self._process.stdout, self._process.stderr
        assert out and err
        with out, err, open(self._pictures, "rb", 0) as drawn, selectors.DefaultSelector() as waiting:
            for stream, take in ((out, self._print), (err, self._say), (drawn, self._draw)):
                waiting.register(stream, selectors.EVENT_READ, take)
            self._watch(waiting)
        self._show(sys.stderr, self.talk.rest())
        self._show(sys.stdout, "")
        return self._process.wait()

    def _watch(self, waiting: selectors.BaseSelector) -> None:
        signals = [signal.SIGKILL, signal.SIGINT]
        while waiting.get_map():
            try:
                if not self._look(waiting) and self._process.poll() is not None:
                    return
            except KeyboardInterrupt:
                if not signals:
                    raise
                self._process.send_signal(signals.pop())

    def _look(self, waiting: selectors.BaseSelector) -> bool:
        """Take what has come; what was printed goes before what was drawn."""
        ready = [key for key, _ in waiting.select(LOOK)]
        for key in [key for key in ready if key.data != self._draw] or ready:
            data = os.read(key.fd, PIECE)
            key.data(data)
            if not data:
                waiting.unregister(key.fileobj)
        return bool(ready)

    def _print(self, data: bytes) -> None:
        self._show(sys.stdout, self._output.decode(data, final=not data))

    def _say(self, data: bytes) -> None:
        self._show(sys.stderr, self.talk.feed(self._said.decode(data, final=not data)))

    def _draw(self, data: bytes) -> None:
        *whole, self._drawn = (self._drawn + data).split(b"\n")
        for line in whole:
            self.shown = Shown(**json.loads(line))
            self._show(sys.stdout, "")
            self._publish(self.shown.data)

    def _show(self, stream: Any, text: str) -> None:
        """Write it; what went to the other stream before is shown before."""
        if stream is not self._stream:
            self._stream.flush()
            self._stream = stream
        stream.write(text)


class Talk:
    """What a command says on stderr, line by line; its last error is kept back, for the cell to fail with."""

    def __init__(self) -> None:
        self._part = ""
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """What of it can be shown now."""
        *lines, self._part = (self._part + text).split("\n")
        return "".join(self._take(f"{line}\n") for line in lines)

    def _take(self, line: str) -> str:
        if line.startswith(ERROR):
            before, self._held = "".join(self._held), [line]
            return before
        if not self._held:
            return line
        self._held.append(line)
        if len(self._held) <= HELD:
            return ""
        before, self._held = "".join(self._held), []
        return before

    def rest(self) -> str:
        """What is still to be shown at the end: all but the line that the cell fails with."""
        return "".join(self._held[1:]) + self._part

    def error(self) -> str:
        return self._held[0].removeprefix(ERROR).strip() if self._held else ""
