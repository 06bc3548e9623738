"""Hints that suggest activating a virtual environment, whose script may be a stranger's."""

import os
import subprocess

import pytest

from openpai_tasks.sdk import doctor
from openpai_tasks.sdk.clusters.inactive_python import FOREIGN, activation
from tests.needs import needs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "OPENPAI_TRUST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(folder, place=None):
    """Make an environment there, for that place."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin" / "activate").write_text(f"VIRTUAL_ENV='{place or folder}'\nexport VIRTUAL_ENV\n")
    return folder


def git(*words):
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    subprocess.run(["git", *words], check=True, env={**os.environ, **identity}, capture_output=True)


def test_an_environment_made_here_is_suggested(folder):
    made = make(folder / ".venv")
    assert activation(made) == doctor.check_python().command == ". .venv/bin/activate"
    (folder / "venv").symlink_to(made)
    assert activation(folder / "venv") == ". venv/bin/activate"


def test_an_environment_that_was_made_by_venv_is_suggested(folder):
    import venv

    venv.create(folder / ".venv", with_pip=False)
    assert activation(folder / ".venv") == ". .venv/bin/activate"


def test_an_environment_from_an_archive_is_not_suggested(folder, monkeypatch):
    made = make(folder / ".venv", "/home/stranger/.venv")
    assert activation(made) == ""
    found = doctor.check_python()
    assert found.command == "" and found.about.endswith(f".venv is not active; {FOREIGN}")
    (made / "bin" / "activate").write_text("x" * 20_000 + str(made))
    assert activation(made) == ""
    monkeypatch.setenv("OPENPAI_TRUST", str(folder))
    assert activation(made) == ". .venv/bin/activate"


def test_an_environment_whose_script_is_a_link_or_missing_is_not_suggested(folder):
    made = make(folder / ".venv")
    script = made / "bin" / "activate"
    script.rename(folder / "script")
    assert activation(made) == ""
    script.symlink_to(folder / "script")
    assert activation(made) == ""


@pytest.mark.parametrize("part", ["pyvenv.cfg", "bin/activate", "bin", "."])
def test_an_environment_that_other_users_can_write_is_not_suggested(folder, part):
    made = make(folder / ".venv")
    (made / part).chmod(0o777)
    assert activation(made) == ""


@needs("git")
def test_an_environment_that_came_with_a_clone_is_not_suggested(folder):
    made = make(folder / ".venv")
    git("init", "-q")
    assert activation(made)
    git("add", "-f", ".venv/bin/activate")
    assert activation(made) == ""


@needs("git")
def test_an_environment_that_is_a_submodule_is_not_suggested(folder):
    made = make(folder / ".venv")
    for place in (".", ".venv"):
        git("-C", place, "init", "-q")
    git("-C", ".venv", "add", "-f", "pyvenv.cfg")
    assert activation(made) == ""
