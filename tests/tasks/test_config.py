"""config.show, config.set, config.unset, and settings files that plain Invoke cannot handle."""

import json
import stat

import pytest
import yaml

PROJECT = "from openpai_tasks.tasks import namespace\n\nns = namespace()\n"


@pytest.fixture
def inv(project):
    project.write("tasks.py", PROJECT)
    return project.inv


def shown(inv, name):
    row = next(row for row in json.loads(inv("config.show", "-o", "json").out) if row["name"] == name)
    return row["value"], row["origin"]


def test_each_origin_overrides_the_previous_one(project, inv, monkeypatch, tmp_path):
    assert shown(inv, "gpu") == (0, "built-in")
    project.write("tasks.py", PROJECT.replace("()", "(gpu=1)"))
    assert shown(inv, "gpu") == (1, "tasks.py")
    assert inv("config.set", "-g", "gpu=2").code == 0
    assert shown(inv, "gpu") == (2, str(tmp_path / "home" / "defaults.yaml"))
    project.write("invoke.yaml", "openpai:\n  gpu: 3\n")
    assert shown(inv, "gpu") == (3, str(project.folder / "invoke.yaml"))
    assert inv("config.set", "gpu=4").code == 0
    assert shown(inv, "gpu") == (4, str(project.folder / ".openpai" / "defaults.yaml"))
    monkeypatch.setenv("INVOKE_OPENPAI_GPU", "5")
    assert shown(inv, "gpu") == (5, "INVOKE_OPENPAI_GPU")


def test_file_given_with_f_overrides_the_environment(project, inv, monkeypatch):
    monkeypatch.setenv("INVOKE_OPENPAI_IMAGE", "variable")
    project.write("other.yaml", "openpai: {image: file}\n")
    rows = json.loads(inv("-f", "other.yaml", "config.show", "-o", "json").out)
    assert next(row["value"] for row in rows if row["name"] == "image") == "file"


def test_set_and_unset_write_a_private_file(project, inv):
    path = project.folder / ".openpai" / "defaults.yaml"
    ran = inv("config.set", "memory_mb=512", "sources=a,b c", "clusters-in-local=yes", "local.enforce=on")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"set memoryMB, sources, clusters-in-local, local.enforce in {path}\n"
    assert yaml.safe_load(path.read_text()) == {
        "memoryMB": 512,
        "sources": ["a", "b c"],
        "clusters-in-local": True,
        "local.enforce": "true",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert inv("config.unset", "memoryMB", "sources", "clusters-in-local").code == 0
    assert yaml.safe_load(path.read_text()) == {"local.enforce": "true"}


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["config.set", "imgae=x"],
            "error: no setting named 'imgae', did you mean image? (known: ",
        ),
        (
            ["config.set", "cpu=2", "zzz=1"],
            "error: no setting named 'zzz' (known: cluster-alias, any-clusters",
        ),
        (["config.set", "cpu"], "error: invalid setting 'cpu': expected name=value"),
        (["config.set", "cpu=two"], "error: config.set: cpu must be a whole number, got 'two'"),
        (["config.set", "cpu=0"], "error: config.set: cpu must be at least 1, got '0'"),
        (
            ["config.set", "output=xml"],
            "error: config.set: output must be one of table, json, yaml",
        ),
        (
            ["config.set", "local.enforce=maybe"],
            "error: config.set: local.enforce must be one of gpu, true, false",
        ),
        (["config.set"], "error: config.set needs VALUES"),
        (["config.unset", "zzz"], "error: no setting named 'zzz' (known: "),
        (["config.show", "-o", "xml"], "error: no output format named 'xml' (known: table, json, yaml, csv)"),
    ],
)
def test_invalid_input_is_a_one_line_error_and_nothing_is_written(project, inv, words, message):
    ran = inv(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert ran.err.startswith(message)
    assert not (project.folder / ".openpai" / "defaults.yaml").exists()


def test_an_unknown_setting_in_defaults_yaml_is_a_warning(project, inv):
    project.write(".openpai/defaults.yaml", "imgae: a\ncpu: 3\n")
    ran = inv("config.show")
    path = project.folder / ".openpai" / "defaults.yaml"
    assert (ran.code, ran.err) == (0, f"warning: {path}: no setting named 'imgae', did you mean image?\n")
    assert shown(inv, "cpu")[0] == 3


def test_unset_removes_a_setting_of_an_older_client(project, inv):
    project.write(".openpai/defaults.yaml", "image-list: [a]\nimage: b\n")
    ran = inv("config.show")
    assert (ran.code, ran.err) == (0, "")
    assert inv("config.unset", "image-list").code == 0
    assert yaml.safe_load((project.folder / ".openpai" / "defaults.yaml").read_text()) == {"image": "b"}


@pytest.mark.parametrize(
    "files, message",
    [
        ({"invoke.yaml": "openpai: [\n"}, "error: cannot read {folder}/invoke.yaml, line 2: "),
        ({"invoke.json": "{"}, "error: cannot read {folder}/invoke.json: "),
        ({"invoke.yaml": "- a\n"}, "error: {folder}/invoke.yaml must be a mapping of settings (name: value)"),
        (
            {"invoke.yaml": "openpai: 3\n"},
            "error: {folder}/invoke.yaml: 'openpai' must be a mapping of settings",
        ),
        ({"invoke.yaml": "openpai: {gpu: two}\n"}, "error: {folder}/invoke.yaml: gpu must be a whole number"),
        (
            {"invoke.yaml": "openpai: {cpu: true}\n"},
            "error: {folder}/invoke.yaml: cpu must be a whole",
        ),
        (
            {"invoke.yaml": "run: 3\n"},
            "error: {folder}/invoke.yaml: run is a value here and a group",
        ),
        (
            {".openpai/defaults.yaml": "a: b: c\n"},
            "error: {folder}/.openpai/defaults.yaml, line 1: not",
        ),
        (
            {".openpai/defaults.yaml": "- a\n"},
            "error: {folder}/.openpai/defaults.yaml must be a mapping of settings",
        ),
    ],
)
def test_invalid_settings_file_is_a_one_line_error(project, inv, files, message):
    for name, text in files.items():
        project.write(name, text)
    ran = inv("config.show")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert ran.err.startswith(message.format(folder=project.folder))


def test_keys_that_clash_as_variables_fail_only_when_the_variable_is_set(project, inv, monkeypatch):
    ours = "openpai: {virtual_cluster: a, virtual-cluster: b}"
    project.write("invoke.yaml", f"foo_bar: 1\nfoo: {{bar: 2}}\n{ours}\n")
    assert inv("config.show").code == 0
    monkeypatch.setenv("INVOKE_FOO_BAR", "3")
    ran = inv("config.show")
    assert (ran.code, ran.err) == (
        120,
        "error: INVOKE_FOO_BAR is ambiguous (foo_bar and foo.bar); use invoke.yaml instead\n",
    )


@pytest.mark.parametrize(
    "name, value, message",
    [
        (
            "INVOKE_THINGS",
            "a",
            "error: INVOKE_THINGS: lists cannot be set by a variable",
        ),
        ("INVOKE_NUMBER", "a", "error: INVOKE_NUMBER must be of type int"),
        (
            "INVOKE_OPENPAI_HTTP_TIMEOUT",
            "soon",
            "error: INVOKE_OPENPAI_HTTP_TIMEOUT: http-timeout must be",
        ),
        ("INVOKE_RUNTIME_CONFIG", "nope.yaml", "error: no such settings file: nope.yaml"),
        ("INVOKE_RUNTIME_CONFIG", "tasks.txt", "error: cannot read tasks.txt: its name must end in .yaml"),
    ],
)
def test_invalid_environment_variable_is_a_one_line_error(project, inv, monkeypatch, name, value, message):
    project.write("invoke.yaml", "things: [1]\nnumber: 1\n")
    monkeypatch.setenv(name, value)
    ran = inv("config.show")
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1)
    assert ran.err.startswith(message)


def test_environment_variables_of_invoke_still_work(project, monkeypatch):
    project.tasks("@task\ndef echo(c):\n    print(c.config.run.echo, c.config.number)\nns.add_task(echo)\n")
    project.write("invoke.yaml", "number: 1\n")
    monkeypatch.setenv("INVOKE_RUN_ECHO", "1")
    monkeypatch.setenv("INVOKE_NUMBER", "7")
    assert project.inv("echo").out == "True 7\n"


def test_unknown_setting_causes_one_warning(project, inv):
    project.write("invoke.yaml", "openpai: {imgae: x}\n")
    ran = inv("config.show", "config.show")
    warning = f"warning: {project.folder}/invoke.yaml: no setting named 'imgae', did you mean image?\n"
    assert (ran.code, ran.err) == (0, warning)


def test_concurrent_config_set_commands_lose_nothing(shell):
    names = ("image", "workspace", "python", "virtual-cluster", "editor")
    started = [shell.start("inv", "config.set", "-g", f"{name}=x{name}") for name in names]
    assert [process.wait(60) for process in started] == [0] * len(names)
    for process in started:
        process.communicate()
    written = yaml.safe_load((shell.home / "defaults.yaml").read_text())
    assert written == {name: f"x{name}" for name in names}


def test_set_unset_and_select_change_the_project_from_a_sub_folder(project, inv, monkeypatch):
    path = project.folder / ".openpai" / "defaults.yaml"
    project.write("a/b/x", "")
    monkeypatch.chdir(project.folder / "a" / "b")
    assert inv("config.set", "cpu=7").err == f"set cpu in {path}\n"
    assert shown(inv, "cpu") == (7, str(path))
    assert project.pai("cluster", "select", "local").code == 0
    assert yaml.safe_load(path.read_text()) == {"cpu": 7, "cluster-alias": "local"}
    assert inv("config.unset", "cpu").err == f"unset cpu in {path}\n"
    assert inv("config.unset", "cpu").err == f"not set in {path}: cpu\n"
    assert not (project.folder / "a" / "b" / ".openpai").exists()


def test_clusters_of_a_project_are_found_from_a_sub_folder(project, inv, monkeypatch):
    assert inv("config.set", "clusters-in-local=yes").code == 0
    assert inv("cluster.add", "lab", "http://127.0.0.1:1", "--user", "ann", "--no-check").code == 0
    project.write("a/x", "")
    monkeypatch.chdir(project.folder / "a")
    assert "lab" in inv("cluster.list").out
