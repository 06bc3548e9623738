"""Building blocks of every task: task, settings, connect, show, say, remainder, command_text."""

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
from openpai_tasks.tasks.framework.shared_flags import signature
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
"""Short names of flags, the same in every task that has the flag."""

SHARED_HELP = {
    "cluster-alias": "the cluster; `local` is the embedded one",
    "output": "output format: table, json, yaml or csv",
}
"""Help of flags that many tasks share, unless a task has its own."""


class PaiTask(Task[Any]):
    """A task that reports expected errors in one line with an exit code, and documents all its flags."""

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
                render.check_format(kwargs["output"])  # before anything is done
            result = super().__call__(*args, **kwargs)
            terminal.flush()
            return result
        except PaiError as err:
            _log_traceback()
            raise ending(err.exit_code, f"error: {err}", *_other_problems(err)) from err
        except KeyboardInterrupt as err:
            raise Exit(code=exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED) from err
        except BrokenPipeError:
            if not terminal.reader_left():
                raise
            raise Exit(code=exits.BROKEN_PIPE) from None

    def __deepcopy__(self, memo: Any) -> PaiTask:
        """Return itself: Invoke copies every task at every start, and ours never change."""
        return self

    def argspec(self, body: Callable[..., Any]) -> inspect.Signature:
        """Return the signature, built only now if the flags come from a table."""
        signature(body)
        return super().argspec(body)

    def fill_implicit_positionals(self, positional: Iterable[str] | None) -> Any:
        """Leave positionals to be read on first use: reading 70 signatures would slow down every start."""
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
        """Return the flags, with the kinds that the task declares and our short names."""
        helps, self.help = self.help, {**self.help}  # Invoke empties it
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
    """Load the settings for a task; flags that were given override every other source."""
    try:
        return _load(c, flags)
    except user_settings.trust.Untrusted as err:
        prompts.consent(err)
        user_settings.trust.remember(err.claims)
    return _load(c, flags)


def _load(c: Context, flags: Mapping[str, Any], withhold: bool = False) -> Settings:
    loaded: Settings = user_settings.config.Settings.load(c.config, flags, withhold)
    for line in loaded.unknown:
        _warn(line)
    return loaded


def settings_for(c: Context, cluster_alias: str | None) -> Settings:
    """Load the settings, with the cluster named on the command line, if any, as the selected one."""
    return settings(c, cluster_alias=cluster_alias or None)


def trusted_settings(c: Context) -> Settings:
    """Load the settings without those of a project that the user does not trust; never asks."""
    return _load(c, {}, withhold=True)


@functools.cache
def _warn(line: str) -> None:
    say(f"warning: {line}")


def connect(c: Context, cluster_alias: str | None = None) -> Backend:
    """Connect to the named cluster, or to the selected one."""
    return sdk.clusters.connect(settings_for(c, cluster_alias), say=say)


def show(
    c: Context, items: Any, columns: Sequence[str] | Callable[[Any], View], output: str | None = None
) -> None:
    """Print values in the requested output format; notebooks get tables as HTML."""
    form = output or trusted_settings(c).output
    if form != "table":
        terminal.put(render.format_values(items, columns, form))
    elif not display.takes(items, columns):
        screen.print_view(render.table(items, columns))


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


def _other_problems(err: PaiError) -> list[str]:
    """Return the other problems of a job document, each on its own line."""
    return [f"  {problem}" for problem in getattr(err, "problems", ())[1:]]


def _log_traceback() -> None:
    """Log the traceback, which `inv -d` shows."""
    if log.isEnabledFor(logging.DEBUG):
        import traceback

        from openpai_tasks.net.log_masking import mask_keys

        log.debug("task failed\n%s", mask_keys(plain(traceback.format_exc())))
