"""Notify a hook once: post to an address, run a command, or show a notification on the desktop."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from openpai_tasks.hooks import messages
from openpai_tasks.hooks.hook import Hook
from openpai_tasks.hooks.messages import Facts

SILENCE, TOTAL = 10.0, 30.0  # seconds of a POST
COMMAND_SECONDS = 60.0
DESKTOP_SECONDS = 5.0
AGAIN = (408, 425, 429)
"""Refusals that are worth another attempt."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class DeliveryFailed(Exception):
    """Raised with the reason if a hook was not notified; ``again`` says whether another attempt may help."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def deliver(
    hook: Hook, facts: Facts, environment: Mapping[str, str], identity: str = "", attempt: int = 1
) -> None:
    """Notify a hook; raise DeliveryFailed with a reason that shows nothing of its address or command.

    ``environment`` are the variables of programs; all attempts of a delivery have the same ``identity``.
    """
    facts = facts.safe()
    if hook.post:
        _post(hook, facts, identity, attempt)
    elif hook.desktop:
        _show_on_desktop(facts, environment)
    else:
        own = {"PAI_DELIVERY_ID": identity, "PAI_DELIVERY_ATTEMPT": str(attempt)}
        _run(hook.command, {**environment, **facts.variables(), **own})


def _post(hook: Hook, facts: Facts, identity: str, attempt: int) -> None:
    from openpai_tasks.net.exchange import Exchange
    from openpai_tasks.net.http_client import HttpClient

    body, headers = messages.body(hook.service, facts)
    headers |= {messages.DELIVERY: identity, messages.ATTEMPT: str(attempt), "Connection": "close"}
    if hook.secret:
        timestamp = str(int(time.time()))
        headers |= {messages.TIMESTAMP: timestamp}
        headers |= {messages.SIGNATURE: messages.sign(hook.secret, timestamp, body)}
    exchange = Exchange(SILENCE, TOTAL, is_secret=True)
    client = HttpClient(uses_proxies=urlsplit(hook.post).hostname not in LOOPBACK)
    try:
        with client.request("POST", hook.post, exchange, headers=headers, data=body) as found:
            status = found.status_code  # what else it answers is not read
    except ssl.SSLCertVerificationError:
        raise DeliveryFailed("its certificate is not valid", again=True) from None
    except TimeoutError:
        raise DeliveryFailed("it did not answer in time", again=True) from None
    except (OSError, ValueError) as err:
        raise DeliveryFailed(getattr(err, "strerror", None) or "no answer", again=True) from None
    if not 200 <= status < 300:
        hint = ", and redirects are not followed" if 300 <= status < 400 else ""
        raise DeliveryFailed(f"it answered with HTTP {status}{hint}", status >= 500 or status in AGAIN)


def _run(command: str, environment: Mapping[str, str]) -> None:
    """Run a command of the user; it is in a variable, as everybody can see the arguments of a process."""
    home = environment.get("HOME", "/")
    words = ["/bin/sh", "-c", 'command=$PAI_HOOK_COMMAND; unset PAI_HOOK_COMMAND; eval "$command"']
    code = _end_of(
        words,
        {**environment, "PAI_HOOK_COMMAND": command},
        home if Path(home).is_dir() else "/",
        COMMAND_SECONDS,
    )
    if code is None:
        raise DeliveryFailed(f"it was killed after {COMMAND_SECONDS:.0f} s")
    if code:
        raise DeliveryFailed(f"it ended with exit code {code}")


def _show_on_desktop(facts: Facts, environment: Mapping[str, str]) -> None:
    bus = f"/run/user/{os.getuid()}/bus"
    if "DBUS_SESSION_BUS_ADDRESS" not in environment and os.path.exists(bus):
        environment = {**environment, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={bus}"}
    if not notify_desktop(facts.line, facts.link, environment):
        raise DeliveryFailed("there is no desktop with notify-send")


def notify_desktop(title: str, text: str, environment: Mapping[str, str]) -> bool:
    """Send a notification to the desktop; False if there is none."""
    program = shutil.which("notify-send", path=environment.get("PATH"))
    if program is None:
        return False
    words = [program, "--app-name=pai", "--", title, text]
    return _end_of(words, environment, "/", DESKTOP_SECONDS) == 0


def _end_of(words: Sequence[str], environment: Mapping[str, str], folder: str, limit: float) -> int | None:
    """Run a program without input and output; return its exit code, None if it was killed for its time."""
    try:
        started = subprocess.Popen(
            words,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as err:
        raise DeliveryFailed(f"it could not be started: {err.strerror}") from None
    try:
        return started.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
