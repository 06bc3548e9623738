"""A portal over an embedded cluster, which the tests of one module share, by HTTP or in a real browser."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests import browser


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

    def __init__(self, link: str) -> None:
        self.root = link.partition("/open/")[0]
        self.web = Web()
        assert self.web.get(link, timeout=60).status_code == 200

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.web.get(self.root + path, timeout=60, **options)

    def post(self, path: str, data: Any = None, **options: Any) -> requests.Response:
        """Send a form with the token that the pages carry."""
        return self.web.post(
            self.root + path, data={"csrf": self.token, **(data or {})}, timeout=60, **options
        )

    @functools.cached_property
    def token(self) -> str:
        found = re.search(r'<meta name="csrf" content="([^"]+)">', self.get("/c/local/jobs").text)
        assert found
        return found[1]


@pytest.fixture(scope="module")
def link(cluster: Any) -> Iterator[Callable[[], str]]:
    """Return one-time links to the portal of the module's cluster; it is ended with the module."""
    yield lambda: cluster.pai("cluster.portal", "--no-browser").out.strip()
    cluster.pai("cluster.portal", "--stop")


@pytest.fixture(scope="module")
def visitor(link: Callable[[], str]) -> Visitor:
    return Visitor(link())


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    if browser.WHY_NOT:
        pytest.skip(browser.WHY_NOT)
    with browser.browser() as started:
        yield started


def open_link(page: Any, address: str) -> str:
    """Sign a page of Chromium in; return the address of the portal for its session."""
    page.goto(address)
    page.wait_for_url("**/c/**")
    return str(page.url.partition("/c/")[0])


@pytest.fixture(scope="module")
def signed_in(chromium: Any, link: Callable[[], str]) -> tuple[str, Any]:
    """The address of the portal for a session of the module's tabs, and the cookies of the session."""
    context = chromium.new_context()
    root = open_link(context.new_page(), link())
    state = context.storage_state()
    context.close()
    return root, state


@pytest.fixture
def tab(chromium: Any, signed_in: tuple[str, Any]) -> Iterator[Any]:
    """A page of Chromium that is signed in; errors of scripts and refused contents fail the test."""
    root, state = signed_in
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, storage_state=state)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.root, page.problems = root, problems
    yield page
    context.close()
    assert not problems
