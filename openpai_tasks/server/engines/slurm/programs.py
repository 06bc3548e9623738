"""Call the programs of Slurm, and read their output."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from openpai_tasks.errors import PaiError

log = logging.getLogger(__name__)

SECONDS = 20.0  # less than a command waits for the server to start
MOST_BYTES = 64 << 20  # of an answer: a hundred bytes for each job
MOST_OF_LINE = 300  # characters of an answer in a message
ID = re.compile(r"\d{1,12}([_+]\d{1,9})?", re.ASCII)
MOST_CANCELLED = 500  # jobs in one call of scancel
_DOWN = re.compile(
    r"unable to contact slurm|connection (refused|timed out|reset)|socket timed out|zero bytes were|"
    r"munge|authentication|controller.{0,80}(down|not respond)|communication|network is unreachable|"
    r"try again",
    re.IGNORECASE,
)
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SLURM_CONF", "TMPDIR", "TZ", "USER")
_QUEUE = "%i|%T|%r|%S|%N|%k|%Z"


class SlurmDown(PaiError):
    """Raised when the controller does not answer: later, it may."""


class SlurmRefusal(PaiError):
    """Raised when Slurm refuses a request."""


class QueueRow(NamedTuple):
    """A job, a component of a job, or an element of an array."""

    id: str  # 7, 7+1, 7_3
    state: str
    reason: str
    start: str  # when it started, or is expected to; N/A
    nodes: str
    comment: str
    folder: str  # its working directory


def run(words: Sequence[str], text: str = "", inherited: Sequence[int] = ()) -> str:
    """Run a program, which inherits these open files, and return its output.

    Raise SlurmDown or SlurmRefusal in one line.
    """
    try:
        done = subprocess.run(
            words,
            input=text.encode("utf-8", "surrogateescape"),
            capture_output=True,  # not in a file: Slurm does not notice that the disk is full
            timeout=SECONDS,
            check=False,
            env=variables(os.environ),
            pass_fds=inherited,
        )
    except subprocess.TimeoutExpired as err:
        raise SlurmDown(f"Slurm does not answer: {words[0]} took over {SECONDS:g} s") from err
    except OSError as err:
        raise SlurmRefusal(f"cannot run {words[0]}: {err.strerror}") from err
    if len(done.stdout) > MOST_BYTES:
        raise SlurmRefusal(f"Slurm: {words[0]} answered with more than {MOST_BYTES >> 20} MB")
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    errors = done.stderr.decode("utf-8", "replace")
    lines = [line.partition("error: ")[2] or line for line in errors.splitlines() if line.strip()]
    why = lines[-1][:MOST_OF_LINE] if lines else f"{words[0]} ended with exit code {done.returncode}"
    if _DOWN.search(errors):
        raise SlurmDown(f"Slurm does not answer: {why}")
    raise SlurmRefusal(f"Slurm: {why}")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Slurm needs, which it also shows to the jobs that are submitted."""
    return {name: environment[name] for name in _VARIABLES if name in environment}


def submit(script: str, inherited: Sequence[int] = ()) -> str:
    """Submit a batch script; return the job's id."""
    lines = run(["sbatch", "--parsable"], script, inherited).split("\n")  # a site may add other lines
    found = [
        match[1] for line in lines if (match := re.fullmatch(r"(\d{1,12})(;.*)?", line.strip(), re.ASCII))
    ]
    if not found:  # it may be in the queue, so it is looked for there before it is submitted again
        raise SlurmDown(f"sbatch answered without an id: {' '.join(lines)[:MOST_OF_LINE].strip()!r}")
    return found[-1]


def queue() -> dict[str, QueueRow]:
    """Return the user's jobs that wait, run, or ended not long ago, by id."""
    text = run(["squeue", "-h", "-r", "-u", str(os.getuid()), "--states=all", "-o", _QUEUE])
    return {row.id: row for row in _rows(text)}


def _rows(text: str) -> Iterable[QueueRow]:
    for line in text.split("\n"):
        cells = line.split("|", 6)
        if len(cells) == len(QueueRow._fields) and ID.fullmatch(cells[0]):
            yield QueueRow(*cells)


def cancel(ids: Collection[str], *options: str) -> None:
    """Remove jobs from the queue or kill them, or do with them what the options of ``scancel`` say.

    It is called once for many jobs, and goes on after those that have ended.
    """
    wanted = sorted(ids)
    for first in range(0, len(wanted), MOST_CANCELLED):
        try:
            run(["scancel", *options, *wanted[first : first + MOST_CANCELLED]])
        except SlurmRefusal as err:
            log.info("not all jobs could be stopped: %s", err)
