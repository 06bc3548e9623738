"""Fixtures for all tests: a separate home folder, and real `inv` and `pai` processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.text import hints
from tests import needs
from tests.forkserver import BIN, FRESH, run, start

# Started in the background, pytest ignores Ctrl-C, and so would each command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.by_file"]
PROJECT_TASKS = "from openpai_tasks.tasks import namespace\n\nns = namespace()\n"


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """A project folder and a user's home, in which commands run as a user would run them."""

    def __init__(self, project: Path, home: Path) -> None:
        self.project, self.home = project, home
        keep = {
            name: value for name, value in os.environ.items() if not name.startswith(("INVOKE_", "OPENPAI_"))
        }
        self.environment = {
            **keep,
            "OPENPAI_HOME": str(home),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",  # never the developer's keyring
        }

    def run(self, *argv: str, timeout: float = 100, input: str | None = None, **environment: str) -> Ran:
        done = run(argv, self.project, {**self.environment, **environment}, input or "", timeout)
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *argv: str, fresh: bool = False, **options: Any) -> subprocess.Popen[str]:
        """Start a command; a fresh one is not forked, as its memory or its start is the point."""
        return start(argv, self.project, {**self.environment, **(FRESH if fresh else {})}, **options)

    def inv(self, *args: str, **options: Any) -> Ran:
        return self.run("inv", *args, **options)

    def pai(self, *args: str, **options: Any) -> Ran:
        return self.run("pai", *args, **options)

    def ok(self, *args: str, **options: Any) -> Ran:
        """Run `inv`, which must succeed."""
        ran = self.inv(*args, **options)
        assert ran.code == 0, ran
        return ran


def make_shell(folder: Path) -> Shell:
    project = folder / "project"
    project.mkdir()
    (project / "tasks.py").write_text(PROJECT_TASKS)
    return Shell(project, folder / "home")


def end_portals(home: Path) -> None:
    """End the portals that the tests have started there; they would end by themselves, but much later."""
    for status in home.glob("portal/*/server.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = json.loads(status.read_text())["pid"]
            if os.fsencode(status.parent) in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep tests that choose no home away from the developer's, and from starting a cluster nobody stops."""
    home = tmp_path_factory.mktemp("nobody") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPAI_HOME", str(home))
        if (Path.home() / ".paddle").exists():  # its datacenters would be clusters in every test
            patch.setenv("HOME", str(_home_without_paddle(tmp_path_factory.mktemp("user"))))
        yield
    assert not (home / "local" / "server.json").exists(), "a test started a cluster without its own home"


def _home_without_paddle(folder: Path) -> Path:
    """Fill a folder with links to what else is in the developer's home: caches, and settings of tools."""
    for path in Path.home().iterdir():
        if path.name != ".paddle":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(autouse=True)
def _hints_name_pai() -> None:
    """Forget the program of a command that an earlier test ran in this process."""
    hints.use_program([])


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    """A shell for one test; an embedded cluster that is started in it is stopped after the test."""
    shell = make_shell(tmp_path)
    yield shell
    if (shell.home / "local").exists():
        shell.pai("cluster.stop")  # `pai` needs no tasks.py
    end_portals(shell.home)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A shell with an embedded cluster that the tests of one module share."""
    shell = make_shell(tmp_path_factory.mktemp("cluster"))
    shell.ok("cluster.start")
    yield shell
    shell.ok("cluster.stop")
    end_portals(shell.home)


@pytest.fixture
def serve() -> Any:
    """Start scripted servers, which are closed after the test."""
    from tests.scripted import Scripted

    started: list[Scripted] = []

    def start(answers: dict[str, Any]) -> Scripted:
        started.append(Scripted(answers))
        return started[-1]

    yield start
    for server in started:
        server.close()


def pytest_xdist_auto_num_workers() -> int:
    """Four for each processor: most of the time, tests wait for processes and servers."""
    return 4 * (os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests marked `root` to root; where none may be skipped (CI), others do not see them."""
    for_root = [item for item in items if item.get_closest_marker("root")] if os.geteuid() else []
    if os.environ.get("CI"):
        config.hook.pytest_deselected(items=for_root)
        items[:] = [item for item in items if item not in for_root]
    else:
        for item in for_root:
            item.add_marker(pytest.mark.skip(reason="only root can run it"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Any:
    return _fail_if_skipped((yield))


def _fail_if_skipped(report: Any) -> Any:
    """Fail skipped tests if CI is set: everything is installed there, and nobody would notice a skip.

    Only a Kubernetes cluster, which no package brings, may be missing.
    """
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if "OPENPAI_TEST_KUBECONFIG" not in reason:
            reason += " (with CI set nothing is skipped: see .ci/run)"
            report.outcome, report.longrepr = "failed", reason
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Any:
    """End with the packages that skipped tests need, below pytest's own list of reasons."""
    result = yield
    skipped = terminalreporter.stats.get("skipped", [])
    if line := needs.summary(report.longrepr[2] for report in skipped):
        terminalreporter.write_line(line)
    return result
