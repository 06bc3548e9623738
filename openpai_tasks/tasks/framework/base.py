"""Building blocks of tasks: settings, connect, show, say, remainder, command_text."""

from __future__ import annotations

import functools
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import parser, prompts, screen, terminal
from openpai_tasks.tasks.framework.terminal import say as say
from openpai_tasks.text import hints

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.render import View
    from openpai_tasks.render.text import Columns
    from openpai_tasks.settings.config import Settings

_notebook_pipe = os.environ.pop("OPENPAI_DISPLAY", "")
"""The number of the pipe to a notebook that runs this command.

Each line of it is a JSON object: ``data`` is a bundle of MIME types, ``rows`` are the values shown. The
variable is removed at once, as the pipe is for this process, not for its children.
"""


def settings(c: Context, **flags: Any) -> Settings:
    """Load the settings for a task; flags that were given override every other source."""
    try:
        return _load(c, flags)
    except user_settings.trust.UntrustedSettings as err:
        prompts.ask_for_trust(err)
        user_settings.trust.remember(err.claims)
    return _load(c, flags)


def _load(c: Context, flags: Mapping[str, Any], withhold: bool = False) -> Settings:
    if alias := flags.get("cluster_alias"):
        hints.use_cluster(alias)
    loaded: Settings = user_settings.config.Settings.load(c.config, flags, withhold)
    for line in loaded.unknown:
        _warn(line)
    return loaded


def settings_for(c: Context, cluster_alias: str | None) -> Settings:
    """Load the settings, with the cluster named on the command line, if any, as the selected one."""
    return settings(c, cluster_alias=cluster_alias or None)


def trusted_settings(c: Context, **flags: Any) -> Settings:
    """Load the settings without those of a project that the user does not trust; never asks."""
    return _load(c, flags, withhold=True)


@functools.cache
def _warn(line: str) -> None:
    say(f"warning: {line}")


def connect(c: Context, cluster_alias: str | None = None) -> Backend:
    """Connect to the named cluster, or to the selected one."""
    return sdk.clusters.connect(settings_for(c, cluster_alias), say=say)


def show(
    c: Context,
    items: Any,
    columns: Sequence[str] | Callable[[Any], View],
    output: str | None = None,
    ages: bool = False,
) -> None:
    """Print values in the requested output format; notebooks get tables as HTML.

    A table on a terminal shows how old times are instead of dates, with ``ages``.
    """
    form = output or trusted_settings(c).output
    if form != "table":
        terminal.put(render.format_values(items, columns, form))
    elif not _send_to_notebook(items, columns):
        screen.print_view(render.table(items, columns), ages)


def shows_table(c: Context, output: str | None) -> bool:
    """Return whether ``show`` prints a table: then nobody gets the values themselves."""
    return (output or trusted_settings(c).output) == "table" and not _notebook_pipe.isdecimal()


def remainder() -> list[str]:
    """Return the words after ``--``, each as it was typed."""
    line = parser.current_line.get()
    return list(line.remainder) if line else []


def command_text(command: str | None) -> str:
    """Return the command for the shell, given either in quotes or after ``--``."""
    after = remainder()
    if command is None:
        return shlex.join(after)
    is_same = any(command == parser.shell_text(after[first:]) for first in range(len(after)))
    if after and not is_same:
        raise ConfigError(
            f"two commands given: {command!r}, and {shlex.join(after)!r} after --; give only one"
        )
    return command


def _send_to_notebook(items: Any, columns: Columns) -> bool:
    """Send the values to the notebook; False if there is none or text shows them better."""
    if not _notebook_pipe.isdecimal():
        return False
    picture = render.picture(items, columns)
    if picture is None:
        return False
    data = {"text/plain": render.format_values(items, columns), "text/html": picture}
    terminal.flush()  # what was printed before is shown before
    line = json.dumps({"data": data, "rows": render.values(items, columns)})
    try:
        with open(int(_notebook_pipe), "w", encoding="utf-8", closefd=False) as out:
            out.write(f"{line}\n")
    except OSError:  # the notebook is gone
        return False
    return True
