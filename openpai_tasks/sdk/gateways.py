"""The host that the way to containers goes through, as the settings name it."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk import keys
from openpai_tasks.sdk.remote_target import PORT, Gateway, is_host, is_user

_BRACKETED = re.compile(r"\[([^\]]+)\](?::(\d{1,5}))?")
_PLAIN = re.compile(r"([^:]+)(?::(\d{1,5}))?")


def gateway(settings: Settings) -> Gateway | None:
    """What the settings say about it, with the key that opens it; nothing where they name none."""
    text = settings.ssh_gateway
    if not text:
        return None
    user, _, place = text.rpartition("@")
    host, port = _host_and_port(place)
    if not 0 < port < 65536 or not is_host(host) or (user and not is_user(user)):
        raise ConfigError(f"the setting ssh.gateway must be USER@HOST:PORT, got {text!r}")
    return Gateway(host, port, user, keys.gateway_key(settings))


def _host_and_port(place: str) -> tuple[str, int]:
    """An address of IPv6 has more colons than one, and a port behind it only after brackets."""
    found = _BRACKETED.fullmatch(place) or _PLAIN.fullmatch(place)
    if found:
        return found[1], int(found[2] or PORT)
    try:
        return str(IPv6Address(place)), PORT
    except ValueError:
        return "", PORT
