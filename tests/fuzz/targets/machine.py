"""Tables of the kernel, whose names others choose: mounts, processes and control groups."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openpai_tasks.net import tcp_tables
from openpai_tasks.sdk.files import mounting
from openpai_tasks.server.engines import cgroups
from openpai_tasks.server.engines.runner import files, processes, usage
from openpai_tasks.storage.local import identity
from tests.fuzz.feeding import replacing
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target

_ESCAPED = {byte: b"\\%03o" % byte for byte in b" \t\n\\"}


def _escape(text: bytes) -> bytes:
    """Escape a name as the kernel does."""
    return b"".join(_ESCAPED.get(byte, bytes([byte])) for byte in text.replace(b"\0", b""))


@contextlib.contextmanager
def _opening(module: Any, data: bytes) -> Iterator[None]:
    """Let a module read these bytes from each file that it opens."""

    def opened(path: object, mode: str = "r", encoding: str = "utf-8", **options: Any) -> Any:
        return io.TextIOWrapper(io.BytesIO(data), encoding, **options)

    module.open = opened
    try:
        yield
    finally:
        del module.open


def _mounts(data: bytes) -> object:
    """Read a table of mounts: one in each line, with root, folder, type, source and options between tabs."""
    rows = [([*map(_escape, line.split(b"\t")), b"", b"", b"", b"", b""])[:5] for line in data.split(b"\n")]
    rows = [(root, b"/" + point, kind or b"x", source, more) for root, point, kind, source, more in rows]
    info = b"".join(
        b"36 35 98:0 /%s %s rw,noatime shared:1 - %s %s %s\n" % (root, point, kind, source, more or b"rw")
        for root, point, kind, source, more in rows
    )
    table = b"".join(
        b"%s %s %s %s 0 0\n" % (source, point, kind, more) for _, point, kind, source, more in rows
    )
    folder = empty_folder("proc")
    (folder / "self").mkdir()
    (folder / "self" / "mountinfo").write_bytes(info)
    (folder / "self" / "mounts").write_bytes(table)
    with replacing(identity, "MOUNTS", str(folder / "self" / "mountinfo")):
        assert len(identity._mounts()) == len(rows)
        identity.identities("/", above=True)
    with _opening(usage, info):
        usage.group_mounts()
    with replacing(mounting, "MOUNTS", folder / "self" / "mounts"):
        assert len(mounting._mounted()) == len({point for _, point, *_ in rows})
    tree = cgroups.CgroupTree(folder.parent)
    files.is_on_nfs(table.decode("utf-8", "surrogateescape"), "/data/a")
    return [*tree._mounts(cgroups.V1), *tree._mounts(cgroups.V2)]


def _processes(data: bytes) -> object:
    """Read files of a process, separated by empty lines: groups, their values, ``stat``, connections."""
    names, values, stat, tables = [*data.split(b"\n\n"), b"", b"", b""][:4]
    names = b"".join(b"%d::/%s\n" % pair for pair in enumerate(names.replace(b"\0", b"").split(b"\n")))
    folder = empty_folder("proc")
    paths = {}
    for name, content in (("cgroup", names), ("value", values), ("stat", stat), ("tcp", tables)):
        paths[name] = folder / name
        paths[name].write_bytes(content)
    read = usage._read

    def redirected(path: str) -> str:
        known = {"cgroup": "cgroup", "stat": "stat", "smaps_rollup": "value"}
        return read(str(paths[known.get(Path(path).name, "value")]))

    group = usage.OtherGroups.__new__(usage.OtherGroups)
    group.folders = [str(folder)]
    with replacing(usage, "_read", redirected), _opening(processes, stat):
        usage.group_paths("1")
        usage.read_group(group)
        usage.read_processes([1])
        usage._share(1)
        processes.parent(1)
    with replacing(tcp_tables, "TCP_TABLES", (paths["tcp"],)):
        return list(tcp_tables.rows())


MOUNTS = (
    b"\thome/a b\text4\t/dev/sda1\trw\n\tsys/fs/cgroup\tcgroup2\tcgroup2\trw\n"
    b"\tsys/fs/cgroup/memory\tcgroup\tcgroup\trw,memory\na\tmnt/\xc3\xa9\tfuse.sshfs\tme@host:/\xff\trw\n"
    b"\tmnt/x\ttmpfs\t\trw\n\tdata\tnfs4\tnas:/data\trw"
)
PROCESS = (
    b"user.slice/a\nb:c\n\nusage_usec 1000\ninactive_file 5\n\n"
    b"42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 100 1000 50 18446744073709551615\n\n"
    b"  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 1000 0 99 1\n"
)
TARGETS = (Target("mount-tables", _mounts, (MOUNTS,)), Target("process-files", _processes, (PROCESS,)))
