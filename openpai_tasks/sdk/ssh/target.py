"""The ssh address of a container and its gateway."""

from __future__ import annotations

import re
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass

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
