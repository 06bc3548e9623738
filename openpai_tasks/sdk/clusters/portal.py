"""The pages of a cluster's web portal."""

from __future__ import annotations

import os
import sys

from openpai_tasks.backends.base import Backend
from openpai_tasks.net.web_address import SSH
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.settings.registry import LOCAL


def job_page(client: Backend, job: JobInfo) -> str:
    """The address of a job's page."""
    return client.job_page(job)


def has_portal(client: Backend) -> bool:
    """Whether the cluster has a portal of its own; ours shows the embedded one and those on login nodes."""
    return client.cluster.alias != LOCAL and not client.cluster.uri.startswith(SSH)


def can_open_browser() -> bool:
    """Whether a graphical browser can be opened for the user of this terminal."""
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return has_display and sys.stderr is not None and sys.stderr.isatty()


def open_browser(url: str) -> bool:
    """Open the address in the user's browser; False if there is none."""
    import webbrowser

    return webbrowser.open(url)
