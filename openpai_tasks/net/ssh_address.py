"""Addresses of machines that are reached by ssh: ``ssh://[USER@]HOST[:PORT]``."""

from __future__ import annotations

import re

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.addresses import LAST_PORT

SSH = "ssh://"
"""The beginning of addresses that are reached through ssh."""
_USER = r"(?:(?P<user>[A-Za-z0-9._+][A-Za-z0-9._+@-]*)@)?"
_HOST = r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._+-]*|\[[0-9A-Fa-f:.]+\])"
_ADDRESS = re.compile(rf"(?:{SSH})?{_USER}{_HOST}(?::(?P<port>[0-9]{{1,5}}))?/?")


@dataclass(frozen=True)
class SshAddress:
    """A machine as OpenSSH names it; ``host`` may be a name in the user's ssh configuration."""

    host: str
    user: str = ""
    port: int = 0  # 0: as the user's ssh configuration has it

    @property
    def uri(self) -> str:
        user, port = f"{self.user}@" if self.user else "", f":{self.port}" if self.port else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SSH}{user}{host}{port}"

    @property
    def label(self) -> str:
        return self.uri.removeprefix(SSH)

    @property
    def words(self) -> list[str]:
        """The words of an ssh command that name the machine."""
        user = ["-l", self.user] if self.user else []
        port = ["-p", str(self.port)] if self.port else []
        return [*user, *port, "--", self.host]


def parse_ssh(text: str) -> SshAddress:
    """Parse an address; raise ValueError with the reason if it is not one."""
    found = _ADDRESS.fullmatch(text)
    if not found:
        raise ValueError("expected [USER@]HOST[:PORT]")
    host, port = found["host"].strip("[]"), int(found["port"] or 0)
    if ":" in host:
        from ipaddress import IPv6Address

        IPv6Address(host)
    if port > LAST_PORT or (found["port"] and not port):
        raise ValueError(f"its port must be a number from 1 to {LAST_PORT}")
    return SshAddress(host, found["user"] or "", port)
