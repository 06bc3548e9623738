"""HDFS over WebHDFS: which name nodes a storage or a url means, directly or behind OpenPAI's gateway."""

from __future__ import annotations

from collections.abc import Iterable

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.storage.hdfs.store import WebHdfs
from openpai_tasks.storage.hdfs.web.connections import V1
from openpai_tasks.storage.store import Place, check_name, join

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
    names = _hosts(hosts.split(","), str(data.get("port") or ""))
    return WebHdfs(names, place.user, root=root, verify=place.verify)


def open_url(url: str) -> tuple[WebHdfs, str]:
    """``webhdfs://[user@]name-node[:port][,another]/path``; of ``hdfs://`` the web port is looked for."""
    scheme, _, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    user, _, hosts = where.rpartition("@")
    if not hosts.strip(", "):
        raise ConfigError(f"{url!r} names no name node: {scheme}://HOST:PORT/PATH")
    return WebHdfs(_hosts(hosts.split(",")), user), slash + path or "/"


def _behind(urls: str, place: Place, root: str) -> WebHdfs:
    """Urls that end before ``/webhdfs/v1``, or at OpenPAI's gateway, ``http://HOST/webhdfs``."""
    where = f"storage {place.name!r} of {place.cluster!r}"
    found = [_url(text.strip(), where) for text in urls.split(",")]
    ways = {(scheme, path) for scheme, _, path in found}
    if len(ways) > 1:
        raise ConfigError(f"{where}: its urls must all be http or all https, with one path: {urls!r}")
    [(scheme, path)] = ways
    prefix = {"": V1, "/webhdfs": PYLON}.get(path, path)
    hosts = [host for _, host, _ in found]
    return WebHdfs(hosts, place.user, scheme=scheme, prefix=prefix, root=root, verify=place.verify)


def _url(text: str, where: str) -> tuple[str, str, str]:
    """Its scheme, its host with the port, and its path."""
    try:
        parts = addresses.parse_url(text)
        host, port = addresses.parse_server(parts.netloc)
    except ValueError as err:
        form = "http://HOST:PORT or https://HOST:PORT, each of several with it"
        raise ConfigError(f"{where} names no HDFS: {text!r} is no url: {form}") from err
    port = port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, f"{host}:{port}", parts.path.rstrip("/")


def _hosts(given: Iterable[str], usual: str = "") -> list[str]:
    """``host:port`` of each; without a port, or with the Java protocol's, all ports it may be."""
    found = []
    for text in filter(None, map(str.strip, given)):
        try:
            host, told = addresses.parse_server(text)
            port = told or (addresses.parse_port(usual) if usual else None)
        except ValueError as err:
            name = f"{text}:{usual}" if usual else text
            form = f"HOST or HOST:PORT (up to {addresses.LAST_PORT}), [HOST]:PORT if HOST is IPv6"
            raise ConfigError(f"{name!r} is no name node: {form}") from err
        is_open = port is None or port in NATIVE_PORTS
        found += [f"{host}:{one}" for one in WEB_PORTS] if is_open else [f"{host}:{port}"]
    return found
