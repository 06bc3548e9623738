"""Clusters that are reached by ssh: what users choose for them, and the connection in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Say
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SSH, parse_ssh
from openpai_tasks.sdk.clusters.user_clusters import open_registry
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster, Registry
from openpai_tasks.text.hints import command
from openpai_tasks.tunnel.tunnel import PROGRAM, Tunnel


@dataclass(frozen=True)
class TunnelStatus:
    """The connection to a machine, as `cluster.status` shows it."""

    alias: str
    login_node: str
    connected: bool
    socket: Path
    log: Path


def address_and_kind(uri: str | None, ssh: str | None, kind: str) -> tuple[str, str]:
    """Return the address of a new cluster and its type; ``--ssh`` needs no ``--type``."""
    if uri and ssh:
        raise ConfigError(f"give either an address ({uri!r}) or --ssh ({ssh!r})")
    if ssh:
        kind = kinds.BY_SSH[0] if kind == DEFAULT_KIND else kind
        _check_kind("--ssh", kind)
        return kinds.driver(kind).candidates(ssh)[0], kind
    if not uri:
        needed = "--ssh [USER@]HOST" if kind in kinds.BY_SSH else "its address, as in the browser"
        raise ConfigError(f"which cluster? add {needed}")
    return uri, kind


def extra_fields(kind: str, program: str) -> dict[str, Any]:
    """Return the fields of a new cluster's record that only this kind has."""
    if not program:
        return {}
    _check_kind("--remote-program", kind)
    return {PROGRAM: program}


def install_on(address: str, kind: str, say: Say) -> None:
    """Install this version of the package on a machine."""
    _check_kind("--install", kind)
    from openpai_tasks.tunnel import installing  # loads zipfile and more

    installing.install(parse_ssh(kinds.driver(kind).candidates(address)[0]), say)


def _check_kind(flag: str, kind: str) -> None:
    if kind not in kinds.BY_SSH:
        raise ConfigError(f"{flag} is for --type {' or '.join(kinds.BY_SSH)}, not for {kind!r}")


def tunnel_status(settings: Settings, alias: str) -> TunnelStatus:
    """Describe the connection to a cluster's machine; nothing is sent."""
    cluster = _reached_by_ssh(settings, alias)
    tunnel = Tunnel(cluster)
    return TunnelStatus(alias, cluster.uri, tunnel.is_open(), tunnel.socket, tunnel.ssh.log)


def _reached_by_ssh(settings: Settings, alias: str) -> Cluster:
    cluster = open_registry(settings).get(alias)
    if not cluster.uri.startswith(SSH):
        raise ConfigError(
            f"cluster {alias!r} is not reached by ssh; `{command('cluster.info', alias)}` describes it"
        )
    return cluster


def restart_server(settings: Settings, alias: str, install: bool, say: Say) -> None:
    """Restart the server of a cluster that is reached by ssh, with this version if it is to be installed."""
    cluster = _reached_by_ssh(settings, alias)
    if install:
        install_on(cluster.uri, cluster.kind, say)
    tunnel = Tunnel(cluster)
    tunnel.stop_server(keep_jobs=True)
    tunnel.log_in()
    say(f"restarted the server on {tunnel.ssh.address.label}; its jobs continue")


def stop_server(cluster: Cluster) -> None:
    """Stop the server on a machine that is reached by ssh, and its jobs; does nothing for other clusters."""
    if cluster.uri.startswith(SSH):
        Tunnel(cluster).stop_server()


def close_unused(gone: Cluster, book: Registry) -> None:
    """End the connection to the machine of a deleted cluster, unless another cluster uses it."""
    if gone.uri.startswith(SSH) and gone.uri not in {cluster.uri for cluster in book.clusters()}:
        Tunnel(gone).remove()
