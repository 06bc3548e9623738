"""The proxies that the environment names (``https_proxy``, ``no_proxy``), as requests and curl use them."""

from __future__ import annotations

import base64
import os
import socket
from urllib.parse import unquote, urlsplit

from openpai_tasks.lazy_dataclass import dataclass

PORTS = {"http": 80, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True)
class Proxy:
    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = ""

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def headers(self) -> dict[str, str]:
        """The login of an HTTP proxy."""
        if self.user is None:
            return {}
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")
        return {"Proxy-Authorization": f"Basic {login}"}

    def open_socks(self, address: tuple[str, int], seconds: float) -> socket.socket:
        """Connect to an address by the proxy."""
        try:
            import socks  # type: ignore[import-untyped]
        except ImportError:
            hint = "needs PySocks: `pip install pysocks`"
            raise OSError(f"the proxy {self.scheme}://{self.host} {hint}") from None
        kind = socks.SOCKS4 if self.scheme.startswith("socks4") else socks.SOCKS5
        resolves = self.scheme in ("socks4a", "socks5h")
        place = kind, self.host, self.port, resolves, self.user, self.password or None
        connection: socket.socket = socks.create_connection(address, seconds, None, *place)
        return connection


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy for a URL; None if it is reached directly."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from requests.utils import get_environ_proxies, select_proxy  # knows all forms of no_proxy

    named = select_proxy(url, get_environ_proxies(url))
    if not named:
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    if parts.scheme not in PORTS or not parts.hostname:
        known = ", ".join(PORTS)
        raise OSError(f"the proxy of the environment for {urlsplit(url).hostname} must be one of {known}")
    user = unquote(parts.username) if parts.username is not None else None
    port = parts.port or PORTS[parts.scheme]
    return Proxy(parts.scheme, parts.hostname, port, user, unquote(parts.password or ""))
