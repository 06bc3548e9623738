"""What a job asks for and does not get, and who has it: as the embedded cluster notes it."""

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
NAMED = 3  # of the jobs that have it


def told(client: Backend, note: str, is_alone: bool) -> str:
    """In one line what lacks and which jobs have it; nothing if the note is about something else.

    What would fit is only known of a job that is one task, ``is_alone``.
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
    return f"it asks for {'; '.join(_lacks(*row) for row in rows)}{_holders(client, found[4])}{hint}"


def _lacks(need: int, free: int, total: int, kind: tuple[str, ...]) -> str:
    return f"{need} {kind[need != 1]}, and {free} of {total} {'is' if free == 1 else 'are'} free"


def _holders(client: Backend, virtual_cluster: str | None) -> str:
    """The jobs that run where it would, if the cluster tells."""
    with contextlib.suppress(PaiError):
        running = client.jobs(state=states.RUNNING, limit=100)
        names = [job.name for job in running if virtual_cluster in (None, job.virtual_cluster)]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f" (running: {', '.join(names[:NAMED])}{more})" if names else ""
    return ""
