"""Call the programs of Slurm, and read their output."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from openpai_tasks.errors import PaiError

SECONDS = 20.0  # less than a command waits for the server to start
MOST_CANCELLED = 500  # jobs in one call of scancel
_DOWN = re.compile(
    r"unable to contact slurm|connection (refused|timed out|reset)|socket timed out|zero bytes were|"
    r"munge|authentication|controller.*(down|not respond)|communication|network is unreachable|try again",
    re.IGNORECASE,
)
_VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SLURM_CONF", "TMPDIR", "TZ", "USER")
_QUEUE = "%i|%T|%r|%S|%N|%k"


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


def run(words: Sequence[str], text: str = "") -> str:
    """Run a program, and return its output; raise SlurmDown or SlurmRefusal with its first line."""
    try:
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            env=variables(os.environ),
        )
    except subprocess.TimeoutExpired as err:
        raise SlurmDown(f"{words[0]} did not answer within {SECONDS:g} s") from err
    except OSError as err:
        raise SlurmRefusal(f"cannot run {words[0]}: {err.strerror}") from err
    if done.returncode == 0:
        return done.stdout
    lines = [line.partition("error: ")[2] or line for line in done.stderr.splitlines() if line.strip()]
    why = lines[-1] if lines else f"{words[0]} ended with exit code {done.returncode}"
    raise (SlurmDown if _DOWN.search(done.stderr) else SlurmRefusal)(f"Slurm: {why}")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Slurm needs, which it also shows to the jobs that are submitted."""
    return {name: environment[name] for name in _VARIABLES if name in environment}


def submit(script: str) -> str:
    """Submit a batch script; return the job's id."""
    return run(["sbatch", "--parsable"], script).strip().partition(";")[0]


def queue() -> dict[str, QueueRow]:
    """Return the user's jobs that wait, run, or ended not long ago, by id."""
    text = run(["squeue", "-h", "-r", "-u", getpass.getuser(), "--states=all", "-o", _QUEUE])
    return {row.id: row for row in _rows(text)}


def _rows(text: str) -> Iterable[QueueRow]:
    for line in text.splitlines():
        cells = line.split("|", 5)
        if len(cells) == len(QueueRow._fields):
            yield QueueRow(*cells)


def ask_to_stop(ids: Collection[str], is_batch: bool) -> None:
    """Signal the runners of jobs' tasks; ``is_batch`` if the script of each has become its only one.

    Otherwise, all processes of the tasks get the signal: CONT, which means something to runners only.
    """
    _cancel(["--signal=TERM", "--batch"] if is_batch else ["--signal=CONT"], ids)


def cancel(ids: Collection[str]) -> None:
    """Remove jobs from the queue, or kill them."""
    _cancel([], ids)


def _cancel(options: Sequence[str], ids: Collection[str]) -> None:
    """Call ``scancel`` once for many jobs; it goes on after those that have ended."""
    wanted = sorted(ids)
    for first in range(0, len(wanted), MOST_CANCELLED):
        run(["scancel", *options, *wanted[first : first + MOST_CANCELLED]])
