"""Questions that the user answers at the terminal."""

from __future__ import annotations

import getpass
import select
import sys
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.text.plain import one_line

if TYPE_CHECKING:
    from openpai_tasks.settings.trust import UntrustedSettings

POLL_SECONDS = 0.2


def confirm(question: str, otherwise: str = "nothing was removed") -> None:
    """Ask before something is done; raise unless the answer is yes."""
    if not ask(question):
        raise ConfigError(otherwise)


def require_terminal(otherwise: str) -> None:
    """Raise without a terminal, where an editor would hang or draw into a file."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise ConfigError(otherwise)


def ask_for_trust(refusal: UntrustedSettings) -> None:
    """Ask whether to trust the settings of a project; raise the refusal unless the answer is yes."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise refusal
    for file in dict.fromkeys(claim.file for claim in refusal.claims):
        lines = [claim.line for claim in refusal.claims if claim.file == file]
        terminal.say(f"{file} sets:", *(f"  {line}" for line in lines), always=True)
    if not ask("These settings affect more than jobs. Do you trust this folder?"):
        raise refusal


def ask_or_interrupt(question: str) -> bool:
    """Ask a question; Ctrl-C means no."""
    try:
        return ask(question)
    except KeyboardInterrupt:
        return False


def ask(question: str) -> bool:
    """Ask a question; anything but yes is a no."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def answer(prompt: str) -> str:
    """Return the line that the user types; empty at the end of the input."""
    terminal.prompt(prompt)
    while sys.stdin.isatty() and not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
        pass  # a Ctrl-C just before a read would be noticed only after it
    return sys.stdin.readline().strip()


def secret(prompt: str) -> str:
    """Return what the user types on the terminal without echo."""
    return getpass.getpass(one_line(prompt))
