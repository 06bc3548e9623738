"""PyHDFS over our connections, which limit the time and size of every answer.

requests takes long to load, so this module is imported when PyHDFS is first used.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pyhdfs
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter

from openpai_tasks.storage.hdfs.web.client import V1, WebHdfsClient


def open_client(server: str, user: str, prefix: str, client: WebHdfsClient) -> pyhdfs.HdfsClient:
    """Return a client of one name node; its errors are those of ``client``."""
    session = Session()
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter(client, prefix))
    scheme, _, host = server.partition("://")
    return pyhdfs.HdfsClient([host], user_name=user, max_tries=1, scheme=scheme, requests_session=session)


@contextlib.contextmanager
def mapping_errors() -> Iterator[None]:
    """Raise ValueError for a successful answer that PyHDFS cannot read."""
    try:
        yield
    except pyhdfs.HdfsException as err:
        raise ValueError(str(err)) from err


class Adapter(BaseAdapter):
    """Sends what requests has prepared; WebHDFS may have another prefix than PyHDFS expects."""

    def __init__(self, client: WebHdfsClient, prefix: str) -> None:
        super().__init__()
        self._client, self._prefix = client, prefix

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        url = urlsplit(str(request.url))
        target = f"{self._prefix}{url.path.removeprefix(V1)}?{url.query}"
        answer = self._client.ask(request.method or "GET", f"{url.scheme}://{url.netloc}", target)
        response = Response()
        response.request, response.url, response.status_code = request, str(request.url), answer.status_code
        response.raw = io.BytesIO(answer.content)
        return response

    def close(self) -> None:
        pass
