"""Talk of the tasks of interactive containers, and how Ctrl-C leaves them."""

from __future__ import annotations

import contextlib
import sys

from openpai_tasks import render, sdk
from openpai_tasks.hints import command
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.tasks.framework.prompts import agrees


def tell_time(name, stay):
    """Report how long an interactive container stays, and whether its GPUs are idle."""
    if stay is None:
        return
    say(
        f"it stays for {render.duration(max(0, stay.left))}; "
        f"`{command('container.extend')} {name}` keeps it longer"
    )
    _tell_idle(name, stay, "its GPUs")


def tell_idle_ones(name, stays):
    """Report containers whose GPUs are idle, by their labels."""
    for label, stay in stays.items():
        _tell_idle(name, stay, f"the GPUs of {label}")


def _tell_idle(name, stay, whose):
    if stay.idle is not None:
        idle = render.duration(stay.idle)
        say(f"warning: {whose} did nothing for {idle}; `{command('container.stop')} {name}` frees them")


@contextlib.contextmanager
def goes_on(client, name):
    """End only the waiting on Ctrl-C; stop the job if the user agrees."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdin.isatty() and _agrees_to_stop(name):
            sdk.jobs.stop(client, [name])
            say(f"job {name} is stopped")
        else:
            ways = (
                f"`{command('container.ssh')} {name}` opens a shell when it "
                f"runs, `{command('container.stop')} {name}` ends it"
            )
            say("", f"job {name} goes on; {ways}")
        raise


def _agrees_to_stop(name):
    say("")  # behind the ^C
    return agrees(f"stop job {name} too?")
