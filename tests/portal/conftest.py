"""A portal over an embedded cluster, which the tests of one module share, by HTTP or in a real browser."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests import browser


class Visitor:
    """A browser without scripts: a session of `requests` that is signed in to the portal."""

    def __init__(self, link: str) -> None:
        self.root = link.partition("/open/")[0]
        self.web = requests.Session()
        self.web.headers["accept"] = "text/html"
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


@pytest.fixture
def tab(chromium: Any, link: Callable[[], str]) -> Iterator[Any]:
    """A page of Chromium that is signed in; errors of scripts and refused contents fail the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(link())
    page.root = page.url.partition("/c/")[0]
    page.problems = problems
    yield page
    context.close()
    assert not problems
