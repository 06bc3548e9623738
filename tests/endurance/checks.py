"""What must hold after every history, whatever it had."""

from __future__ import annotations

from collections.abc import Iterator

from tests.endurance.faults.upgrade import RELEASE
from tests.endurance.found import OPERATIONS, SITES
from tests.endurance.traces import LIMITS, TRACEBACK, tracebacks
from tests.endurance.world import FINAL, Ran, Record

PROGRAMS = ("call", "map", "store move")
"""Operations that are Python programs of a user."""
COMMANDS = ("submit", "follow", "stop", "resubmit", "logs", "list", "copy")
"""Operations that are one command of ours; others have several, or programs around them."""
EXCEPTIONS = (
    "openpai_tasks.errors.",
    "ConnectionError: ",
    "MemoryError",
    "OSError: [Errno ",
    "RuntimeError: can't start new thread",
)


def violations(record: Record) -> Iterator[str]:
    """Yield each promise that was broken."""
    for operation in OPERATIONS.values():
        yield from operation.check(record)
    for site in SITES.values():
        if site.kind in record.found:
            yield from site.check(record)
    for job in record.jobs:
        if job["state"] not in FINAL:
            yield f"{job['name']} is still {job['state']}"
    for ran in record.ran:
        if "Traceback" in ran.err + ran.out and not _is_own(ran):
            yield f"{ran.step}: {ran.err[-1500:] or ran.out[-1500:]}"
        elif not _is_clear(ran):
            yield f"{ran.step}: exits with {ran.code}, but its errors are not one line: {ran.err[-1500:]}"
    for part in tracebacks(record.server_log):
        if f"/{RELEASE}" not in part:  # the last release has its own faults
            yield f"the server's log has a traceback: {part[:3000]}"
            break
    yield from record.broken
    for one in record.left:
        yield f"left behind: {one}"
    yield from record.wrong


def _is_own(ran: Ran) -> bool:
    """Whether the user's own program has failed, or Ctrl-C or a limit came before our program began."""
    last, is_program = ran.err.rstrip().rpartition("\n")[2], ran.step.kind in PROGRAMS
    if ran.step.kind == "notebook" and TRACEBACK in ran.err and not any(tracebacks(ran.err)):
        return True  # its kernel's, in the log of the job
    if is_program and last.startswith(EXCEPTIONS):
        return True
    has_begun = _has_begun(ran) and not is_program
    is_interrupted = ran.is_killed and last == "KeyboardInterrupt"
    return not has_begun and (is_interrupted or last.startswith(LIMITS))


def _has_begun(ran: Ran) -> bool:
    """Whether a traceback shows that our program ran; Python's own ``site`` has a ``main``, too."""
    return any("in main" in line and "<frozen site>" not in line for line in ran.err.splitlines())


def _is_clear(ran: Ran) -> bool:
    """Whether a command that failed says so in one line."""
    if ran.is_killed or ran.code == 0 or ran.step.kind not in COMMANDS:
        return True
    if not _has_begun(ran) and ran.err.rstrip().rpartition("\n")[2].startswith(LIMITS):
        return True  # Python itself could not start
    lines = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    is_code_of_job = ran.code == ran.step.options.get("code")
    return ran.code > 0 and (len(lines) == 1 or is_code_of_job)
