"""Links that open in the user's browser."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import quote

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.portal import starting
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.tensorboard import TensorBoard
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.text.plurals import counted


def open_portal(alias: str, port: int, no_browser: bool) -> None:
    """Open the portal's page of a cluster; print a link to it with ``no_browser``, or without a browser."""
    link = starting.one_time_link(Path.cwd(), f"/c/{quote(alias)}/jobs", port)
    if no_browser or not sdk.clusters.can_open_browser() or not sdk.clusters.open_private_link(link):
        terminal.put(link)
        terminal.flush()


def stop_portal() -> bool:
    """End the portal of this folder; return False if there was none."""
    return starting.stop_portal(Path.cwd())


def report_portals() -> None:
    """Name the portals that run, and how to end them."""
    for line in starting.describe_portals(Path.cwd()):
        say(line)


def show_tensorboard(board: TensorBoard, no_browser: bool) -> None:
    """Print the address, open it, and wait for Ctrl-C."""
    terminal.put(board.url)
    terminal.flush()
    if not no_browser and sdk.clusters.can_open_browser():
        sdk.clusters.open_private_link(board.url)
    say(f"TensorBoard shows {counted(len(board.jobs), 'job')}; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        board.wait()


def open_job(client: Backend, job: JobInfo, no_browser: bool) -> None:
    """Print the address of a job's page, and open it; for the embedded cluster, a link that signs in once."""
    has_own = sdk.clusters.has_portal(client)
    page = f"/c/{quote(client.cluster.alias)}/jobs/{quote(job.key, safe='~')}"
    url = client.job_page(job) if has_own else starting.one_time_link(Path.cwd(), page)
    terminal.put(url)
    terminal.flush()
    can_open = has_own or sdk.clusters.can_open_browser()
    show_page = sdk.clusters.open_browser if has_own else sdk.clusters.open_private_link
    if can_open and not no_browser and not show_page(url):
        say("could not open a browser")
