"""Messages about interactive containers, and Ctrl-C while waiting for one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from openpai_tasks import render, sdk
from openpai_tasks.hints import command
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.tasks.framework.prompts import agrees

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.containers.keepalive import ContainerStay


def show_stay(name: str, stay: ContainerStay | None) -> None:
    """Report how long an interactive container stays, and whether its GPUs are idle; None prints nothing."""
    if stay is None:
        return
    say(
        f"it stays for {render.duration(max(0, stay.left))}; "
        f"`{command('container.extend', name)}` keeps it longer"
    )
    _show_idle(name, stay, "its GPUs")


def show_idle_gpus(name: str, stays: Mapping[str, ContainerStay]) -> None:
    """Report containers whose GPUs are idle, by their labels."""
    for label, stay in stays.items():
        _show_idle(name, stay, f"the GPUs of {label}")


def _show_idle(name: str, stay: ContainerStay, whose: str) -> None:
    if stay.idle is not None:
        idle = render.duration(stay.idle)
        say(f"warning: {whose} have been idle for {idle}; `{command('container.stop', name)}` frees them")


@contextlib.contextmanager
def offer_stop_on_interrupt(client: Backend, name: str) -> Iterator[None]:
    """On Ctrl-C, end the wait; stop the job only if the user agrees."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdin.isatty() and _agrees_to_stop(name):
            sdk.jobs.stop(client, [name])
            say(f"job {name} stopped")
        else:
            ways = (
                f"`{command('container.ssh', name)}` opens a shell when it runs, "
                f"`{command('container.stop', name)}` stops it"
            )
            say("", f"job {name} continues; {ways}")
        raise


def _agrees_to_stop(name: str) -> bool:
    say("")  # end the line with the ^C
    return agrees(f"stop job {name} too?")
