"""TensorBoard for jobs: a server on this machine, and a folder with the jobs' event files, kept up to date.

The server listens on 127.0.0.1 below a random path, which other users of the machine cannot guess; they could
read it on a command line, so it is sent to the server's standard input. The server ends with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from openpai_tasks.backends.base import Backend, Say
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.files.removal import discard
from openpai_tasks.loopback import lock
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs import outputs
from openpai_tasks.sdk.sweeps import choosing
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.settings.home import home, make_private
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, Mounts, check_name
from openpai_tasks.text.plurals import name_some

if TYPE_CHECKING:
    from typing_extensions import Self

MARK = "tfevents"
"""What TensorBoard looks for in the names of files."""
USUAL_FOLDER = "tensorboard/"  # of the runtime; left out of the names of runs
RUNS = "runs"
START_SECONDS, END_SECONDS = 120.0, 5.0
LEAST_PAUSE, PAUSE_SHARE = 5.0, 10
"""Seconds between two looks at running jobs, at least so many times what a look takes."""


class EventFiles:
    """The event files of a job, in a folder of this machine: links to local ones, copies of others."""

    def __init__(self, name: str, job: JobInfo, place: Location, folder: Path, in_place: bool) -> None:
        self.name, self.job, self._place = name, job, place
        self._folder = folder / check_name(name, "the list of jobs")
        self._is_linked = in_place and isinstance(place.store, LocalStore)
        self._runs: dict[str, Path] = {}  # by the folder of their event files

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def update(self) -> None:
        """Add new files, and what was appended to those that were copied."""
        for path, entry in outputs.list_outputs(self.name, self._place).files.items():
            folder, _, file = path.rpartition("/")
            if MARK in file:
                run = self._runs.setdefault(folder, self._run(folder))
                try:
                    make_private(run)
                    self._add(entry, run / file)
                except (FileExistsError, NotADirectoryError, IsADirectoryError) as err:
                    raise PathError(
                        f"{self.name} has a run and an event file of the same name: {path}"
                    ) from err

    def _run(self, folder: str) -> Path:
        """Return the folder of a run: the first one has the name of the job."""
        return self._folder / folder.removeprefix(USUAL_FOLDER) if self._runs else self._folder

    def _add(self, entry: Entry, target: Path) -> None:
        if self._is_linked:
            with contextlib.suppress(FileExistsError):
                target.symlink_to(self._place.store.address(entry.path).removeprefix("file://"))
            return
        size = target.stat().st_size if target.exists() else 0
        if entry.size < size:  # the program has written it anew
            target.unlink()
            size = 0
        if entry.size > size:
            with open(target, "ab", opener=open_private) as file:
                for piece in self._place.store.read(entry.path, size, entry.size - size):
                    file.write(piece)


class TensorBoard:
    """A running TensorBoard for some jobs, also usable as a context manager."""

    def __init__(
        self,
        client: Backend,
        words: str | Sequence[str],
        mounts: Mounts = (),
        port: int = 0,
        say: Say = lambda line: None,
        records: Path | None = None,
        in_place: bool = True,
    ) -> None:
        """Start it for the jobs that the words stand for; ``records`` is the folder they are known in.

        Jobs without event files are named by ``say``; files of this machine are not copied if ``in_place``.
        """
        lock.check_port(port)
        if not is_installed():
            raise ConfigError("this needs TensorBoard: pip install 'openpai-tasks[tensorboard]'")
        self._client, self._say = client, say
        chosen = choosing.choose_jobs(client, words, records)
        self._folder = Path(tempfile.mkdtemp(dir=make_private(home() / "tensorboard")))
        make_private(self._folder / RUNS)
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self.missing: list[str] = []
        """The names of the jobs that had no event files at its start."""
        try:
            self._files = self._find(chosen, mounts, in_place)
            self.url = self._start(port)
        except BaseException:
            self.close()
            raise
        self._thread = threading.Thread(target=self._follow, name="tensorboard", daemon=True)
        self._thread.start()

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that have event files."""
        return [one.name for one in self._files if not one.is_empty]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Wait until the server ends, which it does not by itself."""
        if self._process and self._process.wait() and not self._closing.is_set():
            raise PaiError(f"TensorBoard has ended: {self._last_line()}")

    def close(self) -> None:
        """End the server, and remove its folder."""
        self._closing.set()
        if self._process:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.close()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
        discard(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, chosen: Sequence[choosing.ChosenJob], mounts: Mounts, in_place: bool) -> list[EventFiles]:
        """Return the jobs with their event files; raise if no job has any."""
        found, missing = list[EventFiles](), self.missing
        for one in chosen:
            job, place = outputs.output_folder(self._client, one.found, mounts)
            if place:
                files = EventFiles(one.name, job, place, self._folder / RUNS, in_place)
                files.update()
                found.append(files)
            if not place or files.is_empty:
                missing.append(one.name)
        if len(missing) == len(chosen):
            where = "write them to $PAI_OUTPUT_DIR/tensorboard"
            raise NotFound(f"no event files of TensorBoard in the output of {_name(missing)}: {where}", 404)
        if missing:
            self._say(f"no event files of TensorBoard in the output of {_name(missing)}")
        return found

    def _start(self, port: int) -> str:
        words = [sys.executable, "-m", "openpai_tasks.sdk.tensorboard_server"]
        with open(self._folder / "log", "wb", opener=open_private) as log:
            process = self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env=hidden_environment(),
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        assert process.stdin and process.stdout
        options = {"folder": str(self._folder), "port": port, "path": f"/{secrets.token_urlsafe(24)}"}
        process.stdin.write(f"{json.dumps(options)}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        url = process.stdout.readline().decode().strip() if ready else ""
        if not url:
            raise PaiError(f"TensorBoard did not start: {self._last_line()}")
        return url

    def _last_line(self) -> str:
        text = (self._folder / "log").read_text("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else f"no answer after {START_SECONDS:g} s"

    def _follow(self) -> None:
        """Look at running jobs again and again."""
        pause = LEAST_PAUSE
        while not self._closing.wait(pause):
            began = time.monotonic()
            for files in self._files:
                if not files.job.final and not self._closing.is_set():
                    try:
                        files.job = self._client.job(files.job.key)
                        files.update()
                    except (PaiError, OSError) as err:
                        self._say(f"warning: cannot update {files.name}: {err}")
            pause = max(LEAST_PAUSE, PAUSE_SHARE * (time.monotonic() - began))


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def is_installed() -> bool:
    """Whether TensorBoard can be started with this Python."""
    try:
        return find_spec("tensorboard.program") is not None
    except ModuleNotFoundError:
        return False


def _name(jobs: Sequence[str]) -> str:
    return f"{'job' if len(jobs) == 1 else 'jobs'} {name_some(jobs)}"
