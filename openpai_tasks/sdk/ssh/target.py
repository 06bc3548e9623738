"""Where a container takes ssh, and the host that the way there goes through."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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
        place = f"{bracketed(self.host)}:{self.port}"
        return f"{self.user}@{place}" if self.user else place


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
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """So that a port can stand behind it: an address of IPv6 has colons of its own."""
    return f"[{host}]" if ":" in host else host


def is_host(text: str) -> bool:
    """Whether it is an address or a name: it comes from a server, and ssh reads more than that."""
    return bool(_HOST.fullmatch(text))


def is_user(text: str) -> bool:
    return bool(_USER.fullmatch(text))
