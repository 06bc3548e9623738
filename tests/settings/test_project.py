"""Programs find the settings of a project as commands do."""

import pytest

from openpai_tasks.settings.config import load_settings
from openpai_tasks.settings.home import make_private
from openpai_tasks.settings.project import own_folder, project_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project folder, which is the current one, of a user without settings."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENPAI_TRUST", raising=False)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def settings_file(folder, image):
    path = folder / "invoke.yaml"
    path.write_text(f"openpai:\n  image: {image}\n")
    return path


def test_the_sources_of_settings_have_an_order(folder, monkeypatch):
    settings_file(folder, "from:invoke")
    assert load_settings().image == "from:invoke"
    (folder / ".openpai").mkdir()
    (folder / ".openpai" / "defaults.yaml").write_text("image: from:defaults\n")
    assert load_settings().image == "from:defaults"
    monkeypatch.setenv("INVOKE_OPENPAI_IMAGE", "from:environment")
    assert load_settings().image == "from:environment"
    assert load_settings({"image": "from:flag"}).image == "from:flag"


def test_settings_that_others_can_write_are_ignored(folder):
    settings_file(folder, "from:others").chmod(0o666)
    loaded = load_settings()
    assert loaded.image != "from:others"
    assert "invoke.yaml is ignored" in loaded.unknown[0]


def test_code_of_a_tasks_file_is_not_run(folder):
    (folder / "tasks.py").write_text("import invoke\nraise SystemExit('was run')\n")
    settings_file(folder, "beside:it")
    assert load_settings().image == "beside:it"


@pytest.mark.parametrize("name", ["tasks.py", "tasks/__init__.py"])
def test_a_project_with_tasks_is_the_nearest_one(folder, name):
    """The settings of a folder above it do not count, as for `inv`."""
    settings_file(folder, "from:above")
    inner = folder / "inner"
    (inner / name).parent.mkdir(parents=True)
    (inner / name).write_text("from invoke import task\n")
    assert project_folder(inner / "deeper") == inner


def test_a_tasks_file_of_another_program_is_passed_over(folder):
    settings_file(folder, "from:above")
    inner = folder / "inner"
    inner.mkdir()
    (inner / "tasks.py").write_text("from celery import Celery\n")
    assert project_folder(inner) == folder


def defaults(folder, text="image: mine\n"):
    path = folder / ".openpai" / "defaults.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_own_settings_are_found_from_sub_folders(folder, monkeypatch):
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    assert own_folder(deep) == deep
    settings_file(folder, "of:project")
    assert own_folder(deep) == folder
    defaults(folder / "a")
    assert own_folder(deep) == folder / "a"
    defaults(deep, "")
    assert own_folder(deep) == deep


def test_records_of_jobs_do_not_make_a_folder_one_with_settings(folder, monkeypatch):
    defaults(folder)
    inner = folder / "inner"
    (inner / ".openpai" / "jobs").mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert own_folder(inner) == folder and load_settings().image == "mine"


def test_settings_above_that_others_could_have_made_are_passed_over(folder, monkeypatch):
    defaults(folder)
    inner = folder / "inner"
    inner.mkdir()
    (folder / ".openpai").chmod(0o777)
    monkeypatch.chdir(inner)
    assert own_folder(inner) == inner and load_settings().image != "mine"
    settings_file(folder, "of:project")
    assert own_folder(inner) == inner


def test_the_users_home_is_not_a_project(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(folder))
    inner = folder / "inner"
    inner.mkdir()
    defaults(folder)
    assert own_folder(inner) == inner
    monkeypatch.setenv("OPENPAI_HOME", str(folder / ".openpai"))
    assert own_folder(inner) == inner


def test_git_ignores_the_settings_of_a_project_but_not_the_users_own(folder, monkeypatch):
    make_private(folder / ".openpai" / "jobs")
    assert (folder / ".openpai" / ".gitignore").read_text() == "*\n"
    monkeypatch.setenv("OPENPAI_HOME", str(folder / "user" / ".openpai"))
    make_private(folder / "user" / ".openpai" / "local")
    assert not (folder / "user" / ".openpai" / ".gitignore").exists()
