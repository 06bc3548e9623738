"""Run the API in this process, as a program in a project folder with an embedded cluster."""

import os

import pytest

from openpai_tasks.text import hints
from tests.forkserver import BIN


@pytest.fixture(autouse=True)
def _no_program(_hints_name_pai):
    """Name options as for programs in Python, which run no command."""
    hints.use_options(hints.argument)


@pytest.fixture
def project(cluster, tmp_path, monkeypatch):
    """An empty project folder, which is the current one; its user's home has the embedded cluster."""
    use_home(monkeypatch, cluster.home)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A user without clusters, in an empty project folder."""
    use_home(monkeypatch, tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def use_home(monkeypatch, home):
    for name in [name for name in os.environ if name.startswith(("OPENPAI_", "INVOKE_OPENPAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENPAI_HOME", str(home))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")  # jobs need no index of packages


@pytest.fixture
def here(cluster, monkeypatch):
    """The project folder, with the user's home of the cluster."""
    for name in [name for name in os.environ if name.startswith(("INVOKE_", "OPENPAI_"))]:
        monkeypatch.delenv(name)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cluster.project)
    return cluster.project
