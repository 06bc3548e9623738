"""The known clusters in ``clusters.yaml``, without their secrets (credentials.py).

Files of the older OpenPAI clients can be read. Plain passwords and tokens in them work at once, and move to
the credentials store when the file is first written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net import web_address
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.protocol.fields import mapping, rows
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.settings import credentials, project, trust
from openpai_tasks.settings.credentials import Credentials, Destination, Key
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.text.hints import command

DEFAULT_KIND = "openpai"
LOCAL = "local"
"""The alias of the embedded cluster, which is always known and never in the file."""
ANY = "any"
"""In place of an alias: whichever cluster can start a new job first."""

INVALID_ALIAS = re.compile(r"\..*|.*[/\x00-\x1f\x7f].*", re.DOTALL)
"""Aliases are used as file names: they must not point to another folder or be hidden."""


def edit_hint() -> str:
    """Return the hint at the end of errors about clusters.yaml."""
    return f"`{command('cluster.edit')}` opens it"


OPTIONS = "options"
"""The key of a record with the options that only the kind of the cluster knows."""
CERTIFICATE, KEY = "usercert", "userkey"
"""Options with the files of the certificate that the user presents to the server."""


def is_embedded(alias: str) -> bool:
    """Whether this is the alias of the embedded cluster, which needs no record and is started when needed."""
    return alias == LOCAL


@dataclass(frozen=True)
class Cluster:
    """The address of a cluster, and what the client last learned about it."""

    alias: str
    uri: str
    user: str = ""
    kind: str = DEFAULT_KIND
    generation: str = ""  # API version, as its kind of cluster names it; "" if unknown
    info: dict[str, Any] = field(default_factory=dict)
    virtual_clusters: tuple[str, ...] = ()
    storages: tuple[dict[str, Any], ...] = ()
    workspace: str = ""
    storage: str = ""
    own_storages: tuple[dict[str, Any], ...] = ()  # added by the user, without their secrets
    verify: bool | str = True  # path of the CA file to trust, or True for the system's CAs
    prefix: str = PREFIX  # "" for a REST server without a reverse proxy
    extra: dict[str, Any] = field(default_factory=dict)
    is_own: bool = True  # False for clusters in a project's clusters.yaml

    @property
    def is_embedded(self) -> bool:
        return is_embedded(self.alias)

    @property
    def options(self) -> dict[str, str]:
        """The options that only its kind knows."""
        found = self.extra.get(OPTIONS)
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    @property
    def certificate(self) -> ClientCertificate | None:
        """What the user presents to the server, over TLS only; a project cannot name it."""
        path = self.options.get(CERTIFICATE) or self.options.get(KEY)
        if not path or not self.is_own or not self.uri.startswith("https:"):
            return None
        return ClientCertificate(path, self.options.get(KEY) or path)

    @property
    def rest(self) -> str:
        """The base URL of the REST API."""
        return self.uri + self.prefix

    @property
    def destination(self) -> Destination:
        """Where its user's credentials are sent."""
        address = web_address.normal(self.rest)
        return Destination(
            self.alias, address, self.user, fingerprint(self.verify), self.uri if self.is_own else ""
        )

    @property
    def unique_name(self) -> str:
        """The alias for a cluster of the user; a project's has a hash, too, so that they share no files."""
        if self.is_own:
            return self.alias
        where = f"{self.destination.address} {self.destination.ca}"
        return f"{self.alias}+{sha256(where.encode())[:16]}"


def fingerprint(verify: bool | str) -> str:
    """Return a hash of a CA file's content; "" stands for the system's CAs."""
    if not isinstance(verify, str):
        return ""
    try:
        return f"sha256:{sha256(Path(verify).read_bytes())}" if os.path.isfile(verify) else "unreadable"
    except OSError:
        return "unreadable"


class Registry:
    """The clusters in one file; every change is made under its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def clusters(self) -> tuple[Cluster, ...]:
        """Return all clusters in the file, without the embedded one."""
        return tuple(cluster for cluster, _ in self._load())

    def get(self, alias: str) -> Cluster:
        """Return the cluster with this alias; ``local`` has no address here, only while it runs."""
        if alias == LOCAL:
            return Cluster(LOCAL, "")
        return self._find(self.clusters(), alias)

    def credentials(self, alias: str) -> Credentials:
        """Return the credentials of the cluster's user, from an old file or the store."""
        found = next((entry for entry in self._load() if entry[0].alias == alias), None)
        if found is None:
            return Credentials()
        cluster, plain = found
        stored = credentials.load(cluster.destination)
        same = stored.password and stored.password == plain.password  # the store may also hold a token
        return plain if plain and not same else stored

    def put(self, cluster: Cluster) -> None:
        """Add the cluster, or replace the one with its alias."""
        if cluster.alias == LOCAL:
            raise ConfigError(f"the alias {LOCAL!r} is reserved for the embedded cluster; choose another")
        with locked(self.path):
            before = self._migrate()
            after = {known.alias: known for known in before} | {cluster.alias: cluster}
            self._write(before, after.values())

    def change(self, alias: str, edit: Callable[[Cluster], Cluster]) -> Cluster:
        """Replace the cluster by the result of ``edit``."""
        with locked(self.path):
            before = self._migrate()
            changed = edit(self._find(before, alias))
            self._write(before, [changed if known.alias == alias else known for known in before])
        return changed

    def remove(self, alias: str) -> Cluster:
        """Remove the cluster from the file, and its secrets from the store."""
        if alias == LOCAL:
            stop = command("cluster.stop")
            raise ConfigError(f"the embedded cluster {LOCAL!r} cannot be deleted; `{stop}` stops it")
        with locked(self.path):
            before = self._migrate()
            gone = self._find(before, alias)
            self._write(before, [known for known in before if known.alias != alias])
        return gone

    def text(self) -> str:
        """Return the text of the file; empty if there is none."""
        try:
            return read_limited(self.path)
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"cannot read {self.path}: {reason(err)}") from err

    def rewrite(self, text: str, expected: str) -> tuple[Cluster, ...]:
        """Replace the file by an edited text, if the text is valid and the file has not changed meanwhile."""
        loaded = parse(text, self.path)
        before: list[Cluster] = []
        with contextlib.suppress(ConfigError):  # the edit may have repaired the file
            before = [cluster for cluster, _ in parse(expected, self.path)]
        with locked(self.path):
            if self.text() != expected:
                raise ConfigError(f"{self.path} was changed by another command in the meantime")
            clusters = self._keep_secrets(loaded)
            self._write(before, clusters)
        return clusters

    def _load(self) -> list[tuple[Cluster, Credentials]]:
        return parse(self.text(), self.path)

    def _migrate(self) -> tuple[Cluster, ...]:
        """Return the clusters, after moving plain secrets of an old file to the store."""
        return self._keep_secrets(self._load())

    def _keep_secrets(self, loaded: Iterable[tuple[Cluster, Credentials]]) -> tuple[Cluster, ...]:
        taken = self._users_own()
        clusters = []
        for cluster, plain in loaded:
            if plain and cluster.destination.keys[0] not in taken:
                credentials.save(cluster.destination, plain)
            clusters.append(cluster)
        return tuple(clusters)

    def _write(self, before: Iterable[Cluster], after: Collection[Cluster]) -> None:
        """Replace the file, and remove secrets that no cluster in it uses any more."""
        with trust.trust_written_clusters(self.path):
            write_private(self.path, dump(after))
        left, taken = _destinations(after), self._users_own()
        for key, gone in _destinations(before).items():
            if left.get(key) != gone and key not in taken:
                credentials.forget(gone)

    def _users_own(self) -> Collection[Key]:
        """Return the keys of credentials that a project's file must neither set nor remove."""
        own = Registry(registry_path())
        return () if self.path == own.path else _destinations(own.clusters()).keys()

    @staticmethod
    def _find(clusters: Iterable[Cluster], alias: str) -> Cluster:
        known = {cluster.alias: cluster for cluster in clusters}
        if alias not in known:
            names = ", ".join([*sorted(known), LOCAL])
            raise ConfigError(f"no cluster named {alias!r} (known: {names})")
        return known[alias]


def registry_path(clusters_in_local: bool = False) -> Path:
    """Return the user's clusters.yaml, or that of the project that the current folder belongs to."""
    return (project.own_folder(Path.cwd()) / ".openpai" if clusters_in_local else home()) / "clusters.yaml"


def parse(text: str, path: Path) -> list[tuple[Cluster, Credentials]]:
    """Parse a clusters.yaml; each cluster comes with the plain secrets of an old file."""
    if not text:  # no file, so no parser is loaded
        return []
    from openpai_tasks.protocol.yaml import limited

    try:
        records = limited.load(text) or []
    except limited.InvalidYaml as err:  # its text quotes the file, which may contain a password
        mark = err.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{path} is not valid YAML{place}; {edit_hint()}") from err
    if not isinstance(records, list):
        raise ConfigError(f"{path} must be a list of clusters; {edit_hint()}")
    loaded = [_from_record(record, number, path) for number, record in enumerate(records, 1)]
    aliases = [cluster.alias for cluster, _ in loaded]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise ConfigError(f"{path} has two clusters named {alias!r}; {edit_hint()}")
    return loaded


def dump(clusters: Iterable[Cluster]) -> str:
    """Return the text of a clusters.yaml, without secrets."""
    import yaml

    records = [_to_record(cluster) for cluster in clusters]
    return yaml.safe_dump(records, sort_keys=False, allow_unicode=True)


def _destinations(clusters: Iterable[Cluster]) -> dict[Key, Destination]:
    known = list(clusters)
    found = [storage_destination(cluster, record) for cluster in known for record in cluster.own_storages]
    return {one.keys[0]: one for one in (*found, *(cluster.destination for cluster in known))}


def storage_destination(cluster: Cluster, record: Mapping[str, Any]) -> Destination:
    """Return where the secret of a user's storage is sent; it depends on the whole record."""
    kind, name, address, path, user = (
        str(record.get(key) or "") for key in ("type", "name", "address", "path", "user")
    )
    options = dict(mapping(record.get("options")))
    ca = str(options.pop("ca", None) or "")
    further = {key: str(value) for key, value in sorted(options.items(), key=str) if key != "mount"}
    where = json.dumps([kind, address, path, further], ensure_ascii=False)
    former = f"{kind}:{address}" if cluster.is_own else ""
    return Destination(f"{cluster.alias}/{name}", where, user, fingerprint(ca or True), former)


def _from_record(record: object, number: int, path: Path) -> tuple[Cluster, Credentials]:
    if not isinstance(record, dict) or not record.get("cluster_alias") or not record.get("pai_uri"):
        raise ConfigError(f"{path}: entry {number} has no cluster_alias or pai_uri; {edit_hint()}")
    rest = dict(record)
    alias, uri = str(rest.pop("cluster_alias")), str(rest.pop("pai_uri")).rstrip("/")
    uri = uri if "://" in uri else f"http://{uri}"
    prefix = str(rest.pop("prefix", PREFIX) or "").rstrip("/")
    ca = str(rest.pop("ca", None) or "")
    _check(path, alias, uri, prefix, ca)
    plain = Credentials(str(rest.pop("password", None) or ""), str(rest.pop("token", None) or ""))
    kind = str(rest.pop("type", None) or DEFAULT_KIND)
    cluster = Cluster(
        alias=f"{LOCAL}-cluster" if alias == LOCAL else alias,  # older clients allowed this alias
        uri=uri,
        user=str(rest.pop("user", None) or ""),
        kind=DEFAULT_KIND if kind == "pai" else kind,
        generation=str(rest.pop("generation", None) or ""),
        info=dict(mapping(rest.pop("info", None))),
        virtual_clusters=_names(rest.pop("virtual_clusters", None)),
        storages=_storages(rest.pop("storages", None)),
        workspace=str(rest.pop("workspace", None) or ""),
        storage=str(rest.pop("storage_name", None) or ""),
        own_storages=_storages(rest.pop("own_storages", None)),
        verify=os.path.abspath(path.parent / os.path.expanduser(ca)) if ca else True,
        prefix=prefix,
        extra=rest,
        is_own=path == registry_path(),
    )
    return cluster, plain


def _check(path: Path, alias: str, uri: str, prefix: str, ca: str) -> None:
    """Raise if the alias is not a valid file name, or if requests would not go to ``pai_uri``."""
    wrong = ""
    if INVALID_ALIAS.fullmatch(alias):
        wrong = "invalid alias: it must not begin with a dot or contain / or a control character"
    elif not ca.isprintable():
        wrong = f"invalid ca {ca!r}: it contains a control character"
    try:
        what = "pai_uri" if "@" in uri else f"pai_uri {uri!r}"  # a password may be in front of the @
        web_address.base(uri)
        what = f"prefix {prefix!r}"
        web_address.check_prefix(uri, prefix)
    except ValueError as err:
        wrong = wrong or f"invalid {what}: {err}"
    if wrong:
        raise ConfigError(f"{path}: cluster {alias!r}: {wrong}; {edit_hint()}")


def _to_record(cluster: Cluster) -> dict[str, Any]:
    record = {
        "cluster_alias": cluster.alias,
        "pai_uri": cluster.uri,
        "user": cluster.user,
        "type": "" if cluster.kind == DEFAULT_KIND else cluster.kind,
        "generation": cluster.generation,
        "info": cluster.info,
        "virtual_clusters": list(cluster.virtual_clusters),
        "storages": list(cluster.storages),
        "workspace": cluster.workspace,
        "storage_name": cluster.storage,
        "own_storages": list(cluster.own_storages),
        "ca": cluster.verify if isinstance(cluster.verify, str) else "",
    }
    kept = {key: value for key, value in record.items() if value}
    return kept | ({} if cluster.prefix == PREFIX else {"prefix": cluster.prefix}) | cluster.extra


def _names(value: object) -> tuple[str, ...]:
    """Read a list of names, or the comma-separated text that some servers sent."""
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(str(name).strip() for name in names if str(name).strip())


def _storages(value: object) -> tuple[dict[str, Any], ...]:
    """Read a list of storages; one old client wrote a mapping by name."""
    if isinstance(value, dict):
        value = [{"storage_alias": name, **mapping(entry)} for name, entry in value.items()]
    return tuple(map(dict, rows(value)))
