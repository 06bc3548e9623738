"""HDFS over WebHDFS: which name nodes a storage or a url means, directly or behind OpenPAI's gateway."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.store import Place, check_name, join
from openpai_tasks.storage.webhdfs_store import WebHdfs
from openpai_tasks.storage.webhdfs_wire import V1

PYLON = "/webhdfs/api/v1"
NATIVE_PORTS = (8020, 9000)  # of the Java protocol, which is not spoken here
WEB_PORTS = (9870, 50070, 5070)  # of Hadoop 3, Hadoop 2 and OpenPAI


def open_store(place: Place) -> WebHdfs:
    """A storage of a cluster: by its name nodes, or through the cluster's gateway if it names none."""
    data = place.data
    root = str(data.get("path") or data.get("rootPath") or "/")
    if not place.share:
        root = join(root, check_name(place.user, f"storage {place.name!r}"))
    told_url = str(data.get("webhdfs") or data.get("web_hdfs_uri") or "")
    hosts = str(data.get("namenode") or data.get("address") or "")
    if told_url or not hosts:
        return _behind(told_url or f"{place.cluster_uri.rstrip('/')}/webhdfs", place, root)
    port = data.get("port")
    names = _hosts(f"{host}:{port}" if port and ":" not in host else host for host in hosts.split(","))
    return WebHdfs(names, place.user, root=root, verify=place.verify)


def open_url(url: str) -> tuple[WebHdfs, str]:
    """``webhdfs://[user@]name-node[:port][,another]/path``; of ``hdfs://`` the web port is looked for."""
    scheme, _, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    user, _, hosts = where.rpartition("@")
    if not hosts.strip(","):
        raise ConfigError(f"{url!r} names no name node: {scheme}://HOST:PORT/PATH")
    return WebHdfs(_hosts(hosts.split(",")), user), slash + path or "/"


def _behind(url: str, place: Place, root: str) -> WebHdfs:
    """A url that ends before ``/webhdfs/v1``, or at OpenPAI's gateway, ``http://HOST/webhdfs``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"storage {place.name!r} of {place.cluster!r} names no HDFS name node and no url")
    host = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    path = parts.path.rstrip("/")
    prefix = {"": V1, "/webhdfs": PYLON}.get(path, path)
    return WebHdfs([host], place.user, scheme=parts.scheme, prefix=prefix, root=root, verify=place.verify)


def _hosts(given: Iterable[str]) -> list[str]:
    """``host:port`` of each; without a port, or with the Java protocol's, all ports it may be."""
    found = []
    for text in given:
        host, _, port = text.strip().partition(":")
        if port and not port.isdigit():
            raise ConfigError(f"{text!r} is no name node: HOST or HOST:PORT")
        is_open = not port or int(port) in NATIVE_PORTS
        found += [f"{host}:{one}" for one in WEB_PORTS] if is_open else [f"{host}:{port}"]
    return found
