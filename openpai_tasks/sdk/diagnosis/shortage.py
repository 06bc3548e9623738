"""Describe which resources a job lacks and which jobs hold them, from the embedded cluster's events."""

from __future__ import annotations

import contextlib
import re

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import states

_AMOUNTS = r"(\d+) CPU, (\d+) MB, (\d+) GPU"
_NOTE = re.compile(
    rf"needs {_AMOUNTS}; free in (?:virtual cluster (\S+)|this machine) are {_AMOUNTS} of {_AMOUNTS}"
)
_KINDS = (("CPU", "CPUs", "--cpu"), (*["MB of memory"] * 2, "--memoryMB"), ("GPU", "GPUs", "--gpu"))
MOST_NAMES = 3  # of jobs to list


def describe_shortage(client: Backend, note: str, is_alone: bool) -> str:
    """Describe the shortage in one line; empty if the note is about something else.

    Sizes that would fit are known only for a job of one task, ``is_alone``.
    """
    found = _NOTE.search(note)
    if found is None:
        return ""
    needs, frees, totals = (list(map(int, found.group(*range(at, at + 3)))) for at in (1, 5, 8))
    rows = [row for row in zip(needs, frees, totals, _KINDS, strict=True) if row[0] > row[1]]
    if not rows:
        return ""
    flags = [f"{kind[2]} {free}" for _, free, _, kind in rows if free]
    hint = f"; `{' '.join(flags)}` would fit" if is_alone and len(flags) == len(rows) else ""
    return f"it asks for {'; '.join(_describe_row(*row) for row in rows)}{_holders(client, found[4])}{hint}"


def _describe_row(need: int, free: int, total: int, kind: tuple[str, ...]) -> str:
    return f"{need} {kind[need != 1]}, and {free} of {total} {'is' if free == 1 else 'are'} free"


def _holders(client: Backend, virtual_cluster: str | None) -> str:
    """Return the jobs that run in the same virtual cluster, if the cluster can list them."""
    with contextlib.suppress(PaiError):
        running = client.jobs(state=states.RUNNING, limit=100)
        names = [job.name for job in running if virtual_cluster in (None, job.virtual_cluster)]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return f" (running: {', '.join(names[:MOST_NAMES])}{more})" if names else ""
    return ""
