"""Selecting storages and adding storages of the user, from the command line."""

from __future__ import annotations

import os
import pty
import select
import stat
import time

import pytest

from tests.test_docs import ROOT, commands

KEY = "a-key-nobody-shall-see"


@pytest.fixture
def places(cluster):
    """The shared cluster with nothing chosen, and a folder that can be added."""
    cluster.run(
        "sh", "-c", f"rm -rf '{cluster.home}'/local/choices.yaml '{cluster.home}'/local/storage/home/*/*"
    )
    (cluster.project / "mine").mkdir(exist_ok=True)
    (cluster.project / "mine" / "a.txt").write_text("a\n")
    (cluster.project / "key").write_text(f"{KEY}\n")
    return cluster


def answer_prompt(shell, prompt, answer, *argv):
    """Run `inv` at a terminal and answer its prompt; return its exit code and output."""
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    with shell.start("inv", *argv, **streams, start_new_session=True) as process:
        os.close(slave)
        shown, ended = b"", time.monotonic() + 60
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            assert time.monotonic() < ended, (process.kill(), shown)
            if not select.select([master], [], [], 0.05)[0]:
                continue
            try:
                shown += os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if prompt and prompt in shown.decode():
                os.write(master, f"{answer}\n".encode())
                prompt = ""
    os.close(master)
    return process.returncode, shown.decode()


def rows(shell):
    return {row["name"]: row for row in shell.ok("storage.list", "-o", "json").json()}


def test_selected_storage_can_be_addressed_as_0(places):
    assert not rows(places)["home"]["selected"]
    chosen = places.ok("storage.select", "home", "-w", "exp/one", "-o", "json").json()
    assert chosen["url"] == "pai://local/home/exp/one"
    row = rows(places)["home"]
    assert (row["selected"], row["workspace"], row["origin"]) == (True, "/exp/one", "cluster")
    assert "exp/" in places.ok("storage.ls", "pai://local/0/").out
    mode = (places.home / "local" / "choices.yaml").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    made = places.pai("select-storage", "-a", "local", "--storage-name", "home", "-w", "two")
    assert made.code == 0 and rows(places)["home"]["workspace"] == "/two"


def test_select_without_a_name_lists_the_choices(places):
    ran = places.inv("storage.select")
    assert (ran.code, ran.out) == (120, "")
    assert ran.err == "error: name a storage of 'local': `inv storage.select STORAGE` (known: home)\n"
    code, shown = answer_prompt(places, "storage: ", "home", "storage.select", "--workspace", "asked")
    assert code == 0 and "PERMISSION" in shown and "pai://local/home/asked" in shown
    assert answer_prompt(places, "storage: ", "", "storage.select")[0] == 120
    assert rows(places)["home"]["workspace"] == "/asked"


@pytest.mark.parametrize("line", [("none",), ("home", "-w", "../x"), ("home", "-w", "x", "-a", "nowhere")])
def test_invalid_selection_changes_nothing(places, line):
    ran = places.inv("storage.select", *line)
    assert ran.code in (120, 122, 123) and len(ran.err.splitlines()) == 1 and ran.err.startswith("error: ")
    assert not (places.home / "local" / "choices.yaml").exists()


def test_storage_of_the_user_is_added_used_and_forgotten(places):
    folder = places.project / "mine"
    added = places.ok("storage.add", "mine", "--type", "local", "--path", str(folder), "-o", "json").json()
    assert [row["url"] for row in added] == ["pai://local/mine/"]
    row = rows(places)["mine"]
    assert (row["origin"], row["server"], row["default"]) == ("own", str(folder), False)
    assert places.ok("storage.cat", "pai://local/mine/a.txt").out == "a\n"
    places.ok("storage.cp", "pai://local/mine/a.txt", "pai://local/home/")
    listed = places.ok("storage.ls", "pai://local/", "-o", "json").json()
    assert [entry["name"] for entry in listed] == ["home", "mine"]
    assert places.ok("storage.forget", "mine").err == "removed storage mine; its files stay\n"
    assert "no storage named 'mine'" in places.inv("storage.ls", "pai://local/mine/").err
    assert (folder / "a.txt").exists()


def test_classic_command_adds_a_storage(places):
    line = ("add-storage-cluster", "-a", "local", "--type", "nfs", "--address", "nas", "--path", "/exports")
    assert places.pai(*line, f"configs:mount={places.project}/mine").code == 0
    assert rows(places)["nfs"]["server"] == "nas:/exports"
    assert places.ok("storage.cat", "pai://local/nfs/a.txt").out == "a\n"


def test_secret_comes_from_file_environment_or_terminal_and_is_never_shown(places):
    line = (
        "--type",
        "samba",
        "--address",
        "//nas/docs",
        "--user",
        "bob",
        "--option",
        f"mount={places.project}/mine",
    )
    ran = places.inv("storage.add", "a", *line)
    assert ran.code == 120 and "--password-file or OPENPAI_STORAGE_PASSWORD" in ran.err
    from_file = places.ok("storage.add", "b", *line, "--password-file", "key")
    from_environment = places.ok("storage.add", "c", *line, OPENPAI_STORAGE_PASSWORD=KEY)
    code, shown = answer_prompt(places, "password of bob: ", KEY, "storage.add", "d", *line)
    assert code == 0 and "the secret is stored in" in shown
    listed = places.ok("storage.list", "-o", "json")
    for text in (from_file.out, from_file.err, from_environment.err, shown, listed.out):
        assert KEY not in text
    choices = (places.home / "local" / "choices.yaml").read_text()
    kept = places.home / "credentials.yaml"
    assert KEY not in choices and kept.read_text().count(KEY) == 3
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    places.ok("storage.forget", "b", "c", "d")
    assert KEY not in kept.read_text()


@pytest.mark.parametrize(
    "line, says",
    [
        (("x", "--path", "/tmp"), "--type (known: hdfs, local"),
        (("x", "--type", "local", "--path", "/none/at/all"), "which is missing"),
        (("home", "--type", "local", "--path", "/"), "grants a storage named 'home'"),
        (("x", "--type", "hdfs", "--address", "127.0.0.1:1"), "127.0.0.1:1"),
        (
            ("x", "--type", "s3", "--path", "b", "--option", "secretKey=x"),
            "do not put a secret on the command line",
        ),
        (("a/b", "--type", "local", "--path", "/"), "may have letters"),
        (
            ("x", "--type", "hdfs", "--address", "http://127.0.0.1:99999"),
            "'http://127.0.0.1:99999': expected http",
        ),
        (
            ("x", "--type", "hdfs", "--address", "http://nn:1", "--option", "port=2"),
            "put the port into the url",
        ),
        (
            ("x", "--type", "hdfs", "--address", "nn", "--option", "port=abc"),
            "port must be a number from 1 to 65535",
        ),
        (
            ("x", "--type", "hdfs", "--address", "nn", "--option", "ca=none.pem"),
            "there is no file 'none.pem'",
        ),
        (("x", "--type", "samba", "--address", "//nas/s", "--option", "port=99999"), "got '99999'"),
    ],
)
def test_invalid_storage_is_reported_in_one_line_and_not_saved(places, line, says):
    ran = places.inv("storage.add", *line)
    assert ran.code in (120, 121, 122, 123) and says in ran.err, ran
    assert len(ran.err.splitlines()) == 1 and not (places.home / "local" / "choices.yaml").exists()


def test_invalid_record_is_named_and_the_others_are_used(places):
    """A user may write one by hand, and remove it with `storage.forget`."""
    places.ok("storage.add", "mine", "--type", "local", "--path", str(places.project / "mine"))
    kept = places.home / "local" / "choices.yaml"
    broken = "- name: broken\n  type: ftp\n- name: 5\n  type: s3\n"
    kept.write_text(kept.read_text().replace("own_storages:\n", f"own_storages:\n{broken}"))
    assert places.ok("storage.cat", "pai://local/mine/a.txt").out == "a\n"
    assert [row["name"] for row in places.ok("storage.ls", "pai://local/", "-o", "json").json()] == [
        "home",
        "mine",
    ]
    listed = places.ok("storage.list", "-o", "json")
    assert [row["name"] for row in listed.json()] == ["home", "mine"]
    warnings = listed.err.splitlines()
    assert len(warnings) == 2 and warnings[0].startswith("warning: the record of storage 'broken' of 'local'")
    ran = places.inv("storage.ls", "pai://local/broken/")
    assert ran.code == 120 and ran.err == warnings[0].replace("warning:", "error:") + "\n"
    assert "type 'ftp'" in ran.err and str(kept) in ran.err and "`inv storage.forget broken`" in ran.err
    assert "forget broken` first" in places.inv("storage.add", "broken", "--type", "local", "--path", "/").err
    assert (
        places.ok("storage.forget", "broken", "5").err
        == "removed storage broken; its files stay\nremoved storage 5; its files stay\n"
    )
    after = places.ok("storage.list", "-o", "json")
    assert list(rows(places)) == ["home", "mine"] and after.err == ""
    assert "ftp" not in kept.read_text()


def test_sources_that_exist_already_are_not_sent_again_and_this_is_reported(places):
    first, again = (places.ok("job.sub", "true", "--sources", "mine", "--follow").err for _ in range(2))
    assert "sources: 1 file," in first and "already uploaded" not in first
    assert "sources: 1 file," in again and "sources: already uploaded, not sent again\n" in again


def test_page_commands_run(places):
    for line in commands((ROOT / "docs" / "storage.md").read_text()):
        ran = places.run("sh", "-c", line)
        assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
