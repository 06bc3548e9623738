"""Resource usage of a container, measured by a script that its own shell runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openpai_tasks.sdk.containers import top
from openpai_tasks.tasks.views import containers
from tests.needs import require

BURN = "x = ' ' * (64 << 20)\nprint('up', flush=True)\nwhile True: pass"


@pytest.fixture(params=["bash", "dash"])
def shell(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


def asked(shell: str, folder: Path) -> top.ContainerUsage:
    """The usage that a login to the task in that folder would see."""
    done = subprocess.run(
        [shell, "-c", top.SCRIPT],
        env=variables(folder),
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return top.parse_usage(done.stdout, "main-0")


def variables(folder: Path) -> dict[str, str]:
    return {**os.environ, "PAI_MOUNT_ROOT": str(folder / "mounts"), "PAI_WORK_DIR": str(folder / "work")}


def test_processes_on_a_machine_are_counted_by_task(shell: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", BURN]
    busy = subprocess.Popen(words, env=variables(tmp_path / "busy"), stdout=subprocess.PIPE, text=True)
    quiet = subprocess.Popen(["sleep", "60"], env=variables(tmp_path / "quiet"))
    try:
        assert busy.stdout and busy.stdout.readline() == "up\n"
        loud, still = asked(shell, tmp_path / "busy"), asked(shell, tmp_path / "quiet")
        assert (loud.scope, still.scope) == (top.CONTAINER, top.CONTAINER)
        assert loud.cpu is not None and still.cpu is not None and still.cpu < 0.01 < loud.cpu
        assert loud.memory and still.memory and still.memory < 8 << 20 < 64 << 20 < loud.memory < 128 << 20
    finally:
        for process in (busy, quiet):
            process.kill()
            process.communicate()


def test_usage_without_a_task_is_labelled_as_the_machine(shell: str, tmp_path: Path) -> None:
    found = asked(shell, tmp_path)  # no process of that task can be read
    assert found.scope == top.MACHINE and found.memory and found.memory_limit
    mine = top.ContainerUsage("main-1", cpu=0.5, cpu_limit=2, memory=1, memory_limit=2)
    lines = str(containers.usage_table([found, mine])).splitlines()
    assert "SCOPE" in lines[0] and " machine" in lines[1] and "machine" not in lines[2]
    assert "SCOPE" not in str(containers.usage_table([mine]))
