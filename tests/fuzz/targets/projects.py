"""Records and rules in the folder of a project, addresses, and what programs of other machines print."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.errors import PaiError
from openpai_tasks.net import addresses, web_address
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.protocol.quantities import parse_quantity
from openpai_tasks.sdk.images import programs
from openpai_tasks.sdk.images.dockerfiles import dockerfile
from openpai_tasks.sdk.jobs import records
from openpai_tasks.sdk.sweeps import records as sweep_records
from openpai_tasks.storage.job_files.ignore_rules import IgnoreRules, read_lines
from openpai_tasks.storage.job_files.workspace import SOURCE, Workspace
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import locate
from openpai_tasks.storage.packing.har import split_url
from openpai_tasks.storage.store import StorageSpec, Store
from openpai_tasks.text.durations import parse_since
from openpai_tasks.tunnel import installing, openssh, tunnel, wheels
from openpai_tasks.tunnel.openssh import RemoteResult
from tests.fuzz.scratch import empty_folder, home_folder
from tests.fuzz.target import Target


def _ignore(data: bytes) -> object:
    path = empty_folder("settings") / ".paiignore"
    path.write_bytes(data)
    rules = IgnoreRules(read_lines(path))
    paths = ("a", "a/b.txt", "src/deep/er/c.py", "a" * 200 + "b", "/".join("a" * 50), "x y[z]")
    return [rules.verdict(one, is_folder) for one in paths for is_folder in (False, True)]


def _record(data: bytes) -> object:
    """Read the record of a submission that came with a project's folder."""
    folder = empty_folder("project")
    (folder / ".openpai" / "jobs" / "train").mkdir(parents=True)
    (folder / ".openpai" / "jobs" / "train" / "record.json").write_bytes(data)
    with home_folder({}):
        found = records.find_record(folder, "train")
        records.last_submitted(folder, "lab")
        return found and records.trusted_sources(found, folder)


def _sweep(data: bytes) -> object:
    """Read the record of a sweep that came with a project's folder."""
    folder = empty_folder("project")
    (folder / ".openpai" / "sweeps" / "lab").mkdir(parents=True)
    (folder / ".openpai" / "sweeps" / "lab" / "train.jsonl").write_bytes(data)
    return sweep_records.load(folder, "lab", "train").points


def _reference(data: bytes) -> object:
    """Read the record of a job's archive in a workspace, which other users may write to."""
    folder = empty_folder("workspace")
    (folder / "jobs" / "train" / SOURCE).mkdir(parents=True)
    (folder / "jobs" / "train" / SOURCE / "none.json").write_bytes(data)
    space = Workspace("/", LocalStore(str(folder)))
    return space.references_of("train"), space.references()


class _Book:
    """Clusters with one storage."""

    def storages(self, cluster: str) -> tuple[str, ...]:
        return ("home",)

    def opened(self, cluster: str, storage: str) -> tuple[StorageSpec, Store]:
        return StorageSpec(cluster, storage, "nfs", {}, "me"), LocalStore(str(empty_folder("store")))

    def cluster_url(self, path: str) -> str:
        return ""


def _address(data: bytes) -> object:
    """Parse an address in every way that some command does."""
    text = data.decode("utf-8", "surrogateescape")
    found = []
    for parse in (parse_ssh, web_address.normal, addresses.parse_server, addresses.parse_url):
        with contextlib.suppress(ValueError):  # each caller adds the name of its setting
            found.append(parse(text))
    for read in (split_url, parse_since, _dockerfile, _locate):
        with contextlib.suppress(PaiError):
            found.append(read(text))
    return found, parse_quantity(text)


def _dockerfile(text: str) -> str:
    return dockerfile(text, [text], [text])


def _locate(text: str) -> str:
    return locate(text, cast(Any, _Book())).url


def _remote(data: bytes) -> object:
    """Read what a login node prints: the server there, its Python, and errors of ssh."""
    text = data.decode("utf-8", "replace")
    ssh = cast(Any, SimpleNamespace(address=parse_ssh("me@login")))
    found: list[object] = [openssh.login_error(ssh.address, text)]
    found += [wheels.last_error(text), wheels.not_found(text)]
    found += [installing._error("login", RemoteResult(code, text, text)) for code in (1, installing.NO_PIP)]
    with contextlib.suppress(PaiError):
        found += wheels.Target.read(text).flags()
    with contextlib.suppress(PaiError):
        found.append(tunnel._server(ssh, "lab", cast(Any, SimpleNamespace(out=text)), ""))
    return found


def _images(data: bytes) -> object:
    """Read what docker prints: a list of images, and the programs that an image has."""
    text = data.decode("utf-8", "replace")
    return programs.parse_images(text), programs.parse_findings("docker", "image", 0, text)


IGNORE = b"# comment\n*.py[co]\n!keep.pyc\n/build/\n**/a/**/b?\n[[:alpha:]]*[!a-z]\n\\#x\\ \nfoo*bar*baz*\n"
RECORD = json.dumps(
    {
        **dict.fromkeys(("name", "user", "cluster", "uri", "command", "commit"), "a"),
        **dict.fromkeys(("source_hash", "cloned_from", "document"), "b"),
        **{"submitted": 1, "dirty": False, "settings": {}, "archive": "c", "format": 1},
        **{"sources": ["a.py"], "secrets": ["TOKEN"], "files": {"a.py": "d"}},
    }
).encode()
SWEEP = b'{"identity": "abc"}\n{"job": "train-1", "point": {"lr": "0.1"}}\n{"job": "train-2", "point": {}}\n'
REFERENCE = json.dumps(
    {"job": "train", "user": "me", "cluster": "lab", "archive": "", "size": 1, "files": 1, "submitted": 1}
).encode()
ADDRESSES = (
    *(b"pai://lab/home/data/../x", b"https://pai.example.com:443/rest-server/", b"ssh://me@[::1]:22"),
    *(
        b"har://hdfs-host:8020/x.har/a",
        b"s3://bucket/key",
        b"host:5000/lab/train:1@sha256:",
        b"hdfs://h:9000/a",
    ),
    *(b"torch[a,b]>=2,<3; python_version>'3'", b"2026-01-02T10:00:00Z", b"1d12h", b"16384Ki", b"./a/./b//c/"),
)
_LINES = json.dumps({"engine": "slurm", "socket": "/tmp/a.sock", "version": "1.0", "host": "login1"})
_LOGIN = json.dumps({"user": "me", "password": "x", "token": "y"})
_PYTHON = {
    "interpreter": "cp311",
    "abi": "cp311",
    "platforms": ["manylinux_2_17_x86_64"],
    "environment": {"a": "b"},
}
MARK = tunnel._MARK
REMOTE = (
    f"motd\n{MARK}login1\n{_LINES}\n{MARK}\n{_LOGIN}\n{MARK}\n".encode(),
    f"motd\n{json.dumps(_PYTHON)}\n".encode(),
    b"me@login: Permission denied (publickey,password).\n",
)
IMAGES = (
    b"lab/train\t1\tsha256:abc\t2026-01-02 10:00:00 +0000 UTC\t1.2GB\n<none>\t<none>\tid\tx\ty\n"
    b"pai-check python3 Python 3.11.2\n"
)

TARGETS = (
    Target("ignore-rules", _ignore, (IGNORE,)),
    Target("submission-record", _record, (RECORD,)),
    Target("sweep-record", _sweep, (SWEEP,)),
    Target("workspace-reference", _reference, (REFERENCE,)),
    Target("addresses", _address, ADDRESSES),
    Target("login-node", _remote, REMOTE),
    Target("docker-lists", _images, (IMAGES,)),
)
