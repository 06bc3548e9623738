"""A browser without scripts, for the portal."""

from __future__ import annotations

import functools
import html
import re
from typing import Any

import requests


class Web(requests.Session):
    """A browser without scripts, which follows the page that leads to the host of a session."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["accept"] = "text/html"

    def request(self, method: Any, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        answer = super().request(method, url, **options)
        if options.get("stream") or "text/html" not in answer.headers.get("content-type", ""):
            return answer
        found = re.search(r'id="home" href="http://([^/"]+)(/[^"]+)"', answer.text)
        if not found:
            return answer
        self.headers["host"] = found[1]  # the system may not know *.localhost
        root = "/".join(answer.url.split("/")[:3])
        return super().request("GET", root + html.unescape(found[2]), timeout=60)


class Visitor:
    """A browser without scripts that is signed in to the portal."""

    def __init__(self, link: str, alias: str = "local") -> None:
        self.alias = alias
        self.root = link.partition("/open/")[0]
        self.web = Web()
        page = self.web.get(link, timeout=60)
        assert page.status_code == 200 and "/sign-in" not in page.url, f"the link was refused: {page.url}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.web.get(self.root + path, timeout=60, **options)

    def post(self, path: str, data: Any = None, **options: Any) -> requests.Response:
        """Send a form with the token that the pages carry."""
        return self.web.post(
            self.root + path, data={"csrf": self.token, **(data or {})}, timeout=60, **options
        )

    @functools.cached_property
    def token(self) -> str:
        found = re.search(r'<meta name="csrf" content="([^"]+)">', self.get(f"/c/{self.alias}/jobs").text)
        assert found
        return found[1]
