"""Questions to the person at the terminal, which a word answers."""

from __future__ import annotations

import getpass
import select
import sys

from openpai_tasks.errors import ConfigError
from openpai_tasks.plain_text import one_line
from openpai_tasks.tasks.framework import terminal

LOOK = 0.2  # seconds


def confirm(question, otherwise="nothing was removed"):
    """Ask before something is done."""
    if not ask(question):
        raise ConfigError(otherwise)


def consent(refusal):
    """Ask whether to trust what a project wants; raises the refusal on a no, or with nobody to ask."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise refusal
    for file in dict.fromkeys(claim.file for claim in refusal.claims):
        lines = [claim.line for claim in refusal.claims if claim.file == file]
        terminal.say(f"{file} sets:", *(f"  {line}" for line in lines))
    if not ask("This reaches further than a job. Do you trust this folder?"):
        raise refusal


def agrees(question):
    """A second Ctrl-C is a no."""
    try:
        return ask(question)
    except KeyboardInterrupt:
        return False


def ask(question):
    """Whether the person at the terminal says yes; no answer is a no."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def answer(prompt):
    """What the person types, in one line; empty at the end of the input."""
    terminal.prompt(prompt)
    while sys.stdin.isatty() and not select.select([sys.stdin], [], [], LOOK)[0]:
        pass  # a Ctrl-C that comes just before a read would be noticed only after it
    return sys.stdin.readline().strip()


def secret(prompt):
    """What the person types on the terminal, unseen."""
    return getpass.getpass(one_line(prompt))
