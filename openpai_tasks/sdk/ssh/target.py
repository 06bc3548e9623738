"""The ssh address of a container and its gateway."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net import addresses
from openpai_tasks.net.ssh_address import SSH, parse_ssh
from openpai_tasks.sdk.ssh import keys
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster

PORT = 22
_HOST = re.compile(r"[A-Za-z0-9._:][A-Za-z0-9._:-]*")
_USER = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")


@dataclass(frozen=True)
class Gateway:
    """A host that connections go through."""

    host: str
    port: int
    user: str
    key: Path | None
    is_login_node: bool = False  # reached by the user's own ssh, as the cluster itself is

    @property
    def place(self) -> str:
        place = f"{bracketed(self.host)}:{self.port}"
        return f"{self.user}@{place}" if self.user else place


@dataclass(frozen=True)
class Target:
    """A container's ssh address and the login for it."""

    host: str
    port: int
    user: str
    key: Path
    name: str  # of its host key
    known_hosts: Path
    label: str
    timeout: float = 15.0
    gateway: Gateway | None = None

    @property
    def place(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """Put an IPv6 address in brackets, so that a port can follow."""
    return f"[{host}]" if ":" in host else host


def is_host(text: str) -> bool:
    """Return whether text, which comes from a server, is just an address or a name."""
    return bool(_HOST.fullmatch(text))


def is_user(text: str) -> bool:
    return bool(_USER.fullmatch(text))


def gateway_to(cluster: Cluster, settings: Settings) -> Gateway | None:
    """Return the login node that a cluster is reached through, else the gateway from the settings."""
    if not cluster.uri.startswith(SSH):
        return gateway(settings)
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
