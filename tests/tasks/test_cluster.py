"""The cluster commands as a person types them, against servers that answer as OpenPAI does."""

import os
import pty
import select
import stat
import time

import pytest

from openpai_tasks.sdk.clusters import editing
from tests.sdk.pai_server import PASSWORD, USER, PaiServer


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture(scope="module")
def server():
    server = PaiServer()
    yield server
    server.close()


@pytest.fixture
def add(shell, server):
    """`inv cluster.add lab` of the server; further flags and variables as given."""

    def run(*flags, **options):
        return shell.inv("cluster.add", "lab", server.uri, "--user", USER, *flags, **options)

    return run


def assert_one_line(ran, code, *words):
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1, ran.err
    for word in words:
        assert word in ran.err


def test_a_password_in_the_environment_is_used_and_shown_nowhere(shell, server):
    ran = shell.ok("-d", "cluster.add", "lab", server.uri, "--user", USER, OPENPAI_PASSWORD=PASSWORD)
    shown = ran.out + ran.err
    for command in (("cluster.list", "-o", "json"), ("-d", "cluster.info", "lab"), ("cluster.update", "lab")):
        ran = shell.ok(*command)
        shown += ran.out + ran.err
    assert PASSWORD not in shown and server.token not in shown
    assert stat.S_IMODE((shell.home / "credentials.yaml").stat().st_mode) == 0o600


def test_password_is_read_from_a_file_or_standard_input(shell, add, tmp_path):
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    assert add("--password-file", str(tmp_path / "secret")).code == 0
    assert add("--password-file", "-", input=PASSWORD + "\n").code == 0


def test_a_password_on_the_command_line_works_with_a_warning(add):
    ran = add("--password", PASSWORD)
    assert ran.code == 0 and "warning: other users can see" in ran.err


def test_update_without_an_alias_covers_all_clusters_but_a_login_needs_an_alias(shell, add):
    assert add("--password", PASSWORD).code == 0
    rows = shell.ok("cluster.update", "-o", "json").json()
    assert [row["alias"] for row in rows] == ["lab"]
    ran = shell.inv("cluster.update", "--user", "ann")
    assert ran.code == 120 and "`inv cluster.update ALIAS`" in ran.err


def test_password_prompt_on_a_terminal_does_not_echo_the_password(shell, server):
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    words = ("cluster.add", "lab", server.uri, "--user", USER)
    process = shell.start("inv", *words, **streams, start_new_session=True)
    os.close(theirs)
    shown = read_until(ours, f"password of {USER}")
    os.write(ours, PASSWORD.encode() + b"\n")
    shown += read_until(ours, "default, vc1")
    assert process.wait(60) == 0, shown
    os.close(ours)
    assert PASSWORD not in shown
    assert server.uri in shell.ok("cluster.list").out


def read_until(terminal, text, seconds=60):
    """What a terminal shows, until it shows the text."""
    shown, limit = "", time.monotonic() + seconds
    while text not in shown and time.monotonic() < limit:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 4096).decode()
            except OSError:  # the program is gone
                break
    assert text in shown, shown
    return shown


def test_error_without_a_terminal_names_the_ways_to_give_a_password(add):
    assert_one_line(add(), 120, "--password-file", "OPENPAI_PASSWORD")


def test_wrong_password_is_a_one_line_error(add):
    assert_one_line(add(OPENPAI_PASSWORD="wrong-password"), 122, "password of user 'alice' is wrong")


def test_oidc_cluster_without_a_token_is_a_one_line_error(shell):
    server = PaiServer(oidc=True)
    try:
        ran = shell.inv("cluster.add", "aad", server.uri, OPENPAI_PASSWORD=PASSWORD)
        assert_one_line(ran, 120, "OIDC", "--token-file")
    finally:
        server.close()


def test_malformed_clusters_file_is_a_one_line_error_in_every_command(shell):
    shell.home.mkdir()
    (shell.home / "clusters.yaml").write_text("- cluster_alias: [lab\n")
    for command in (("cluster.list",), ("cluster.resources",), ("cluster.select", "lab")):
        assert_one_line(shell.inv(*command), 120, "clusters.yaml is not valid YAML (line")


def test_concurrent_commands_lose_no_cluster(shell, server):
    shell.environment["OPENPAI_PASSWORD"] = PASSWORD
    names = ("one", "two", "three")
    started = [shell.start("inv", "cluster.add", name, server.uri, "--user", USER) for name in names]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    rows = shell.ok("cluster.list", "-o", "json").json()
    assert {row["alias"] for row in rows} == {"local", *names}
    credentials = (shell.home / "credentials.yaml").read_text()
    assert credentials.count("password: ") == 3


def editor(shell, name, text):
    """An editor command that overwrites its file with the text."""
    path = shell.project / name
    path.write_text(f"#!/bin/sh\ncat > \"$2\" <<'END'\n{text}\nEND\n")
    path.chmod(0o700)
    return f"'{path}' --wait"


def test_invalid_edit_is_saved_aside_and_the_clusters_file_is_unchanged(shell, add):
    add(OPENPAI_PASSWORD=PASSWORD)
    before = (shell.home / "clusters.yaml").read_text()
    ran = shell.inv("cluster.edit", "--editor", editor(shell, "my editor", "- cluster_alias: [oops"))
    assert_one_line(ran, 120, "not valid YAML (line", "nothing was changed")
    assert "cluster.edit" not in ran.err
    assert (shell.home / "clusters.yaml").read_text() == before
    kept = ran.err.rsplit(" ", 1)[1].strip()
    with open(kept) as file:
        assert file.read() == "- cluster_alias: [oops\n"


def test_valid_edit_is_saved_and_leaves_no_draft(shell):
    text = "- {cluster_alias: mine, pai_uri: 'http://x', user: ann, password: hunter22}"
    ran = shell.ok("cluster.edit", "--editor", editor(shell, "ed", text), VISUAL="false", EDITOR="false")
    assert "changed" in ran.err
    assert [row["alias"] for row in shell.ok("cluster.list", "-o", "json").json()] == ["local", "mine"]
    assert "hunter22" not in (shell.home / "clusters.yaml").read_text()
    assert not list(shell.home.glob("clusters-edit-*"))
    assert "nothing changed" in shell.ok("cluster.edit", "--editor", "true").err


def test_the_editor_is_vs_code_if_nothing_else_is_set_and_needs_a_terminal(shell, tmp_path, monkeypatch):
    assert_one_line(shell.inv("cluster.edit", EDITOR="vi"), 120, "cluster.edit needs a terminal", "--editor")
    for name in ("code", "nano", "mine"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    for variables, wanted in (
        ({}, ["code", "--wait"]),
        ({"EDITOR": "nano"}, ["nano"]),
        ({"EDITOR": "nano", "VISUAL": "mine"}, ["mine"]),
    ):
        for name in ("EDITOR", "VISUAL"):
            monkeypatch.setenv(name, variables.get(name, ""))
        assert editing.editor_command("") == wanted
    assert editing.editor_command("nano -w") == ["nano", "-w"]
    (tmp_path / "code").unlink()
    monkeypatch.setenv("EDITOR", "")
    monkeypatch.setenv("VISUAL", "")
    assert editing.editor_command("") == ["nano"]


def test_select_checks_the_alias_and_reports_an_override(shell, add):
    add(OPENPAI_PASSWORD=PASSWORD)
    assert_one_line(shell.inv("cluster.select", "nope"), 120, "no cluster named 'nope' (known: lab, local)")
    shell.ok("cluster.select", "lab")
    assert [row["alias"] for row in shell.ok("cluster.list", "-o", "json").json() if row["selected"]] == [
        "lab"
    ]
    ran = shell.ok("cluster.select", "-g", "local")
    assert "defaults.yaml overrides it here and selects lab" in ran.err


def test_credentials_command_prints_the_credentials(shell, server, add):
    add(OPENPAI_PASSWORD=PASSWORD)
    shown = shell.ok("cluster.credentials", "lab", "-o", "json").json()
    assert (shown["uri"], shown["user"], shown["token"]) == (server.uri, USER, server.token)
    assert shown["rest_server_uri"] == server.uri + "/rest-server" and shown["password"] is None


def test_a_deleted_cluster_leaves_nothing_behind(shell, add):
    add(OPENPAI_PASSWORD=PASSWORD)
    shell.ok("cluster.delete", "lab")
    for name in ("clusters.yaml", "credentials.yaml"):
        assert "lab" not in (shell.home / name).read_text()
    assert_one_line(shell.inv("cluster.delete", "lab"), 120, "no cluster named 'lab'")


def test_the_embedded_cluster_can_be_added_like_any_other(shell):
    own = shell.ok("cluster.credentials", "local", "-o", "json").json()
    address = own["uri"].removeprefix("http://")
    ran = shell.ok("cluster.add", "me", address, "--user", own["user"], OPENPAI_PASSWORD=own["password"])
    assert own["password"] not in ran.out + ran.err
    info = shell.ok("cluster.info", "me", "-o", "json").json()
    assert (info["generation"], info["virtual_clusters"], info["storages"]) == ("1.8", ["default"], ["home"])
    rows = shell.ok("cluster.resources", "-o", "json").json()
    assert [(row["cluster"], row["problem"]) for row in rows] == [("local", ""), ("me", "")]
    assert rows[0]["vcores_total"] >= 1
