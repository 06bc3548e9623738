"""The datacenters in ``~/.paddle/config``, PaddleCloud's own file: read as it is, never written.

Both of its forms are read: the list ``datacenters``, and a mapping for each datacenter. A mistake in the file
is a line in ``problems``; it never stops commands for other clusters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openpai_tasks.backends.base import ForeignCluster, ForeignClusters
from openpai_tasks.backends.http.addresses import LOOPBACK
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net import web_address
from openpai_tasks.settings.registry import CERTIFICATE, INVALID_ALIAS, KEY, OPTIONS, Cluster, is_embedded

KIND = "paddlecloud"
DATACENTER = "datacenter"
"""The option of a cluster with its name as a datacenter; records of older versions have it in ``info``."""
GENERATION = "v1"
CURRENT, LIST = "current-datacenter", "datacenters"
LARGEST = 1 << 20  # bytes
SUFFIX = "-paddle"
"""The end of the alias of a datacenter whose name is the alias of another cluster."""


@dataclass(frozen=True)
class Datacenter:
    """One entry of the file."""

    name: str
    endpoint: str
    user: str
    password: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class PaddleConfig:
    """The content of the file: valid datacenters, the current one, and what is wrong with the rest."""

    datacenters: tuple[Datacenter, ...] = ()
    current: str = ""
    problems: tuple[str, ...] = ()


def datacenter_record(alias: str, one: Datacenter) -> Cluster:
    """Return the record of a datacenter as a cluster."""
    options = {DATACENTER: one.name, CERTIFICATE: one.certificate, KEY: one.key}
    given = {OPTIONS: {name: value for name, value in options.items() if value}}
    return Cluster(alias, one.endpoint, one.user, KIND, GENERATION, prefix="", extra=given)


def datacenter_of(cluster: Cluster) -> str:
    """Return the name of a cluster as a datacenter."""
    return cluster.options.get(DATACENTER) or str(cluster.info.get(DATACENTER) or "") or cluster.alias


def foreign_clusters(taken: Iterable[str]) -> ForeignClusters:
    """Return the datacenters as clusters, with aliases that are not taken."""
    config, used, found = load(), set(taken), []
    for one in config.datacenters:
        alias = one.name
        while alias in used or is_embedded(alias):
            alias += SUFFIX
        used.add(alias)
        found.append(ForeignCluster(datacenter_record(alias, one), path(), one.password))
    return ForeignClusters(tuple(found), config.problems)


def path() -> Path:
    return Path.home() / ".paddle" / "config"


def load() -> PaddleConfig:
    """Read the file; never raise."""
    try:
        with open(path(), "rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return PaddleConfig()
    except (OSError, RuntimeError) as err:  # RuntimeError: there is no home folder
        return _broken(f"cannot be read: {getattr(err, 'strerror', None) or err}")
    if len(data) > LARGEST:
        return _broken("is larger than 1 MB")
    return _parse(data)


def write(datacenters: Iterable[Datacenter], current: str) -> str:
    """Return the text of such a file, passwords included."""
    import yaml

    rows = [
        {"name": one.name, "username": one.user, "password": one.password, "endpoint": one.endpoint}
        for one in datacenters
    ]
    return yaml.safe_dump({LIST: rows, CURRENT: current}, sort_keys=False, allow_unicode=True)


def _parse(data: bytes) -> PaddleConfig:
    import yaml

    from openpai_tasks.protocol.yaml import limited

    try:
        found = limited.load(data.decode(), limited.TextLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        mark = getattr(err, "problem_mark", None)  # the text of the error would quote the file
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        return _broken(f"is not valid YAML{place}")
    if found in (None, ""):
        return PaddleConfig()
    if not isinstance(found, dict):
        return _broken(f"must have the key {LIST!r}, or a mapping for each datacenter")
    datacenters: dict[str, Datacenter] = {}
    problems = []
    for number, (name, entry) in enumerate(_entries(found), 1):
        what = f"datacenter {name!r}" if name else f"entry {number}"
        problem = _problem(name, entry) or ("it is there twice" if name in datacenters else "")
        if problem:
            problems.append(f"{path()}: {what}: {problem}")
        else:
            user, password = _text(entry.get("username")), _text(entry.get("password"))
            files = (_path(entry.get(CERTIFICATE)), _path(entry.get(KEY)))
            datacenters[name] = Datacenter(name, _address(entry), user, password, *files)
    current = _text(found.get(CURRENT))
    if current and current not in datacenters and not problems:
        problems.append(f"{path()}: {CURRENT} {current!r} is not one of its datacenters")
    return PaddleConfig(tuple(datacenters.values()), current, tuple(problems))


def _broken(problem: str) -> PaddleConfig:
    return PaddleConfig(problems=(f"{path()} {problem}",))


def _entries(found: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and the content of the entries, in either form."""
    listed = found.get(LIST)
    for entry in listed if isinstance(listed, list) else ():
        yield _text(entry.get("name")) if isinstance(entry, dict) else "", entry
    if LIST in found and not isinstance(listed, (list, dict)):
        yield LIST, listed
    mapped = listed if isinstance(listed, dict) else {} if LIST in found else found
    for name, entry in mapped.items():
        if name != CURRENT:
            yield _text(name), entry


def _problem(name: str, entry: Any) -> str:
    """Return what is wrong with an entry, without a value that may be secret."""
    if not isinstance(entry, dict):
        return "it must be a mapping with username, endpoint, and password or usercert and userkey"
    if not name or INVALID_ALIAS.fullmatch(name):
        return "its name must not be empty, begin with a dot, or contain / or a control character"
    user = _text(entry.get("username"))
    if not user.isprintable() or "/" in user or user in (".", ".."):
        return "its username is not valid"
    if not user:
        return "it has no username"
    try:
        web_address.base(_address(entry))
    except ValueError as err:
        return f"its endpoint is not valid: {err}" if entry.get("endpoint") else "it has no endpoint"
    return ""


def _address(entry: Mapping[str, Any]) -> str:
    """Return the endpoint; a bare host is reached over TLS, except this machine without a certificate."""
    endpoint = _text(entry.get("endpoint")).strip().rstrip("/")
    if "://" in endpoint or not endpoint:
        return endpoint
    try:
        is_here = urlsplit(f"//{endpoint}").hostname in LOOPBACK and not (
            entry.get(CERTIFICATE) or entry.get(KEY)
        )
    except ValueError:
        is_here = False
    return f"{'http' if is_here else 'https'}://{endpoint}"


def _path(value: Any) -> str:
    """Return the path of a file; one that is not absolute is relative to the folder of the configuration."""
    return os.path.abspath(path().parent / os.path.expanduser(_text(value))) if _text(value) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
