"""A portal over an embedded cluster, which the tests of one module share, by HTTP or in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import browser
from tests.portal.visitor import Visitor, Web

__all__ = ["Visitor", "Web"]
SESSION = re.compile(r"http://[^/]+/c/")
"""Pages of a session; the link that leads there has their path only in its query."""
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Waits until plots are drawn again: one frame sees what has changed, the next one draws it."""


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
    page.wait_for_url(SESSION)
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
