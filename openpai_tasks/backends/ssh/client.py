"""A client of our server on another machine; every request goes through the tunnel."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

from openpai_tasks.backends.base import Capabilities
from openpai_tasks.backends.http import logins
from openpai_tasks.backends.http.retries import REPEATABLE
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.net.http1 import HttpAnswer, ProtocolError
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.tunnel.tunnel import Tunnel

BROKEN = (ConnectionError, ProtocolError)
"""Errors if the tunnel or its server has ended; a slow tunnel is not started again."""


class SshClient(Client):
    """OpenPAI's API at the end of a tunnel, which is opened when it is needed, and again when it breaks."""

    @property
    def product(self) -> str:
        return "openpai-tasks"

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.dialect.capabilities, job_removal=True)

    @property
    def login_pauses(self) -> tuple[float, ...]:
        return logins.NO_PAUSES

    @functools.cached_property
    def tunnel(self) -> Tunnel:
        return Tunnel(self.cluster)

    @property
    def _root(self) -> str:
        return "http://localhost"

    @functools.cached_property
    def _http(self) -> HttpClient:
        return HttpClient(unix=str(self.tunnel.socket))

    def _follow(self, method: str, url: str, **options: Any) -> HttpAnswer:
        begun = time.time()
        try:
            return super()._follow(method, url, **options)
        except (FileNotFoundError, ConnectionRefusedError):  # nothing was sent: there is no tunnel
            self.tunnel.restore(begun)
        except BROKEN:
            # The server is started again, also for a request that must not be sent twice: its caller finds
            # out whether it was received.
            self.tunnel.restore(begun)
            if method not in REPEATABLE:
                raise
        try:
            return super()._follow(method, url, **options)
        except BROKEN:
            self.tunnel.check_refused()
            raise
