"""HDFS over WebHDFS: the name nodes of a storage or URL, direct or behind OpenPAI's gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.protocol.document import job_storage
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.hdfs.web.client import V1
from openpai_tasks.storage.hdfs.web.name_nodes import WEB_PORTS
from openpai_tasks.storage.kinds import UserStorage, rooted
from openpai_tasks.storage.store import StorageSpec, Store

PYLON = "/webhdfs/api/v1"
NATIVE_PORTS = (8020, 9000, 9820)  # of Hadoop's native protocol; the web port is a different one


def open_store(spec: StorageSpec) -> HdfsStore:
    """Open a storage of a cluster by its name nodes, or through the cluster's gateway if it has none."""
    data = spec.data
    root = spec.users_folder(str(data.get("path") or data.get("rootPath") or "/"))
    urls = str(data.get("webhdfs") or data.get("web_hdfs_uri") or "")
    hosts = str(data.get("namenode") or data.get("address") or "")
    if urls or not hosts:
        return _open_urls(urls or f"{spec.cluster_uri.rstrip('/')}/webhdfs", spec, root)
    names = _hosts(hosts.split(","), str(data.get("port") or ""))
    return HdfsStore(names, spec.user, root=root, verify=spec.verify)


def open_url(url: str) -> tuple[HdfsStore, str]:
    """Open ``webhdfs://[user@]name-node[:port][,another]/path``; find the web port for ``hdfs://``."""
    scheme, _, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    user, _, hosts = where.rpartition("@")
    if not hosts.strip(", "):
        raise ConfigError(f"{url!r} names no name node: expected {scheme}://HOST:PORT/PATH")
    return HdfsStore(_hosts(hosts.split(",")), user), slash + path or "/"


def server(spec: StorageSpec) -> str:
    return str(spec.data.get("namenode") or spec.data.get("webhdfs") or spec.cluster_uri)


def make_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    """Return the data of a storage: the URL of a gateway, or name nodes separated by commas."""
    scheme, mark, rest = storage.address.partition("://")
    root = {"path": rooted(storage.path)}
    if scheme in ("http", "https") and mark:
        if storage.option("port"):
            raise ConfigError(f"--option port: put the port into the url instead: {scheme}://HOST:PORT")
        return {"webhdfs": storage.address} | root
    hosts = (rest if mark else storage.address).strip("/")
    if mark and not storage.path:  # as in Hadoop's own URLs
        hosts, _, folder = hosts.partition("/")
        root = {"path": rooted(folder)}
    if (mark and scheme not in ("hdfs", "webhdfs")) or "/" in hosts or not hosts.strip(","):
        raise ConfigError(f"--address must be HOST:PORT[,HOST:PORT] or a url, got {storage.address!r}")
    return {"namenode": hosts} | root | dict(storage.options)


def job_folder(store: Store, path: str) -> job_storage.Home:
    """Return the folder's WebHDFS URLs, which a job reads and writes with curl."""
    assert isinstance(store, HdfsStore)
    return job_storage.HdfsFolder(tuple(map(_escape, store.urls(path))), quote(store.user, safe=""))


def _escape(url: str) -> str:
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{slash}{quote(path, safe='/')}"


def _open_urls(urls: str, spec: StorageSpec, root: str) -> HdfsStore:
    """Open URLs that end before ``/webhdfs/v1``, or at OpenPAI's gateway, ``http://HOST/webhdfs``."""
    where = spec.title
    found = [_url(text.strip(), where) for text in urls.split(",")]
    ways = {(scheme, path) for scheme, _, path in found}
    if len(ways) > 1:
        raise ConfigError(f"{where}: its urls must all be http or all https, with one path, got {urls!r}")
    [(scheme, path)] = ways
    prefix = {"": V1, "/webhdfs": PYLON}.get(path, path)
    hosts = [host for _, host, _ in found]
    return HdfsStore(hosts, spec.user, scheme=scheme, prefix=prefix, root=root, verify=spec.verify)


def _url(text: str, where: str) -> tuple[str, str, str]:
    """Split a URL into scheme, host with port, and path."""
    try:
        parts = addresses.parse_url(text)
        host, port = addresses.parse_server(parts.netloc)
    except ValueError as err:
        form = "http://HOST:PORT or https://HOST:PORT, each written in full"
        raise ConfigError(f"{where}: invalid url of HDFS {text!r}: expected {form}") from err
    port = port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, f"{host}:{port}", parts.path.rstrip("/")


def _hosts(given: Iterable[str], usual: str = "") -> list[str]:
    """Return ``host:port`` of each; without a port, or with a native one, all possible web ports."""
    found = []
    for text in filter(None, map(str.strip, given)):
        try:
            host, given_port = addresses.parse_server(text)
            port = given_port or (addresses.parse_port(usual) if usual else None)
        except ValueError as err:
            name = f"{text}:{usual}" if usual else text
            form = f"HOST or HOST:PORT (up to {addresses.LAST_PORT}), [HOST]:PORT if HOST is IPv6"
            raise ConfigError(f"invalid name node {name!r}: expected {form}") from err
        is_open = port is None or port in NATIVE_PORTS
        found += [f"{host}:{one}" for one in WEB_PORTS] if is_open else [f"{host}:{port}"]
    return found
