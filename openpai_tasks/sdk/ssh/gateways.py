"""The gateway to containers, from the settings."""

from __future__ import annotations

from ipaddress import IPv6Address

from openpai_tasks.errors import ConfigError
from openpai_tasks.net import addresses
from openpai_tasks.net.ssh_address import SSH
from openpai_tasks.sdk.ssh import keys
from openpai_tasks.sdk.ssh.target import PORT, Gateway, is_host, is_user
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster


def gateway_to(cluster: Cluster, settings: Settings) -> Gateway | None:
    """Return the login node that a cluster is reached through, else the gateway from the settings."""
    if not cluster.uri.startswith(SSH):
        return gateway(settings)
    from openpai_tasks.net.ssh_address import parse_ssh

    address = parse_ssh(cluster.uri)
    return Gateway(address.host, address.port, address.user, None, is_login_node=True)


def gateway(settings: Settings) -> Gateway | None:
    """Return the gateway from the settings, with its key; None if they name none."""
    text = settings.ssh_gateway
    if not text:
        return None
    user, _, place = text.rpartition("@")
    wrong = ConfigError(f"the setting ssh.gateway must be USER@HOST:PORT, got {text!r}")
    try:
        host, port = _host_and_port(place)
    except ValueError:
        raise wrong from None
    if not is_host(host) or (user and not is_user(user)):
        raise wrong
    return Gateway(host, port, user, keys.gateway_key(settings))


def _host_and_port(place: str) -> tuple[str, int]:
    """Split an address; an IPv6 address needs brackets before a port."""
    if place.count(":") > 1 and not place.startswith("["):
        return str(IPv6Address(place)), PORT
    host, port = addresses.parse_server(place)
    return host.strip("[]"), port or PORT
