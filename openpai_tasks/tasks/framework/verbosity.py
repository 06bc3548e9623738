"""The flags -q and -v of every program: fewer messages, or the requests that are sent."""

from __future__ import annotations

import logging

from invoke.parser.argument import Argument
from invoke.program import Program

from openpai_tasks.tasks.framework import terminal

_core_args = Program.core_args


def core_args(program: Program) -> list[Argument]:
    """Return Invoke's own flags and ours."""
    return [*_core_args(program), *_flags()]


def _flags() -> list[Argument]:
    about = {
        "quiet": "Print only results and errors.",
        "verbose": "Print what is sent to which server, without secrets.",
    }
    return [
        Argument(names=(name, name[0]), kind=bool, default=False, help=text) for name, text in about.items()
    ]


def add_flags(program: Program) -> None:
    """Add the flags to a program that had read its own ones before it loaded us, such as `inv`."""
    known = program.core[0]
    for argument in _flags():
        if argument.name not in known.args:
            known.add_arg(argument)


def apply(program: Program) -> None:
    """Follow the flags, if they were given."""
    given = [name for name in ("quiet", "verbose") if name in program.args and program.args[name].value]
    if "quiet" in given:
        terminal.be_quiet()
    if "verbose" in given:
        _show_requests()


def _show_requests() -> None:
    """Print a line for each request to a cluster from now on."""
    from openpai_tasks.net.log_masking import REQUESTS

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.say(record.getMessage(), always=True)

    log = logging.getLogger(REQUESTS)
    log.handlers = [Handler()]
    log.setLevel(logging.DEBUG)
    log.propagate = False
