"""``python -m openpai_tasks.portal``: serve the portal of a project folder until it is idle."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.loopback import logs, service
from openpai_tasks.portal import starting
from openpai_tasks.portal.app import Activity, Portal
from openpai_tasks.portal.labels import label
from openpai_tasks.text import hints

IDLE_SECONDS = 30 * 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m openpai_tasks.portal", description="The web portal.")
    parser.add_argument("--home", type=Path, required=True, metavar="DIR", help="its private folder")
    parser.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: the last port, or any")
    flags = parser.parse_args()
    logs.start()
    try:
        home, project = flags.home.absolute(), flags.project.absolute()
        _enter(project)
        service.hold_lock(home)
        sockets = service.bind(home, flags.port, is_for_browsers=True)
        hints.use_options(label)
        portal = Portal(home, project)
        end_when_idle(portal.activity, home, IDLE_SECONDS)
        service.serve(portal, sockets, home, {"project": str(project)})
    except PaiError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    return 0


def _enter(project: Path) -> None:
    """Work in the project folder, as commands do; it is not where Python looks for modules."""
    try:
        os.chdir(project)
    except OSError as err:
        raise ConfigError(f"cannot use the folder {project}: {err.strerror}") from err


def end_when_idle(activity: Activity, home: Path, seconds: float) -> None:
    """End the process, from a thread, once it is idle for this many seconds."""

    def may_end() -> bool:
        with contextlib.suppress(OSError, ConfigError):  # the disk may be full
            return starting.withdraw_if_idle(home, activity.idle_seconds, seconds)
        return False

    def watch() -> None:
        while (idle := activity.idle_seconds()) < seconds or not may_end():
            time.sleep(max(0.05, min(seconds - idle, 5.0)))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="idle", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
