"""Links that open in the user's browser."""

from __future__ import annotations

from openpai_tasks import sdk
from openpai_tasks.tasks.framework import terminal


def open_link(link: str, no_browser: bool) -> None:
    """Open a link in the browser; print it if there is none, or if only that is wanted."""
    if no_browser or not sdk.clusters.can_open_browser() or not sdk.clusters.open_browser(link):
        terminal.put(link)
        terminal.flush()
