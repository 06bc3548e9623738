"""Programs find the settings of a project as commands do."""

import pytest

from openpai_tasks.settings.project import load_settings, project_folder


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
