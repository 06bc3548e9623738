"""Where a container takes ssh, and the host that the way there goes through."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.home import home

PORT = 22
_HOST = re.compile(r"[A-Za-z0-9._:][A-Za-z0-9._:-]*")
_USER = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")


@dataclass(frozen=True)
class Gateway:
    """The host that a connection goes through."""

    host: str
    port: int
    user: str
    key: Path | None

    @property
    def place(self) -> str:
        return f"{self.user}@{self.host}:{self.port}" if self.user else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Target:
    """Where a container takes ssh, and with what."""

    host: str
    port: int
    user: str
    key: Path
    name: str  # what its host key is kept under
    known_hosts: Path
    label: str
    timeout: float = 15.0
    gateway: Gateway | None = None

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"


def is_host(text: str) -> bool:
    """Whether it is an address or a name: it comes from a server, and ssh reads more than that."""
    return bool(_HOST.fullmatch(text))


def is_user(text: str) -> bool:
    return bool(_USER.fullmatch(text))


def gateway(settings: Settings) -> Gateway | None:
    """What the settings say about a host to go through."""
    text = settings.ssh_gateway
    if not text:
        return None
    user, _, place = text.rpartition("@")
    host, _, port = place.rpartition(":") if ":" in place else (place, "", str(PORT))
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
    if not is_port or not is_host(host) or (user and not is_user(user)):
        raise ConfigError(f"the setting ssh.gateway must be USER@HOST:PORT, got {text!r}")
    chosen = settings.ssh_gateway_key or settings.ssh_key
    key = Path(chosen).expanduser() if chosen else home() / "ssh" / "id_ed25519"
    return Gateway(host, int(port), user, key)
