"""The program `paddlecloud`, run in this process with a home of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from openpai_tasks.paddlecloud.program import run
from openpai_tasks.sdk.clusters import stop_embedded
from tests.conftest import Ran
from tests.scripted import Scripted

PASSWORD = 9_182_736_450  # a number for YAML


class Laptop:
    """A folder and a home without any settings, and the commands that are typed there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.home, self.capsys = folder, folder.parent / "home", capsys

    def paddlecloud(self, *argv: str) -> Ran:
        code = run(argv)
        out, err = self.capsys.readouterr()
        return Ran(code, out, err)

    @property
    def has_started_a_cluster(self) -> bool:
        return (self.home / "local").exists()


@pytest.fixture
def laptop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Laptop]:
    """A laptop on which no cluster may be started."""
    for name in os.environ:
        if name.startswith(("INVOKE_", "OPENPAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    folder = tmp_path / "folder"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(folder)
    made = Laptop(folder, capsys)
    yield made
    if made.has_started_a_cluster:
        stop_embedded(keep_jobs=False, say=lambda line: None)
        pytest.fail("a cluster was started")


class Datacenter:
    """A scripted server that `~/.paddle/config` names as the current datacenter."""

    def __init__(self, laptop: Laptop, server: Scripted) -> None:
        self.laptop, self.server = laptop, server

    def type(self, line: str) -> Ran:
        return self.laptop.paddlecloud(*line.split())

    @property
    def calls(self) -> list[str]:
        """The calls of the last command, without logins."""
        return [f"{one.method} {one.path}" for one in self.server.seen if one.path != "/api-token-auth/"]


@pytest.fixture
def datacenter(
    laptop: Laptop, serve: Callable[[dict[str, Any]], Scripted], tmp_path: Path
) -> Callable[[dict[str, Any]], Datacenter]:
    def start(answers: dict[str, Any]) -> Datacenter:
        server = serve({"POST /api-token-auth/": {"token": "5" * 40}, **answers})
        entry = {
            "name": "dc1",
            "username": "ann@example.org",
            "password": PASSWORD,
            "endpoint": f"{server.uri}/",
        }
        file = tmp_path / "user" / ".paddle" / "config"
        file.parent.mkdir(parents=True)
        file.write_text(yaml.safe_dump({"datacenters": [entry], "current-datacenter": "dc1"}))
        return Datacenter(laptop, server)

    return start
