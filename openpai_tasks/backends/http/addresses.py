"""Addresses of clusters that users type: their readings, and whether a login may be sent there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from openpai_tasks.backends.base import Say
from openpai_tasks.backends.http.errors import chain
from openpai_tasks.backends.http.redirects import is_same_server
from openpai_tasks.errors import ConfigError, Unreachable
from openpai_tasks.net import web_address
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.text.hints import command

Server = TypeVar("Server")
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


def without_path(url: str, path: str) -> str:
    """Return the base address of a URL with this path; "" if it has another one."""
    return url[: -len(path)] if url.endswith(path) else ""


def check_same(cluster: Cluster, uri: str) -> None:
    """Raise if the server has another address than the record says."""
    if uri != cluster.uri:
        update = command("cluster.update", cluster.alias)
        raise Unreachable(f"{cluster.uri} redirects to {uri}; `{update}` saves the new address")


def warn_unencrypted(uri: str, say: Say) -> None:
    """Warn if others on the network can read the traffic."""
    if not uri.startswith("https://") and urlsplit(uri).hostname not in LOOPBACK:
        say(f"warning: {uri} is not encrypted; others on the way can read passwords and tokens")


def check_known(cluster: Cluster, known: Iterable[str], uri: str) -> None:
    """Raise if a stored login would be sent to another server than the known addresses."""
    if not any(is_same_server(address, uri) for address in known):
        hint = f"`{command('cluster.add', cluster.alias, uri, '--force')}` signs in there"
        raise Unreachable(f"{cluster.uri} redirects to {uri}, which has no login yet; {hint}")


def first_answer(uris: Iterable[str], ask: Callable[[str], Server]) -> Server:
    """Return the answer of the first server; never fall back to http for an untrusted certificate."""
    import ssl

    problem = Unreachable("no address")
    for uri in uris:
        try:
            return ask(uri)
        except Unreachable as err:
            untrusted = [one for one in chain(err) if isinstance(one, ssl.SSLCertVerificationError)]
            if untrusted:
                reason = untrusted[-1].verify_message
                raise Unreachable(
                    f"the certificate of {uri} is not trusted ({reason}); give its CA with --ca FILE"
                ) from err
            problem = err
    raise problem
