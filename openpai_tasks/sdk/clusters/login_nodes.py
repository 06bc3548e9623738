"""Clusters that are reached through ssh: what users choose for them, and the connection in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Say
from openpai_tasks.errors import ConfigError
from openpai_tasks.hints import command
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SSH, parse_ssh
from openpai_tasks.sdk.clusters.user_clusters import UserClusters
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster, Registry, registry_path


@dataclass(frozen=True)
class TunnelStatus:
    """The connection to a login node, as `cluster.status` shows it."""

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
        if kind not in (DEFAULT_KIND, kinds.BY_SSH):
            raise ConfigError(f"--ssh is for --type {kinds.BY_SSH}, not for {kind!r}")
        return kinds.driver(kinds.BY_SSH).candidates(ssh)[0], kinds.BY_SSH
    if not uri:
        needed = "--ssh [USER@]HOST" if kind == kinds.BY_SSH else "its address, as in the browser"
        raise ConfigError(f"which cluster? add {needed}")
    return uri, kind


def choices(kind: str, program: str) -> dict[str, Any]:
    """Return the fields that a user has chosen for a new cluster."""
    if not program:
        return {}
    if kind != kinds.BY_SSH:
        raise ConfigError(f"--remote-program is for --type {kinds.BY_SSH}, not for {kind!r}")
    from openpai_tasks.tunnel.tunnel import PROGRAM

    return {PROGRAM: program}


def install_on(address: str, kind: str, say: Say) -> None:
    """Install this version of the package on a login node."""
    if kind != kinds.BY_SSH:
        raise ConfigError(f"--install is for --type {kinds.BY_SSH}, not for {kind!r}")
    from openpai_tasks.tunnel import installing

    installing.install(parse_ssh(kinds.driver(kind).candidates(address)[0]), say)


def tunnel_status(settings: Settings, alias: str) -> TunnelStatus:
    """Describe the connection to a cluster's login node; nothing is sent."""
    cluster = UserClusters(registry_path(settings.clusters_in_local)).get(alias)
    if not cluster.uri.startswith(SSH):
        raise ConfigError(
            f"cluster {alias!r} is not reached by ssh; `{command('cluster.info', alias)}` describes it"
        )
    from openpai_tasks.tunnel.tunnel import Tunnel

    tunnel = Tunnel(cluster)
    return TunnelStatus(alias, cluster.uri, tunnel.is_open(), tunnel.socket, tunnel.ssh.log)


def stop_server(cluster: Cluster) -> None:
    """Stop the server on the login node and its jobs; does nothing for other clusters."""
    if cluster.uri.startswith(SSH):
        from openpai_tasks.tunnel.tunnel import Tunnel

        Tunnel(cluster).stop_server()


def close_unused(gone: Cluster, book: Registry) -> None:
    """End the connection to the login node of a deleted cluster, unless another cluster uses it."""
    if gone.uri.startswith(SSH) and gone.uri not in {cluster.uri for cluster in book.clusters()}:
        from openpai_tasks.tunnel.tunnel import Tunnel

        Tunnel(gone).remove()
