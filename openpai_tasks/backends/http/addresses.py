"""Addresses of clusters that users type: their readings, and whether a login may be sent there."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

from openpai_tasks.backends.http.redirects import is_same_server
from openpai_tasks.backends.http.refusals import chain
from openpai_tasks.errors import ConfigError, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.net import web_address
from openpai_tasks.settings.registry import Cluster

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def candidates(address: str, pasted: re.Pattern[str]) -> tuple[str, ...]:
    """Return the addresses to try, best first; without a scheme, https and then http.

    ``pasted`` matches ends that users copy with the address.
    """
    typed = address.strip()
    given = "://" in typed
    try:
        parts = web_address.split(typed if given else f"https://{typed}")
    except ValueError as err:
        if "@" in typed:  # a password may precede the @
            raise ConfigError(f"invalid address: {err}; give the user with --user") from err
        raise ConfigError(f"invalid address {address!r}: {err}") from err
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    place = host if parts.port is None else f"{host}:{parts.port}"
    path = pasted.sub("", parts.path.rstrip("/")).rstrip("/")
    schemes = (parts.scheme,) if given else ("https", "http")
    return tuple(urlunsplit((scheme, place, path, "", "")) for scheme in schemes)


def moved(url: str, path: str) -> str:
    """Return the base address after a redirect, if the path is still the same."""
    return url[: -len(path)] if url.endswith(path) else ""


def is_encrypted(uri: str) -> bool:
    """Whether others on the network cannot read the traffic; also true for loopback addresses."""
    return uri.startswith("https://") or urlsplit(uri).hostname in LOOPBACK


def refuse_moved(cluster: Cluster, known: Iterable[str], uri: str) -> None:
    """Raise if a stored login would be sent to another server than the known addresses."""
    if not any(is_same_server(address, uri) for address in known):
        hint = f"`{command('cluster.add', cluster.alias, uri, '--force')}` signs in there"
        raise Unreachable(f"{cluster.uri} redirects to {uri}, which has no login yet; {hint}")


def is_untrusted(err: Unreachable) -> bool:
    return any(isinstance(reason, ssl.SSLCertVerificationError) for reason in chain(err))


def untrusted(uri: str, err: Unreachable) -> str:
    found = [reason for reason in chain(err) if isinstance(reason, ssl.SSLCertVerificationError)]
    return f"the certificate of {uri} is not trusted ({found[-1].verify_message}); give its CA with --ca FILE"
