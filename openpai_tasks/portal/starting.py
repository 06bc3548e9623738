"""Find or start the portal's process for a project folder, and make one-time links to its pages."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from openpai_tasks.errors import ConfigError, TimedOut, Unreachable
from openpai_tasks.loopback import lock, process
from openpai_tasks.settings.home import home, locked, make_private, write_private
from openpai_tasks.text.hints import command

PROGRAM = "openpai_tasks.portal"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
PORTALS, LINKS = "portal", "links"


def portal_folder(project: Path) -> Path:
    """Return the private folder of the portal that serves this project folder."""
    return home() / PORTALS / hashlib.sha256(os.fsencode(project)).hexdigest()[:16]


def _ensure(folder: Path, project: Path, port: int = 0, environment: Mapping[str, str] | None = None) -> str:
    """Return the address of the project's portal; start it if it is not running.

    The caller holds the lock ``start``.
    """
    facts = lock.read_status(folder) or _start(folder, project, port, environment)
    if port and facts.get("port") != port:
        stop = f"`{command('cluster.portal', '--stop')}` ends it"
        raise ConfigError(f"the portal of this folder already runs at {facts['uri']}; {stop}")
    return str(facts["uri"])


def running_portal(own_home: Path) -> str:
    """Return the address of the last started portal of any project; empty if none runs."""
    found = _running_portals(own_home)
    return str(max(found, key=lambda facts: int(facts.get("started", 0)))["uri"]) if found else ""


def describe_portals(here: Path) -> list[str]:
    """Return a line for each portal that runs, with the command that ends it."""
    lines = []
    for facts in _running_portals(home()):
        project, stop = Path(facts["project"]), command("cluster.portal", "--stop")
        if Path(facts["home"]) != portal_folder(project):  # it serves no project
            stop = f"kill {facts['pid']}"
        elif project != here:
            stop = f"(cd {shlex.quote(str(project))} && {stop})"
        lines.append(f"the portal at {facts['uri']} still runs; `{stop}` ends it")
    return lines


def _running_portals(own_home: Path) -> list[dict[str, Any]]:
    folders = sorted((own_home / PORTALS).glob("*"))
    return [facts for folder in folders if (facts := lock.read_status(folder))]


def any_portal(own_home: Path, environment: Mapping[str, str]) -> str:
    """Return the address of the last started portal of any project; start one for no project if none runs.

    For programs that have another environment than the user's commands: ``own_home`` is the user's folder.
    """
    if uri := running_portal(own_home):
        return uri
    folder = own_home / PORTALS / "none"
    with locked(folder / "start"):
        return _ensure(
            folder, make_private(folder), environment={**environment, "OPENPAI_HOME": str(own_home)}
        )


def one_time_link(project: Path, path: str = "/", port: int = 0) -> str:
    """Return a link that signs the user's browser in, once, and opens a page of the portal."""
    lock.check_port(port)
    folder, token = portal_folder(project), secrets.token_urlsafe(32)
    with locked(folder / "start"):
        uri = _ensure(folder, project, port)
        write_private(link_file(folder, token), "")
    return f"{uri}/open/{token}?next={quote(path)}"


def link_file(folder: Path, token: str) -> Path:
    """Return the file of an unused link; its name does not reveal the token."""
    return folder / LINKS / hashlib.sha256(token.encode()).hexdigest()


def withdraw_if_idle(folder: Path, idle_seconds: Callable[[], float], limit: float) -> bool:
    """Let commands start another portal, as this one ends; return False if it is used again.

    A new link counts as use: its browser is about to come.
    """
    with locked(folder / "start"):
        links = [file.stat().st_mtime for file in (folder / LINKS).glob("*")]
        if idle_seconds() < limit or time.time() - max(links, default=0.0) < limit:
            return False
        (folder / lock.STATUS).unlink(missing_ok=True)
        return True


def stop_portal(project: Path) -> bool:
    """End the project's portal; False if it was not running."""
    folder = portal_folder(project)
    if not lock.is_held(folder):
        return False
    if not process.terminate(folder, PROGRAM, STOP_SECONDS):
        raise TimedOut(f"waited {STOP_SECONDS:.0f} s for the portal to end")
    return True


def _start(folder: Path, project: Path, port: int, environment: Mapping[str, str] | None) -> dict[str, Any]:
    make_private(folder)
    limit = time.monotonic() + START_SECONDS
    while lock.is_held(folder):  # the last portal is still ending, or one was started by hand
        if facts := lock.read_status(folder):
            return facts
        if time.monotonic() > limit:
            raise TimedOut(f"waited {START_SECONDS:.0f} s for the last portal to end")
        time.sleep(POLL_SECONDS)
    argv = [sys.executable, "-m", PROGRAM, "--home", str(folder), "--port", str(port)]
    argv += ["--project", str(project)]
    log = folder / "portal.log"
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        started = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            cwd=folder,  # where it is started, Python looks for modules
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    while not (facts := lock.read_status(folder)):
        if started.poll() is not None:
            raise Unreachable(f"the portal did not start: {process.last_line(log)} (see {log})")
        if time.monotonic() > limit:
            raise TimedOut(f"waited {START_SECONDS:.0f} s for the portal to start (see {log})")
        time.sleep(POLL_SECONDS)
    return facts
