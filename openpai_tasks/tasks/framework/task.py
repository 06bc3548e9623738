"""The tasks of this package: one-line errors with exit codes, and short flags."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, overload

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from openpai_tasks import exits, hooks, render
from openpai_tasks.errors import PaiError
from openpai_tasks.files import shortages
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.text.plain import plain

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
    "reverse": ("R",),
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
    "notify": "at the end, ring the bell and notify you on the desktop; or an address: "
    "https://..., slack:https://..., teams:..., ntfy:..., env:NAME",
    "output": "output format: table, json, yaml or csv",
}
"""Help of flags that many tasks share, unless a task has its own."""
OWN_HELP = {
    **SHARED_HELP,
    "name": "the job's name, or user~name for another user's",
    "yes": "do not ask",
}
"""The same for tasks of this package, not for those of projects."""


OPTIONAL_VALUES = {"notify": lambda word: hooks.looks_like_hook(word)}
"""Flags with an optional value, and whether a word after the flag is this value."""


def is_optional_value(argument: Argument, word: str) -> bool:
    """Whether a word after a flag with an optional value may be this value."""
    return OPTIONAL_VALUES.get(argument.names[0], lambda _: True)(word)


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which `timeout`, Docker and batch systems send to end a program."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C inside the block, unless the caller has installed a handler already."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleanup
    raise Terminated


class PaiTask(Task[Any]):
    """A task that reports expected errors in one line with an exit code, and documents all its flags."""

    shared_help = SHARED_HELP

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
            others = (f"  {problem}" for problem in getattr(err, "problems", ())[1:])  # of a job document
            raise terminal.ending(err.exit_code, f"error: {err}", *others) from err
        except Exit:
            raise
        except Exception as err:
            if shortage := shortages.find_shortage(err):
                raise terminal.ending(exits.FAILED, f"error: {shortages.describe(shortage)}") from err
            raise
        except KeyboardInterrupt as err:
            raise Exit(code=exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED) from err

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the flags, with the kinds that the task declares and our short names."""
        arguments = super().get_arguments(ignore_unknown_help)
        taken = {name for argument in arguments for name in argument.names} | {*self.nicknames.values()}
        for argument in arguments:
            self._complete(argument, taken)
        return arguments

    def _complete(self, argument: Argument, taken: set[str]) -> None:
        flag = argument.names[0]
        own = self.nicknames.get(flag)
        argument.names += (own,) if own else tuple(n for n in NICKNAMES.get(flag, ()) if n not in taken)
        argument.help = argument.help or self.shared_help.get(flag)
        kind = self.kinds.get(argument.name or flag)
        if kind is not None and argument.kind is not list:
            argument.kind = kind


class TypedTask(PaiTask):
    """A task of ours: flags have the types that the body declares, and those of lists can be repeated."""

    shared_help = OWN_HELP

    def __init__(self, body: Callable[..., Any], **options: Any) -> None:
        options.setdefault("positional", _required(body))
        super().__init__(body, **options)

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        types = {name: _flag_type(annotation) for name, annotation in self.body.__annotations__.items()}
        self.iterable = [name for name, kind in types.items() if kind is list]
        self.kinds = {name: kind for name, kind in types.items() if kind in (int, float)}
        self.optional = tuple(name for name in types if name in OPTIONAL_VALUES)
        return super().get_arguments(ignore_unknown_help)


def _required(body: Callable[..., Any]) -> list[str]:
    """Return the arguments without defaults, after the context; Invoke takes ten times as long."""
    function = inspect.unwrap(body)
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    return list(names[: len(names) - len(function.__defaults__ or ())])


def _flag_type(annotation: str | type) -> type | None:
    """Return the type of a flag such as ``int | None`` or ``list[str]``, if Invoke has to know it."""
    text = annotation if isinstance(annotation, str) else annotation.__name__
    name = text.removesuffix(" | None").partition("[")[0]
    return {"int": int, "float": float, "list": list}.get(name)


Body = Callable[..., Any]


@overload
def task(body: Body, /) -> PaiTask: ...
@overload
def task(**options: Any) -> Callable[[Body], PaiTask]: ...
def task(*words: Any, **options: Any) -> Any:
    """Make a function a task, with the options of Invoke's ``task`` and those of ``PaiTask``."""
    return invoke_task(*words, klass=PaiTask, **options)


def typed_task(**options: Any) -> Callable[[Body], PaiTask]:
    """Make a function a task of ours, with the options of ``PaiTask``."""
    return invoke_task(klass=TypedTask, **options)


def with_flags(flags: Iterable[inspect.Parameter]) -> Callable[[Body], Body]:
    """Add flags to a body ``(c, ..., *, flags, ...)``, which gets those that were given by their names."""
    added = {item.name: item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in flags}

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        def wrapper(*words: Any, **values: Any) -> Any:
            flags = {name: values.pop(name) for name in added if name in values}
            given = {
                name: value
                for name, value in flags.items()
                if value is not added[name].default and value != []  # Invoke's default of a list
            }
            return body(*words, flags=given, **values)

        own = inspect.signature(body).parameters.values()
        first = [item for item in own if item.kind is not item.KEYWORD_ONLY]
        last = [item for item in own if item.kind is item.KEYWORD_ONLY and item.name != "flags"]
        signature = inspect.Signature([*first, *added.values(), *last])
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        wrapper.__annotations__ |= {item.name: item.annotation for item in added.values()}
        return wrapper

    return decorate


def flags_of(other: PaiTask, without: str = "") -> list[inspect.Parameter]:
    """Return the flags of a task, without its positional arguments, for ``with_flags``."""
    _, *known = inspect.signature(other.body).parameters.values()
    return [item for item in known if item.name not in (*other.positional, without)]


def _log_traceback() -> None:
    """Log the traceback, which `pai -d` shows."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug("task failed\n%s", mask_keys(plain(traceback.format_exc())))
