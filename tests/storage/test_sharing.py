"""The workers of a test run share one server, which ends after its last use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.storage import sharing

WORKER = "import sys; from tests.storage.test_sharing import work; work(sys.argv[1])"


class Server:
    """A server that is only a file, as long as it runs."""

    def __init__(self, folder: str) -> None:
        self.file = Path(folder, f"server-{os.getpid()}")
        self.file.touch()

    def stop(self) -> None:
        self.file.unlink()


def work(folder: str) -> None:
    """Use the server until a line arrives on stdin."""
    sharing.use(Path(folder))
    print(sharing.shared("one", lambda: Server(folder)).file, flush=True)
    sys.stdin.readline()
    sharing.stop_all()


def start(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], text=True, **pipes)
    return worker, Path(worker.stdout.readline().strip())


def end(worker: subprocess.Popen[str]) -> None:
    worker.communicate("\n", timeout=60)
    assert worker.returncode == 0


def test_server_is_shared_and_ends_after_its_last_use(tmp_path):
    first, server = start(tmp_path)
    second, same = start(tmp_path)
    assert server.exists() and same == server

    first.stdin.write("\n")
    first.stdin.flush()
    while (tmp_path / "one.pickle").exists():
        time.sleep(0.01)
    third, another = start(tmp_path)
    assert server.exists() and another.exists() and another != server

    end(second)
    assert first.wait(60) == 0 and not server.exists() and another.exists()
    end(third)
    assert not another.exists()


def test_server_ends_with_a_run_without_workers(tmp_path, monkeypatch):
    for name in ("_known", "_started", "_users"):
        monkeypatch.setattr(sharing, name, {})
    monkeypatch.setattr(sharing, "_run", [])
    server = sharing.shared("one", lambda: Server(str(tmp_path)))
    assert sharing.shared("one", lambda: Server("another")) is server
    sharing.stop_all()
    assert not server.file.exists()
