"""Project files that other users could have written are not run, and their settings are ignored."""

from __future__ import annotations

import io
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from openpai_tasks.settings import ownership

TASKS = """
from invoke import task
from openpai_tasks.tasks import namespace

open("marker", "w").close()

@task
def theirs(c):
    print("ran")

ns = namespace(theirs)
"""


@pytest.fixture(params=["file", "folder", "owner"])
def spoil(request, monkeypatch):
    """Make a file writable by another user, in one of three ways."""

    def spoil(path: Path) -> None:
        if request.param == "file":
            path.chmod(0o666)
        elif request.param == "folder":
            path.parent.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(path, 54321, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 54321)
        assert ownership.problem(path)

    return spoil


def assert_only_built_in_tasks_are_loaded(project, file):
    ran = project.pai("--list")
    assert ran.code == 0 and "job.sub" in ran.out and "theirs" not in ran.out
    assert ran.err.startswith(f"warning: {file} is not loaded: ") and ran.err.count("\n") == 1
    assert project.pai("config.show").code == 0
    assert not (project.folder / "marker").exists()


def test_unsafe_tasks_file_is_not_run(project, spoil):
    project.write("tasks.py", TASKS)
    assert project.pai("theirs").out == "ran\n"
    (project.folder / "marker").unlink()
    spoil(project.folder / "tasks.py")
    assert_only_built_in_tasks_are_loaded(project, project.folder / "tasks.py")


@pytest.fixture(autouse=True)
def modules(monkeypatch):
    """Forget the modules that a project's tasks have imported."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    yield
    for name in set(sys.modules) - known:
        if name.startswith("helper"):
            del sys.modules[name]


IMPORTED = {
    "helper.py": "helper",
    "helper/__init__.py": "helper",
    "helper/deep/er.py": "helper.deep.er",
    "helper.pyc": "helper",
    f"helper{EXTENSION_SUFFIXES[0]}": "helper",
    "helper.so": "helper",
    f"__pycache__/helper.{sys.implementation.cache_tag}.pyc": "helper",
}


@pytest.mark.parametrize("name", IMPORTED)
def test_unsafe_module_beside_the_tasks_file_is_not_imported(project, spoil, name):
    if "__pycache__" in name:
        project.write("helper.py", "")
    project.write(name, TASKS)
    spoil(project.folder / name)
    project.write("tasks.py", f"import {IMPORTED[name]}\n{TASKS}")
    ran = project.pai("--list")
    assert ran.code == 0 and "job.sub" in ran.out and "theirs" not in ran.out
    assert ran.err.startswith("warning: ") and "is not loaded: " in ran.err and ran.err.count("\n") == 1
    assert not (project.folder / "marker").exists()


def test_unsafe_module_that_is_linked_to_is_not_imported(project, spoil, tmp_path):
    (tmp_path / "shared" / "helper").mkdir(parents=True)
    (tmp_path / "shared" / "helper" / "__init__.py").write_text(TASKS)
    (project.folder / "helper").symlink_to(tmp_path / "shared" / "helper")
    spoil(tmp_path / "shared" / "helper" / "__init__.py")
    project.write("tasks.py", f"import helper\n{TASKS}")
    assert " is not loaded: " in project.pai("--list").err
    assert not (project.folder / "marker").exists()


def test_unsafe_namespace_package_or_module_that_is_optional_counts_as_missing(project):
    project.write("helper_one/x.py", TASKS)
    project.write("helper_two.py", TASKS)
    for name in ("helper_one", "helper_two.py"):
        (project.folder / name).chmod(0o777)
    attempts = "".join(
        f"try:\n    import {name}\nexcept ImportError:\n    pass\n" for name in ("helper_one.x", "helper_two")
    )
    project.write("tasks.py", attempts + TASKS.replace('open("marker", "w").close()', ""))
    assert project.pai("theirs").out == "ran\n" and not (project.folder / "marker").exists()


def test_unsafe_module_that_a_task_imports_later_ends_in_one_line(project):
    project.write("helper.py", "open('marker', 'w').close()\n")
    (project.folder / "helper.py").chmod(0o666)
    project.tasks("@task\ndef late(c):\n    import helper\n\nns.add_task(late)\n")
    ran = project.pai("late")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1) and "chmod go-w" in ran.err
    assert not (project.folder / "marker").exists()


def test_safe_modules_of_every_kind_are_imported_after_those_that_are_installed(project):
    project.write("helper_mine.py", "value = 'mine'\n")
    project.write("helper_package/__init__.py", "")
    project.write("helper_package/deep/er.py", "value = 'deeper'\n")
    project.write("yaml/__init__.py", "raise SystemExit('hides the installed one')\n")
    project.write("unused.py", "")
    (project.folder / "unused.py").chmod(0o666)
    imports = "import helper_mine, helper_package.deep.er as deeper, yaml\n"
    project.write("tasks.py", imports + TASKS.replace('"ran"', "helper_mine.value, deeper.value"))
    loaded = sys.modules.pop("yaml", None)
    try:
        assert project.pai("theirs").out == "mine deeper\n"
    finally:
        sys.modules.update({"yaml": loaded} if loaded else {})


@pytest.mark.parametrize(
    "name", ["__init__.py", "more.py", "sub/deep.py", "__pycache__/more.cpython-311.pyc"]
)
def test_unsafe_file_in_a_tasks_package_prevents_loading(project, spoil, name):
    project.write("tasks/__init__.py", TASKS)
    project.write(f"tasks/{name}", TASKS)
    spoil(project.folder / "tasks" / name)
    assert_only_built_in_tasks_are_loaded(project, project.folder / "tasks" / "__init__.py")


def test_symlink_to_an_unsafe_tasks_file_is_not_run(project, spoil, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "tasks.py").write_text(TASKS)
    (project.folder / "tasks.py").symlink_to(tmp_path / "shared" / "tasks.py")
    spoil(tmp_path / "shared" / "tasks.py")
    assert_only_built_in_tasks_are_loaded(project, project.folder / "tasks.py")


def test_unsafe_tasks_file_in_a_parent_folder_is_not_run(project, spoil, monkeypatch):
    project.write("tasks.py", TASKS)
    project.write("mine/x", "")
    spoil(project.folder / "tasks.py")
    monkeypatch.chdir(project.folder / "mine")
    assert_only_built_in_tasks_are_loaded(project, project.folder / "tasks.py")


def test_requesting_an_unsafe_tasks_file_is_an_error(project, spoil):
    project.write("tasks.py", TASKS)
    spoil(project.folder / "tasks.py")
    ran = project.pai("--collection", "tasks", "--list")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert ran.err.startswith(f"error: {project.folder}/tasks.py is not loaded: ")


def test_trust_variable_allows_an_unsafe_tasks_file(project, spoil, monkeypatch):
    project.write("tasks.py", TASKS)
    project.write("invoke.yaml", "openpai: {image: theirs}\n")
    spoil(project.folder / "tasks.py")
    monkeypatch.setenv("OPENPAI_TRUST", str(project.folder))
    ran = project.pai("theirs")
    assert (ran.code, ran.out, ran.err) == (0, "ran\n", "")


def test_warning_is_not_printed_during_completion(project, spoil):
    project.write("tasks.py", TASKS)
    spoil(project.folder / "tasks.py")
    assert project.pai("--complete", "--", "pai", "config").err == ""


def test_unreadable_tasks_file_is_skipped(project, monkeypatch):
    project.write("tasks.py", TASKS)
    (project.folder / "tasks.py").chmod(0)
    if os.geteuid() == 0:  # root can read everything
        refuse = lambda *a, **k: (_ for _ in ()).throw(PermissionError())  # noqa: E731
        monkeypatch.setattr("openpai_tasks.settings.project.open_regular", refuse)
    assert project.pai("--list").code == 0


# Settings


@pytest.mark.parametrize("file", ["invoke.yaml", ".openpai/defaults.yaml"])
@pytest.mark.parametrize("program", ["pai", "inv"])
def test_unsafe_settings_file_is_ignored(project, spoil, file, program):
    project.write("mine/tasks.py", "from openpai_tasks.tasks import namespace\nns = namespace()\n")
    (project.folder / "mine" / "tasks.py").rename(project.folder / "tasks.py")
    text = "image: theirs\nsources: [/etc/passwd]\npython: evil\n"
    project.write(file, text if "defaults" in file else f"openpai: {{{', '.join(text.splitlines())}}}\n")
    spoil(project.folder / file)
    if program == "pai":
        (project.folder / "tasks.py").unlink()
    ran = getattr(project, program)("config.show")
    assert ran.code == 0
    assert "theirs" not in ran.out and "evil" not in ran.out
    assert ran.err.count("\n") == 1 and f"{project.folder / file} is ignored: " in ran.err


def test_trusted_settings_file_is_ignored_once_others_can_write_it(project, spoil):
    path = project.folder / ".openpai" / "defaults.yaml"
    assert project.pai("config.set", "python=mine").code == 0
    assert "mine" in project.pai("config.show").out
    spoil(path)
    assert "mine" not in project.pai("config.show").out


def test_unsafe_clusters_file_is_refused(project, spoil):
    assert project.pai("config.set", "-g", "clusters-in-local=true").code == 0
    assert project.pai("cluster.add", "lab", "http://lab.example", "--no-check").code == 0
    assert project.pai("cluster.list").code == 0
    path = project.folder / ".openpai" / "clusters.yaml"
    spoil(path)
    ran = project.pai("cluster.list")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert ran.err.startswith(f"error: {path} cannot be used: ")
    assert project.pai("config.show").code == 0


def test_unsafe_invoke_py_is_not_run(project, spoil):
    project.write("invoke.py", "open('marker', 'w').close()\nopenpai = {'image': 'theirs'}\n")
    assert "theirs" in project.pai("config.show").out
    (project.folder / "marker").unlink()
    spoil(project.folder / "invoke.py")
    ran = project.pai("config.show")
    assert ran.code == 0 and "theirs" not in ran.out
    assert not (project.folder / "marker").exists()


def test_unsafe_templates_are_ignored(project, spoil, caplog):
    project.write("job_templates/evil.yaml", "")
    spoil(project.folder / "job_templates" / "evil.yaml")
    ran = project.pai("job.templates")
    assert ran.code == 0 and "evil" not in ran.out
    assert f"ignoring {project.folder}/job_templates" in caplog.text


def test_compiled_invoke_py_in_a_folder_of_others_is_not_run(project):
    project.write("invoke.py", "openpai = {'image': 'mine'}\n")
    (project.folder / "__pycache__").mkdir()
    (project.folder / "__pycache__").chmod(0o777)
    ran = project.pai("config.show")
    assert ran.code == 0 and "mine" not in ran.out and "invoke.py is ignored: " in ran.err
    assert f"`chmod -R go-w {project.folder}/__pycache__`" in ran.err
    assert f"`export OPENPAI_TRUST={project.folder}`" in ran.err


# Files that are too large to be read, or that never end


HUGE = 1 << 42  # bytes, of which a sparse file needs none


@pytest.mark.parametrize(
    "name, text",
    [
        ("tasks.py", TASKS),
        ("tasks.py", "import celery\n"),
        ("tasks/__init__.py", TASKS),
        ("invoke.yaml", "openpai: {image: theirs}\n"),
        ("invoke.py", "openpai = {'image': 'theirs'}\n"),
        (".openpai/defaults.yaml", "image: theirs\n"),
        ("job_templates/evil.yaml", ""),
    ],
)
def test_huge_file_of_another_user_in_a_shared_folder_is_not_read(project, spoil, monkeypatch, name, text):
    project.write(name, text)
    project.write("mine/x", "")
    os.truncate(project.folder / name, HUGE)
    spoil(project.folder / name)
    monkeypatch.chdir(project.folder / "mine")
    for words in (["config.show"], ["job.templates"], ["--list"]):
        ran = project.pai(*words)
        assert ran.code == 0 and "theirs" not in ran.out and "Traceback" not in ran.err


@pytest.mark.parametrize("name", [".openpai/defaults.yaml", ".openpai/clusters.yaml", "tasks/huge.py"])
def test_huge_file_of_the_user_ends_in_one_line(project, name):
    assert project.pai("config.set", "-g", "clusters-in-local=true").code == 0
    project.write("tasks/__init__.py", "")
    project.write(name, "")
    os.truncate(project.folder / name, HUGE)
    ran = project.pai("cluster.list")
    assert ran.err.count("\n") <= 1 and "Traceback" not in ran.err
    assert ran.code == (0 if name.endswith(".py") else 120)


@pytest.mark.parametrize(
    "name", [".openpai/defaults.yaml", ".openpai/clusters.yaml", "tasks.py", "invoke.yaml"]
)
def test_pipe_in_the_place_of_a_file_is_not_waited_for(project, name):
    assert project.pai("config.set", "-g", "clusters-in-local=true").code == 0
    (project.folder / ".openpai").mkdir()
    os.mkfifo(project.folder / name)
    ran = project.pai("cluster.list")
    is_settings = name.startswith(".openpai")
    assert (ran.code, "is not a regular file" in ran.err) == ((120, True) if is_settings else (0, False))


# What Invoke itself would do with an invoke.yaml


@pytest.mark.parametrize(
    "text",
    [
        "run: {shell: ./evil}",
        "run: {env: {BASH_ENV: ./evil, PATH: .}}",
        "tasks: {executor_class: evil.Executor}",
    ],
)
def test_invoke_settings_run_nothing_without_a_tasks_file(project, text, monkeypatch):
    """Of our tasks, the image tasks start programs through Invoke."""
    project.write("evil", "#!/bin/sh\n: > marker\n")
    project.write("docker", "#!/bin/sh\n: > marker\n")
    for name in ("evil", "docker"):
        (project.folder / name).chmod(0o755)
    project.write("evil.py", "open('marker', 'w').close()\n")
    project.write("invoke.yaml", f"{text}\nopenpai: {{image: theirs}}\n")
    tools = project.folder.parent / "bin"
    tools.mkdir()
    (tools / "docker").write_text("#!/bin/sh\nexit 0\n")
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # which Invoke passes on
    assert project.pai("container.images").code == 0
    assert not (project.folder / "marker").exists()
    assert "theirs" in project.pai("config.show").out
