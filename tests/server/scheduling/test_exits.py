"""How the end of a task is reported: every exit code, every signal, and patterns in the log."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from openpai_tasks.server.scheduling import task_end
from tests.server.workshop import Workshop, role, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
ALL = {"minFailedInstances": -1, "minSucceededInstances": -1}
KEPT = {0, 130, 131, 132, 134, 135, 136, 137, 139, 141, 143}


CODES = [0, 1, 2, 3, 125, 126, 127, *range(128, 146), 159, 192, 232, 250, 254, 255]
"""Those with a meaning of their own, and a few others."""


def test_every_exit_code_is_mapped_by_the_table() -> None:
    found = {code: task_end.find_cause(code, b"")[0] for code in range(256)}
    assert found == {code: code if code in KEPT else 255 for code in range(256)}


def test_exit_codes_of_commands_are_kept_and_mapped(workshop: Make) -> None:
    here = workshop()
    command = f"set -- {' '.join(map(str, CODES))}; shift $PAI_TASK_INDEX; exit $1"
    job = here.run("codes", {"main": role(command, instances=len(CODES), cpu=0, completion=ALL)})
    tasks = here.tasks(job.key)
    assert [task.user_exit_code for task in tasks] == CODES
    assert [task.exit_code for task in tasks] == [code if code in KEPT else 255 for code in CODES]
    assert [task.state for task in tasks] == ["SUCCEEDED", *["FAILED"] * (len(CODES) - 1)]
    assert (job.state, job.exit_code) == ("SUCCEEDED", 0)


SIGNALS = {2: 130, 3: 131, 4: 132, 6: 134, 7: 135, 8: 136, 9: 137, 10: 255, 11: 139, 13: 141, 15: 143}


@pytest.mark.skipif(sys.platform != "linux", reason="signals have other numbers elsewhere")
def test_signal_is_reported_by_its_exit_code(workshop: Make) -> None:
    here = workshop()
    code = (
        "import os, signal, sys; number = int(sys.argv[1]);"
        " number in (9,) or signal.signal(number, signal.SIG_DFL); os.kill(os.getpid(), number)"
    )
    numbers = " ".join(map(str, SIGNALS))
    command = f"set -- {numbers}; shift $PAI_TASK_INDEX; ulimit -c 0; exec {sys.executable} -S -c '{code}' $1"
    job = here.run("signals", {"main": role(command, instances=len(SIGNALS), cpu=0, completion=ALL)})
    tasks = here.tasks(job.key)
    assert [task.exit_code for task in tasks] == list(SIGNALS.values())
    assert [task.user_exit_code for task in tasks] == [128 + number for number in SIGNALS]
    assert "SIGSEGV" in tasks[list(SIGNALS).index(11)].diagnostics


def test_pattern_in_the_log_makes_a_failure_permanent(workshop: Make) -> None:
    here = workshop()
    job = here.run("import", "echo one; echo 'ImportError: no torch' >&2; exit 1", jobRetryCount=3)
    attempt = here.state.attempts(job.key)[0]
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", 232, 0)
    assert (attempt.user_exit_code, attempt.matched) == (1, "ImportError: no torch")
    assert attempt.log_end == "one\nImportError: no torch"


def test_log_without_a_known_pattern_keeps_the_plain_exit_code(workshop: Make) -> None:
    here = workshop()
    job = here.run("plain", "for i in $(seq 40); do echo line $i; done; exit 127")
    attempt = here.state.attempts(job.key)[0]
    assert (attempt.exit_code, attempt.user_exit_code, attempt.matched) == (255, 127, "")
    assert attempt.log_end.splitlines() == [f"line {number}" for number in range(26, 41)]


def test_a_command_that_fails_in_the_middle_fails_the_task(workshop: Make) -> None:
    """errexit, nounset and pipefail hold, as in a real cluster's runtime."""
    here = workshop(cpus=4)
    scripts = ["false; true", "echo $NOT_SET", "false | true", "true"]
    roles = {f"r{number}": role(script, completion=ALL) for number, script in enumerate(scripts)}
    job = here.run("strict", roles)
    assert [task.user_exit_code for task in here.tasks(job.key)] == [1, 1, 1, 0]
