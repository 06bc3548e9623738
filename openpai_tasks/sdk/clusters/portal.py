"""The pages of a cluster's web portal."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.net.ssh_address import SSH
from openpai_tasks.settings.credentials import VARIABLES
from openpai_tasks.settings.home import home, make_private, write_private

LOAD_SECONDS = 300.0  # for a browser to load a page that redirects to a link


def has_portal(client: Backend) -> bool:
    """Whether the cluster has its own portal; the embedded cluster and those on login nodes use ours."""
    return not client.cluster.is_embedded and not client.cluster.uri.startswith(SSH)


def can_open_browser() -> bool:
    """Whether a graphical browser can be opened for the user of this terminal."""
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return has_display and sys.stderr is not None and sys.stderr.isatty()


def open_browser(url: str) -> bool:
    """Open the address in the user's browser; False if no browser was found."""
    import webbrowser

    hidden = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}  # it takes no env=
    try:
        return webbrowser.open(url)
    finally:
        os.environ.update(hidden)


def open_private_link(url: str) -> bool:
    """Open a link that holds a secret, by a private page: every user can read a program's arguments."""
    folder = make_private(home() / "browser")
    for page in folder.glob("*.html"):
        with contextlib.suppress(FileNotFoundError):
            if page.stat().st_mtime < time.time() - LOAD_SECONDS:
                page.unlink()
    return open_browser(write_redirect(folder / f"{secrets.token_hex(8)}.html", url))


def write_redirect(page: Path, url: str) -> str:
    """Write a private page that redirects to the address; return the page's own address."""
    address = json.dumps(url).replace("<", "\\u003c")
    lines = ["<!DOCTYPE html>", '<meta charset="utf-8">', "<title>openpai-tasks</title>"]
    lines += ['<meta name="referrer" content="no-referrer">', f"<script>location.replace({address})</script>"]
    write_private(page, "\n".join(lines) + "\n")
    return page.as_uri()
