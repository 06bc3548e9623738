"""The tasks of this package: one-line errors with exit codes, and short flags."""

from __future__ import annotations

import functools
import inspect
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any, overload

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from openpai_tasks import exits, render
from openpai_tasks.errors import PaiError
from openpai_tasks.plain_text import plain
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.signals import Terminated

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
    "storage-alias": ("s",),
    "timeout": ("t",),
    "update": ("u",),
    "virtual-cluster": ("vc",),
    "workspace": ("w",),
    "yes": ("y",),
}
"""Short names of flags, the same in every task that has the flag, unless a task has other ``nicknames``."""

log = logging.getLogger("openpai_tasks")

SHARED_HELP = {
    "absolute": "on a terminal: show dates instead of how long ago",
    "cluster-alias": "the cluster; `local` is the embedded one",
    "notify": "at the end, ring the bell and notify you on the desktop; only from a terminal",
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
        nicknames: Mapping[str, str] | None = None,
        single_dash: bool = False,
        auto_shortflags: bool = False,
        **options: Any,
    ) -> None:
        self.kinds = kinds or {}
        self.nicknames = nicknames or {}
        self.single_dash = single_dash  # whether `-name` is `--name`, as in Go programs
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
            raise terminal.ending(err.exit_code, f"error: {err}", *_other_problems(err)) from err
        except KeyboardInterrupt as err:
            raise Exit(code=exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED) from err

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the flags, with the kinds that the task declares and our short names."""
        helps, self.help = self.help, {**self.help}  # Invoke empties it
        try:
            arguments = super().get_arguments(ignore_unknown_help)
        finally:
            self.help = helps
        taken = {name for argument in arguments for name in argument.names} | {*self.nicknames.values()}
        for argument in arguments:
            self._complete(argument, taken)
        return arguments

    def _complete(self, argument: Argument, taken: set[str]) -> None:
        flag = argument.names[0]
        own = self.nicknames.get(flag)
        argument.names += (own,) if own else tuple(n for n in NICKNAMES.get(flag, ()) if n not in taken)
        argument.help = argument.help or SHARED_HELP.get(flag)
        kind = self.kinds.get(argument.name or flag)
        if kind is not None and argument.kind is not list:
            argument.kind = kind


Body = Callable[..., Any]


@overload
def task(body: Body, /) -> PaiTask: ...
@overload
def task(**options: Any) -> Callable[[Body], PaiTask]: ...
def task(*words: Any, **options: Any) -> Any:
    """Make a function a task, with the options of Invoke's ``task`` and those of ``PaiTask``."""
    return invoke_task(*words, klass=PaiTask, **options)


def with_options(options: Mapping[str, Any]) -> Callable[[Body], Body]:
    """Give a body ``(c, ..., **options)`` flags with these defaults."""

    def decorate(body: Body) -> Body:
        own = inspect.signature(body).parameters.values()
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in options.items()
        ]
        kept = [item for item in own if item.kind is not item.VAR_KEYWORD]
        body.__signature__ = inspect.Signature([*kept, *named])  # type: ignore[attr-defined]
        return body

    return decorate


def same_flags_as(
    other: Any, word: str = "", more: Mapping[str, Any] | None = None, **fixed: Any
) -> Callable[[Body], Body]:
    """Give a body ``(c, word, flags)`` the flags of the task ``other``, without those that are fixed.

    ``flags`` holds their values by name. ``word`` names a positional that the other task does not have, and
    ``more`` are flags with their defaults that it does not have either.
    """
    context, *known = inspect.signature(other.body).parameters.values()
    first = [inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)] if word else []
    last = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (more or {}).items()
    ]
    kept = [item for item in known if item.name not in fixed]
    signature = inspect.Signature([context, *first, *kept, *last])

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        def wrapper(*words: Any, **flags: Any) -> Any:
            bound = signature.bind(*words, **flags)
            c, word, *_ = bound.arguments.values()
            rest = dict(list(bound.arguments.items())[2:])
            return body(c, word, {**rest, **fixed})

        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _other_problems(err: PaiError) -> list[str]:
    """Return the other problems of a job document, each on its own line."""
    return [f"  {problem}" for problem in getattr(err, "problems", ())[1:]]


def _log_traceback() -> None:
    """Log the traceback, which `pai -d` shows."""
    if log.isEnabledFor(logging.DEBUG):
        from openpai_tasks.net.log_masking import mask_keys

        log.debug("task failed\n%s", mask_keys(plain(traceback.format_exc())))
