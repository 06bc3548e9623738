"""Copying files from the command line to the embedded cluster's storage, and back."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.memory import measurable, peak

HOME = "pai://local/home"


@pytest.fixture
def files(cluster):
    """The shared cluster with an empty storage and an empty project folder."""
    cluster.run("sh", "-c", f"rm -rf '{cluster.home}'/local/storage/home/*/*")
    cluster.run("sh", "-c", "rm -rf data out big copy *.txt")
    data = cluster.project / "data"
    (data / "sub" / "empty").mkdir(parents=True)
    (data / "a.txt").write_text("1\n2\n3\n")
    (data / "sub" / "odd #%?\né").write_text("odd")
    return cluster


def on_a_terminal(shell, answer, *argv):
    """Run `inv` with a terminal as stdin, stdout and stderr; return its exit code and output."""
    master, slave = pty.openpty()
    with shell.start("inv", *argv, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.write(master, answer.encode())
        shown = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(master)
    return process.returncode, shown.decode()


def test_storages_are_listed(files):
    (row,) = files.ok("storage.list", "-o", "json").json()
    assert (row["name"], row["type"], row["permission"], row["default"]) == ("home", "local", "rw", True)
    assert row["mount_point"] == "$PAI_MOUNT_ROOT/mnt/home" and row["url"] == f"{HOME}/"
    assert files.pai("list-storages", "local", "-o", "json").json() == [row]
    assert [entry["name"] for entry in files.ok("storage.ls", "pai://local/", "-o", "json").json()] == [
        "home"
    ]


def test_folder_is_copied_to_the_storage_and_back(files):
    sent = files.ok("storage.copy", "data", f"{HOME}/", "-o", "json").json()
    assert (sent["files"], sent["bytes"], sent["skipped"], sent["failed"]) == (2, 9, 0, [])
    assert files.ok("storage.cp", "data", f"{HOME}/", "-o", "json").json()["skipped"] == 2
    assert files.ok("storage.cp", f"{HOME}/data", "out").out.startswith("2 copied (9 B), 0 skipped, 0 failed")
    assert subprocess.run(["diff", "-r", "data", "out"], cwd=files.project).returncode == 0


def test_job_reads_and_writes_files_on_the_storage(files):
    files.ok("storage.cp", "data/a.txt", f"{HOME}/in.txt")
    files.ok(
        "job.sub", 'cp "$PAI_MOUNT_ROOT/mnt/home/in.txt" "$PAI_MOUNT_ROOT/mnt/home/out.txt"', "--follow",
        "--sources", "data/a.txt",
    )  # fmt: skip
    assert files.ok("storage.cat", f"{HOME}/out.txt").out == "1\n2\n3\n"


def test_the_classic_commands_work(files):
    assert files.pai("makedirs", f"{HOME}/a/b").code == 0
    assert files.pai("copy", "data/a.txt", f"{HOME}/a/b/").code == 0
    assert "a.txt" in files.pai("listdir", f"{HOME}/a/b").out
    assert files.pai("getinfo", f"{HOME}/a/b/a.txt", "-o", "json").json()["size"] == 6
    assert files.pai("delete", f"{HOME}/a/b/a.txt").code == 0
    assert files.pai("listdir", f"{HOME}/a/b").out == ""


def test_files_can_be_inspected(files):
    files.ok("storage.cp", "data", f"{HOME}/")
    assert files.ok("storage.cat", f"{HOME}/data/a.txt", "data/a.txt").out == "1\n2\n3\n" * 2
    assert files.ok("storage.head", "-n", "2", f"{HOME}/data/a.txt").out == "1\n2\n"
    assert files.ok("storage.head", f"{HOME}/data/a.txt").out == "1\n2\n3\n"
    info = files.ok("storage.info", f"{HOME}/data/a.txt", "--checksum", "-o", "json").json()
    assert info["checksum"].startswith("sha256:") and info["type"] == "file"
    usage = files.ok("storage.du", f"{HOME}/data", "-o", "json").json()
    assert [(row["url"], row["files"], row["size"]) for row in usage] == [
        (f"{HOME}/data/a.txt", 1, 6), (f"{HOME}/data/sub", 1, 3), (f"{HOME}/data", 2, 9),
    ]  # fmt: skip
    assert files.ok("storage.tree", f"{HOME}/data").out.splitlines() == [
        f"{HOME}/data",
        "├── a.txt",
        "└── sub/",
        "    ├── empty/",
        r"    └── odd #%?\né",
    ]
    assert len(files.ok("storage.tree", f"{HOME}/data", "--depth", "1", "-o", "json").json()) == 2
    found = files.ok("storage.find", f"{HOME}/data", "--name", "odd*", "--type", "file", "-o", "json").json()
    assert [entry["name"] for entry in found] == ["sub/odd #%?\né"]
    assert files.ok("storage.find", f"{HOME}/data", "--min-size", "7").out == ""
    assert "data/" in files.ok("storage.ls").out
    lines = files.ok("storage.ls", f"{HOME}/data").out.splitlines()
    assert [line.split()[-1] for line in lines] == ["a.txt", "sub/"] and lines[0].split()[0] == "6"


def test_sync_copies_new_files_and_deletes_on_request(files):
    files.ok("storage.sync", "data", f"{HOME}/copy")
    (files.project / "data" / "a.txt").unlink()
    (files.project / "data" / "b.txt").write_text("b")
    preview = files.ok("storage.sync", "data", f"{HOME}/copy", "--delete", "--preview")
    assert (
        "copied" in preview.err
        and "removed /copy/a.txt" in preview.err
        and preview.out.startswith("preview: 1 copied")
    )
    assert "b.txt" not in files.ok("storage.ls", f"{HOME}/copy").out
    done = files.ok("storage.sync", "data", f"{HOME}/copy", "--delete", "-o", "json").json()
    assert (done["files"], done["skipped"], done["removed"]) == (1, 1, 1)
    assert "a.txt" not in files.ok("storage.ls", f"{HOME}/copy").out


def test_the_exit_code_is_0_only_if_everything_arrived(files):
    (files.project / "data" / "nowhere").symlink_to("none")
    ran = files.inv("storage.cp", "data", f"{HOME}/", "-o", "json")
    assert ran.code == 123 and "error: 1 of 3 did not arrive" in ran.err
    (failure,) = ran.json()["failed"]
    assert failure["path"].endswith("/nowhere") and failure["reason"] == "a broken symlink"
    assert ran.json()["files"] == 2


def test_exit_code_depends_on_the_error(files):
    for target, code in (("pai://none/x", 120), (f"{HOME}/", 123)):
        assert files.inv("storage.cp", "nosuch", target).code == code
    assert files.inv("storage.cp", "data", "data/sub").code == 123
    assert files.inv("job.sub", "true", "--sources", "nosuch").code == 123


@pytest.fixture
def in_memory():
    """A folder in memory if the system has one: many files are made there in a tenth of the time."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


@measurable
def test_long_listing_is_complete_and_memory_does_not_grow_with_it(files, in_memory):
    folder, names, lines = in_memory / "copy", 30_000, {}
    folder.mkdir()
    for number in range(names):
        os.mknod(folder / f"a name that is a little longer than others {number}")
    for verb in ("ls", "find", "du"):
        with (in_memory / verb).open("w") as output:
            listing = files.start("inv", f"storage.{verb}", str(folder), fresh=True, stdout=output)
            held = peak(listing)
        listing.stderr.close()
        assert listing.returncode == 0 and held < 46 << 20, (verb, held)
        lines[verb] = len((in_memory / verb).read_text().splitlines())
    assert lines == {"ls": names, "find": names, "du": names + 2}  # with a header and the sum


def test_partial_files_are_listed_only_with_all(files):
    part = ".pai-part-0123456789abcdef"
    (files.project / "data" / part).touch()
    assert part not in files.ok("storage.ls", "data").out
    assert part in files.ok("storage.ls", "--all", "data").out


def test_protected_paths_are_never_removed(files):
    files.ok("storage.cp", "-r", "data", f"{HOME}/")
    for target in ("/", f"{HOME}/", f"{HOME}", "", f"{HOME}//data", ".", "..", "pai://local/"):
        ran = files.inv("storage.rm", "-r", "-y", target)
        assert ran.code in (120, 122, 123) and ran.err.startswith("error: "), target
    for target in (f"{HOME}/*", f"{HOME}/d*"):
        ran = files.inv("storage.rm", "-r", target)
        assert ran.code == 120 and "is a variable empty? --yes removes what it matches" in ran.err
    for target in (str(files.home), str(files.project), files.environment["HOME"]):
        ran = files.inv("storage.rm", "-r", "-y", target)
        assert ran.code == 122 and "so it is never removed" in ran.err, ran
    assert (files.project / "data" / "a.txt").exists()
    assert "a.txt" in files.ok("storage.ls", f"{HOME}/data").out
    files.ok("storage.rm", "-r", "-y", f"{HOME}/*")
    assert files.ok("storage.ls", f"{HOME}/").out == ""


def test_removing_a_full_folder_needs_recursive_and_confirmation(files):
    files.ok("storage.cp", "data", f"{HOME}/")
    assert "--recursive removes it all" in files.inv("storage.rm", f"{HOME}/data").err
    code, shown = on_a_terminal(files, "n\n", "storage.rm", "--recursive", f"{HOME}/data")
    assert code == 120 and f"remove {HOME}/data and everything in it? [y/N]" in shown
    assert "a.txt" in files.ok("storage.ls", f"{HOME}/data").out
    assert on_a_terminal(files, "y\n", "storage.rm", "--recursive", f"{HOME}/data")[0] == 0
    assert files.ok("storage.ls", f"{HOME}/").out == ""
    files.ok("storage.cp", "data", f"{HOME}/")
    assert on_a_terminal(files, "", "storage.rm", "--recursive", "--yes", f"{HOME}/data")[0] == 0


def test_removing_a_match_of_brackets_needs_confirmation(files):
    (files.project / "b1.txt").write_text("")
    assert "--yes removes it" in files.inv("storage.rm", "b[1].txt").err
    code, shown = on_a_terminal(files, "n\n", "storage.rm", "b[1].txt")
    assert code == 120 and "b1.txt? [y/N]" in shown and (files.project / "b1.txt").exists()
    files.ok("storage.rm", "--yes", "b[1].txt")
    assert not (files.project / "b1.txt").exists()


def test_names_that_the_output_cannot_encode_are_escaped(files):
    (files.project / "data" / "naïve").write_text("")
    lines = [word for verb in ("ls", "tree", "find", "du") for word in (f"storage.{verb}", "data")]
    ran = files.ok(*lines, PYTHONIOENCODING="ascii")
    assert ran.out.count("na\\xefve") == 4


def test_reason_of_a_failure_stays_on_one_line(files):
    (files.project / "data" / "new\n\x1bline").symlink_to("none\n\x1b")
    ran = files.inv("storage.cp", "data", f"{HOME}/")
    assert ran.code == 123 and len(ran.out.splitlines()) == 2 and "\x1b" not in ran.out


def test_terminal_shows_a_progress_bar(files):
    with open(files.project / "big", "wb") as file:
        file.truncate(400 << 20)
    code, shown = on_a_terminal(files, "", "storage.cp", "big", f"{HOME}/")
    assert code == 0 and "━" in shown and "left" in shown and "1 copied (400.0 MiB)" in shown


def test_killed_copy_leaves_no_file_and_the_next_one_completes(files):
    with open(files.project / "big", "wb") as file:
        file.truncate(4 << 30)  # it takes seconds to copy
    copying = files.start("inv", "storage.cp", "big", "copy/")
    folder, ended = files.project / "copy", time.monotonic() + 60
    while not (folder.exists() and any(part.stat().st_size for part in folder.iterdir())):
        assert time.monotonic() < ended and copying.poll() is None
        time.sleep(0.005)
    copying.send_signal(signal.SIGKILL)
    copying.communicate()
    assert not (folder / "big").exists()
    os.truncate(files.project / "big", 64 << 20)
    assert files.ok("storage.cp", "big", "copy/", "-o", "json").json()["files"] == 1
    assert (folder / "big").stat().st_size == 64 << 20


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_ctrl_c_and_sigterm_end_a_copy_at_once_and_cleanly(files, number, code):
    with open(files.project / "big", "wb") as file:
        file.truncate(4 << 30)
    copying = files.start("inv", "storage.cp", "data/a.txt", "big", "copy/", "-o", "json")
    folder, ended = files.project / "copy", time.monotonic() + 60
    first = folder / "a.txt"  # before it has this name, its part may be renamed before its size is read
    while not (first.exists() and any(part.stat().st_size for part in folder.glob(".pai-part-*"))):
        assert time.monotonic() < ended and copying.poll() is None
        time.sleep(0.005)
    copying.send_signal(number)
    out, err = copying.communicate(timeout=60)
    assert copying.returncode == code
    *progress, last = err.splitlines()  # there is progress if this test was slow to send the signal
    assert all(line.startswith("1/2 files, ") for line in progress)
    assert last.startswith("interrupted: 1 copied (6 B), 0 skipped, 0 failed, ")
    assert last.endswith("; run it again to continue")
    summary = json.loads(out)
    assert (summary["files"], summary["bytes"], summary["interrupted"]) == (1, 6, True)
    names = {path.name for path in folder.iterdir()} - {"a.txt"}
    assert all(name.startswith(".pai-part-") for name in names)  # the next run continues with it
    assert "pai-part" not in files.ok("storage.ls", "copy").out


def test_terminated_pack_leaves_no_files(files):
    with open(files.project / "data" / "big", "wb") as file:
        file.truncate(4 << 30)
    packing = files.start("inv", "storage.pack", "data", "copy", "--shard-size", "8G")
    folder, ended = files.project / "copy", time.monotonic() + 60
    while not (folder.exists() and any(part.stat().st_size > 1 << 20 for part in folder.iterdir())):
        assert time.monotonic() < ended and packing.poll() is None
        time.sleep(0.005)
    packing.send_signal(signal.SIGTERM)
    out, err = packing.communicate(timeout=60)
    *progress, last = err.splitlines()  # there is progress if this test was slow to send the signal
    assert all(" files, " in line for line in progress), err
    assert (packing.returncode, out, last) == (143, "", "interrupted: nothing was written; run it again")
    assert list(folder.iterdir()) == []


def test_error_names_the_path_with_its_storage(files):
    files.ok("storage.cp", "data/a.txt", "PAI://local/home/a.txt")
    for line in (("mkdir", f"{HOME}/a.txt/x"), ("cp", "data/a.txt", f"{HOME}/a.txt/x/")):
        ran = files.inv(f"storage.{line[0]}", *line[1:])
        assert ran.code == 123 and ran.err.startswith(f"error: {HOME}/a.txt/x"), ran
    assert "folder for your work on the storage" in files.ok("--help", "storage.select").out


def test_full_disk_is_reported_and_leaves_no_files(files):
    with open(files.project / "big", "wb") as file:
        file.truncate(2 << 20)
    ran = files.run("sh", "-c", "ulimit -f 1000; inv storage.cp big copy/")
    assert ran.code == 123 and "file too large" in ran.out and "Traceback" not in ran.err
    assert list((files.project / "copy").iterdir()) == []


@measurable
def test_memory_does_not_grow_with_the_size_of_a_file(files):
    with open(files.project / "big", "wb") as file:
        file.truncate(250 << 20)
    copying = files.start("inv", "storage.cp", "big", f"{HOME}/", fresh=True, stdout=subprocess.DEVNULL)
    held = peak(copying)
    copying.stderr.close()
    assert copying.returncode == 0 and held < 200 << 20


def test_setting_for_mounted_shares_is_checked_and_stored(files):
    wrong = files.inv("storage.ls", f"{HOME}/", INVOKE_OPENPAI_STORAGE_MOUNTS="nonsense")
    assert wrong.code == 120 and "storage.mounts: 'nonsense' must be WHAT=FOLDER" in wrong.err
    files.ok("config.set", "storage.mounts=lab/data=/mnt/data,nas:/x=/mnt/x")
    (row,) = [row for row in files.ok("config.show", "-o", "json").json() if row["name"] == "storage.mounts"]
    assert row["value"] == ["lab/data=/mnt/data", "nas:/x=/mnt/x"]
    files.ok("config.unset", "storage.mounts")


@pytest.mark.parametrize(
    "line, says",
    [
        (("storage.ls", "pai://none/x"), "no cluster named 'none'"),
        (("storage.ls", "pai://local/none"), "no storage named 'none' on 'local' (known: home)"),
        (("storage.ls", f"{HOME}/none"), "no such file or folder"),
        (("storage.cat", f"{HOME}/"), "is a folder, not a file"),
        (("storage.tree", "data/a.txt"), "is a file, not a folder"),
        (("storage.cp", "data"), "name a source and a target"),
        (("storage.mkdir",), "storage.makedir needs PATHS"),
        (("storage.cp", "data", "ftp://x/y"), "unknown kind of storage ftp://"),
        (("storage.cp", "data", f"{HOME}/../x"), "'..' is not allowed"),
        (("storage.find", "data", "--type", "dir"), "a type is file or folder"),
        (("storage.sync", "data/a.txt", "out"), "sync takes a folder"),
        (("storage.cp", "data", "out", "--workers", "65"), "--workers must be at most 64, got 65"),
        (("storage.pack", "data", "out", "--workers", "3000"), "--workers must be at most 64"),
    ],
)
def test_mistakes_are_reported_in_one_line(files, line, says):
    ran = files.inv(*line)
    assert ran.code in (120, 122, 123) and says in ran.err and "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == 1
