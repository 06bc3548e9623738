"""A real browser for tests: Debian's Chromium, headless, without network traffic of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from tests.needs import missing

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or "/usr/bin/chromium"
"""The one without a user interface needs a third less time."""
WHY_NOT = missing(*([] if os.access(CHROMIUM, os.X_OK) else ["chromium"]), "playwright")
PATIENCE = 100_000  # milliseconds that all waits for a page may take on a busy machine
FLAGS = [
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


class Page:
    """A page and the alerts of its scripts; it may load local files only."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.alerts: list[str] = []
        page.on("dialog", self._dismiss)
        page.route("**/*", self._fetch)

    def _dismiss(self, dialog: Any) -> None:
        self.alerts.append(dialog.message)
        dialog.dismiss()

    def _fetch(self, route: Any) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            route.abort()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Run Chromium until the end of the block; as root it runs without a sandbox."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags, timeout=PATIENCE)
        new_context = chromium.new_context

        def new_patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(PATIENCE)
            return context

        chromium.new_context = new_patient_context
        try:
            yield chromium
        finally:
            chromium.close()
