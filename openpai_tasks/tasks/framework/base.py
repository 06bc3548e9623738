"""What every task is made with: task, settings, connect, show, say, remainder, the_command."""

from __future__ import annotations

import functools
import inspect
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from openpai_tasks import exits, render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.plain_text import plain
from openpai_tasks.tasks.framework import display, parser, prompts, screen, terminal
from openpai_tasks.tasks.framework.signals import Terminated
from openpai_tasks.tasks.framework.terminal import ending
from openpai_tasks.tasks.framework.terminal import say as say

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.render import View
    from openpai_tasks.settings.config import Settings


log = logging.getLogger("openpai_tasks")


NICKNAMES = {
    "cluster-alias": ("a",),
    "follow": ("f",),
    "image": ("i",),
    "is-global": ("g",),
    "job-name": ("j",),
    "lines": ("n",),
    "memoryMB": ("mem",),
    "output": ("o",),
    "parameter": ("p",),
    "pip-installs": ("pip",),
    "recursive": ("r",),
    "sources": ("src",),
    "timeout": ("t",),
    "update": ("u",),
    "virtual-cluster": ("vc",),
    "workspace": ("w",),
    "yes": ("y",),
}
"""Second names of flags, the same in every task that has the flag; never made up by position."""

SHARED_HELP = {
    "cluster-alias": "the cluster; `local` is the embedded one",
    "output": "how to show it: table, json, yaml or csv",
}
"""What a flag that many tasks share is for, unless the task says it better."""


class PaiTask(Task[Any]):
    """A task whose expected errors end as one line and an exit code, and whose flags are told fully."""

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        kinds: Mapping[str, type] | None = None,
        auto_shortflags: bool = False,
        **options: Any,
    ) -> None:
        self.kinds = kinds or {}
        self._positional: Iterable[str] | None = None
        super().__init__(body, auto_shortflags=auto_shortflags, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs.get("output"):
                render.check_format(kwargs["output"])  # before anything is done, not when it is shown
            result = super().__call__(*args, **kwargs)
            terminal.flush()
            return result
        except PaiError as err:
            _log_traceback()
            raise ending(err.exit_code, f"error: {err}", *_further(err)) from err
        except KeyboardInterrupt as err:
            raise Exit(code=exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED) from err
        except BrokenPipeError:
            if not terminal.reader_left():
                raise
            raise Exit(code=exits.BROKEN_PIPE) from None

    def __deepcopy__(self, memo: Any) -> PaiTask:
        """Itself: Invoke copies every task at every start, and nothing changes a task of ours."""
        return self

    def fill_implicit_positionals(self, positional: Iterable[str] | None) -> Any:
        """Looked up when first needed: reading 70 signatures takes its time at every start."""
        return positional

    @property
    def positional(self) -> Iterable[str]:
        if self._positional is None:
            parameters = self.argspec(self.body).parameters.values()
            self._positional = [item.name for item in parameters if item.default is inspect.Parameter.empty]
        return self._positional

    @positional.setter
    def positional(self, names: Iterable[str] | None) -> None:
        self._positional = names

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Its flags, with the kinds it declares and the second names of our table."""
        helps, self.help = self.help, {**self.help}  # Invoke empties it; a second call would find no help
        try:
            arguments = super().get_arguments(ignore_unknown_help)
        finally:
            self.help = helps
        taken = {name for argument in arguments for name in argument.names}
        for argument in arguments:
            self._complete(argument, taken)
        return arguments

    def _complete(self, argument: Argument, taken: set[str]) -> None:
        flag = argument.names[0]
        argument.names += tuple(name for name in NICKNAMES.get(flag, ()) if name not in taken)
        argument.help = argument.help or SHARED_HELP.get(flag)
        kind = self.kinds.get(argument.name or flag)
        if kind is not None and argument.kind is not list:
            argument.kind = kind


task: Callable[..., Any] = functools.partial(invoke_task, klass=PaiTask)


def settings(c: Context, **flags: Any) -> Settings:
    """The settings a task works with; a flag that was given is stronger than every other place."""
    try:
        return _load(c, flags)
    except user_settings.trust.Untrusted as err:
        prompts.consent(err, parser.running)
        user_settings.trust.remember(err.claims)
    return _load(c, flags)


def _load(c: Context, flags: Mapping[str, Any], withhold: bool = False) -> Settings:
    loaded: Settings = user_settings.config.Settings.load(c.config, flags, withhold)
    for line in loaded.unknown:
        _warn(line)
    return loaded


def chosen(c: Context, cluster_alias: str | None) -> Settings:
    """The settings, with the cluster that the user named on the command line, if any, as the selected one."""
    return settings(c, cluster_alias=cluster_alias or None)


def settings_in_force(c: Context) -> Settings:
    """The settings without those that a project wants and the user has not trusted; asks nothing."""
    return _load(c, {}, withhold=True)


@functools.cache
def _warn(line: str) -> None:
    say(f"warning: {line}")


def connect(c: Context, cluster_alias: str | None = None) -> Backend:
    """Connect to the cluster that the user named, or to the selected one."""
    return sdk.clusters.connect(chosen(c, cluster_alias), say=say)


def show(
    c: Context, items: Any, columns: Sequence[str] | Callable[[Any], View], output: str | None = None
) -> None:
    """Print values as data in the requested format; a notebook gets tables as HTML."""
    form = output or settings_in_force(c).output
    if form != "table":
        terminal.put(render.format_values(items, columns, form))
    elif not display.takes(items, columns):
        screen.print_view(render.table(items, columns))


def remainder() -> list[str]:
    """The words after ``--``, each as it was typed."""
    return list(parser.remainder)


def the_command(command: str | None) -> str:
    """The command, in quotes or behind ``--``, as one text for a shell; both would be one too many."""
    behind = remainder()
    if command is None:
        return shlex.join(behind)
    is_behind = any(command == parser.joined(behind[first:]) for first in range(len(behind)))
    if behind and not is_behind:
        said = f"two commands: {command!r} and, behind --, {shlex.join(behind)!r}"
        raise ConfigError(f"{said}; give one of them")
    return command


def _further(err: PaiError) -> list[str]:
    """The other problems of a job document, each on its line: who mends one wants to see them all."""
    return [f"  {problem}" for problem in getattr(err, "problems", ())[1:]]


def _log_traceback() -> None:
    """Shown under `inv -d`."""
    if log.isEnabledFor(logging.DEBUG):
        import traceback

        from openpai_tasks.net.log_masking import mask_keys

        log.debug("task failed\n%s", mask_keys(plain(traceback.format_exc())))
