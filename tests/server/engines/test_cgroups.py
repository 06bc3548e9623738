"""Find the cgroup for tasks, in trees of plain files; tests/e2e/test_asked_for.py has real limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.server.engines.cgroups import CgroupTree, find_groups
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.storage.local import identity

UNIFIED = "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "32 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "33 1 0:29 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def group(root: Path, path: str, procs: str = "", allowed: str = "") -> Path:
    folder = root / "sys/fs/cgroup" / path
    for name, text in (
        ("cgroup.controllers", "cpu memory pids\n"),
        ("cgroup.subtree_control", allowed),
        ("cgroup.procs", procs),
    ):
        write(folder, name, text)
    return folder


def see(root: Path, cgroup: str, mounts: str) -> CgroupTree:
    write(root, "proc/self/cgroup", cgroup)
    write(root, "proc/self/mountinfo", mounts)
    return CgroupTree(root)


def test_server_that_is_alone_in_its_group_moves_to_a_child(tmp_path: Path) -> None:
    own = group(tmp_path, "mine", f"{os.getpid()}\n")
    (own / "openpai-server").mkdir()
    found, limits = find_groups(see(tmp_path, "0::/mine\n", UNIFIED))
    assert (found, str(limits)) == (own, "memory enforced (cgroup v2)")
    assert (own / "openpai-server/cgroup.procs").read_text() == "0"
    assert (own / "cgroup.subtree_control").read_text() == "+memory"


ORDINARY = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything; run as an ordinary user")


@ORDINARY
def test_group_that_cannot_be_written_is_left_for_its_parent(tmp_path: Path) -> None:
    outer, inner = group(tmp_path, "mine", allowed="memory\n"), group(tmp_path, "mine/session", "1\n2\n")
    (inner / "cgroup.subtree_control").chmod(0o400)
    assert find_groups(see(tmp_path, "0::/mine/session\n", UNIFIED))[0] == outer
    (outer / "cgroup.procs").chmod(0o400)
    (tmp_path / "sys/fs/cgroup").chmod(0o500)
    found, limits = find_groups(CgroupTree(tmp_path))
    assert (found, str(limits)) == (None, "memory not enforced: you may not make cgroups here")


def test_version_1_has_the_memory_where_version_2_has_not(tmp_path: Path) -> None:
    unified = group(tmp_path, "unified")
    (unified / "cgroup.controllers").write_text("\n")
    first = tmp_path / "sys/fs/cgroup/memory/task"
    first.mkdir(parents=True)
    found, limits = find_groups(see(tmp_path, "4:memory:/box/task\n1:cpu:/\n0::/\n", HYBRID))
    assert (found, str(limits)) == (first, "memory enforced (cgroup v1)")
    outside = see(tmp_path, "4:memory:/elsewhere\n0::/\n", HYBRID)
    assert find_groups(outside)[0] is None  # it is not mounted here


def test_system_without_cgroups_enforces_nothing(tmp_path: Path) -> None:
    found, limits = find_groups(CgroupTree(tmp_path))
    assert (found, str(limits)) == (None, "memory not enforced: this system has no cgroups")


@ORDINARY
def test_user_who_does_not_linger_gets_no_group_of_systemd(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    own = group(tmp_path, "user.slice/session-1.scope", "1\n2\n")
    for file in (own / "cgroup.procs", own):
        file.chmod(0o500)
    found, limits = find_groups(see(tmp_path, "0::/user.slice/session-1.scope\n", UNIFIED))
    assert found is None and "loginctl enable-linger" in str(limits)


def test_other_mounts_may_have_any_name_and_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel escapes only spaces, tabs, newlines and backslashes."""
    (tmp_path / "sys/fs/cgroup/memory/task").mkdir(parents=True)
    tree = see(tmp_path, "4:memory:/box/task\n0::/\n", HYBRID)
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.write_bytes(b"40 1 0:30 / /mnt/caf\xe9\r\x0bx rw - tmpfs  rw\n" + HYBRID.encode())
    assert find_groups(tree)[0] == tmp_path / "sys/fs/cgroup/memory/task"
    assert dict(usage.group_mounts(str(mounts)))["memory"] == "/sys/fs/cgroup/memory"
    monkeypatch.setattr(identity, "MOUNTS", str(mounts))
    assert len(identity._mounts()) == 4
