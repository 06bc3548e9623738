"""Patches of Invoke, for `inv` and `fab` as well as for `pai`.

Under `inv` the program is already running when a project's tasks.py calls namespace(), so methods are
replaced on Invoke's own classes. Everything here works with Invoke 2.2.1 and 3.0.3.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import invoke.config
from invoke.collection import Collection
from invoke.config import AmbiguousMergeError, Config, merge_dicts
from invoke.env import Environment as InvokeEnvironment
from invoke.exceptions import Exit, ThreadException, UnknownFileType
from invoke.executor import Executor
from invoke.parser.argument import Argument
from invoke.program import Program
from invoke.runners import Runner
from invoke.tasks import Call
from invoke.terminals import pty_size
from invoke.util import helpline

from openpai_tasks import compat, exits
from openpai_tasks.errors import ConfigError
from openpai_tasks.net import log_masking
from openpai_tasks.settings.project import read_json, read_yaml
from openpai_tasks.tasks.framework import parser, terminal
from openpai_tasks.tasks.framework.contexts import Contexts, TaskContext, UsageError
from openpai_tasks.tasks.framework.suggestions import suggestion
from openpai_tasks.text.hints import use_program

LIST_FORMATS = ("flat", "nested", "json")
NARROWEST = 20  # column of help texts beside names
OURS = "openpai"


def _fail(text: str) -> Exit:
    return terminal.ending(exits.BAD_INPUT, f"error: {text}")


# The command line


def make_parser(program: Program) -> parser.Parser:
    """Make our parser, and note which program runs and the words after ``--``."""
    use_program([program.called_as, *program.binary_names])
    _add_verbosity(program)
    words = program.argv[1:]
    rest = words[words.index("--") + 1 :] if "--" in words else None
    if program.args.complete.value:
        rest = None  # the line to complete, not words for a task
    else:
        program.core.remainder = parser.shell_text(rest) if rest else ""
    parser.current_line.set(parser.CommandLine(program, tuple(rest or ())))
    ignore_unknown_help = program.config.tasks.ignore_unknown_help
    names = getattr(program, "classic", None), getattr(program, "spaced", None)
    contexts = Contexts(program.collection, ignore_unknown_help, *names)
    return parser.Parser(program.initial_context, contexts, rest, program)


def core_args(program: Program) -> list[Argument]:
    """Return Invoke's own flags, -q and -v."""
    return [*_core_args(program), *_verbosity_flags()]


def _verbosity_flags() -> list[Argument]:
    about = {
        "quiet": "Print only results and errors.",
        "verbose": "Print what is sent to which server, without secrets.",
    }
    return [
        Argument(names=(name, name[0]), kind=bool, default=False, help=text) for name, text in about.items()
    ]


def _add_verbosity(program: Program) -> None:
    """Add -q and -v to a program that had read its own flags before it loaded us, such as `inv`."""
    known = program.core[0]
    for argument in _verbosity_flags():
        if argument.name not in known.args:
            known.add_arg(argument)


def apply_verbosity(program: Program) -> None:
    """Print fewer messages, or the requests that are sent, if -q or -v was given."""
    given = [name for name in ("quiet", "verbose") if name in program.args and program.args[name].value]
    if "quiet" in given:
        terminal.be_quiet()
    if "verbose" in given:
        _show_requests()


def _show_requests() -> None:
    """Print a line for each request to a cluster from now on."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.say(record.getMessage(), always=True)

    log = logging.getLogger(log_masking.REQUESTS)
    log.handlers = [Handler()]
    log.setLevel(logging.DEBUG)
    log.propagate = False


def parse_cleanup(program: Program) -> None:
    """Let ``--help NAME`` take collections and suggest tasks; check ``--list-format``."""
    apply_verbosity(program)
    topic, form = program.args.help.value, program.args["list-format"].value
    contexts: Contexts = program.parser.contexts  # type: ignore[assignment]
    if isinstance(topic, str) and topic not in contexts:
        _explain(program, contexts, topic)
    if form not in LIST_FORMATS:
        raise UsageError(f"--list-format must be one of {', '.join(LIST_FORMATS)}, got {form!r}")
    root = program.args.list.value
    if isinstance(root, str) and not contexts.is_collection(root):
        raise UsageError(f"no collection named {root!r}{suggestion(root, program.collection.collections)}")
    _parse_cleanup(program)


def _explain(program: Program, contexts: Contexts, topic: str) -> None:
    """Turn ``--help`` of a collection into its list, and print the help of a classic command."""
    if contexts.is_collection(topic):
        program.args.help.set_value(None, cast=False)
        program.args.list.set_value(topic, cast=False)
        return
    context = contexts.find_classic(topic)
    if context is None:
        raise contexts.unknown_task(topic)
    _print_classic_help(program, contexts, context)
    raise Exit


def print_task_help(program: Program, name: str) -> None:
    """Print a task's usage, docstring and flags."""
    contexts: Contexts = program.parser.contexts  # type: ignore[assignment]
    context = contexts[name]
    flags = context.help_tuples()
    terminal.put(f"Usage: {program.binary} {context.usage()}{' [--options]' if flags else ''}\n")
    for line in (inspect.getdoc(program.collection[context.name]) or "").splitlines():
        for part in _wrapped(line, pty_size()[0] - 3):
            terminal.put(f"  {part}".rstrip())
    if flags:
        terminal.put("\nOptions:\n")
        program.print_columns(flags)


def _print_classic_help(program: Program, contexts: Contexts, context: TaskContext) -> None:
    """Print the help of the task that a classic command runs, and the flags that only the command has."""
    assert context.classic is not None
    is_a = "short for" if context.classic.short else "the old spelling of"
    terminal.put(f"`{context.typed}` is {is_a} `{context.classic.target}`.\n")
    print_task_help(program, context.classic.target)
    known = contexts[context.classic.target].flags
    more = [context.help_for(flag) for flag in context.flags if flag not in known]
    if more:
        terminal.put(f"Only `{context.typed}` has:\n")
        program.print_columns(more)


def print_columns(program: Program, pairs: Sequence[tuple[str, str | None]]) -> None:
    """Print names with their help beside them, or below where there is no room."""
    columns, indent = pty_size()[0], program.leading_indent
    first = max(len(name) for name, _ in pairs) + program.col_padding
    rest = columns - len(indent) - first - 1
    lines = []
    for name, text in pairs:
        if rest < NARROWEST:
            lines += [f"{indent}{line}" for line in _wrapped(name, columns - len(indent))]
            lines += [
                f"{indent * 3}{line}" for line in _wrapped(text or "", columns - 3 * len(indent)) if line
            ]
            continue
        for number, line in enumerate(_wrapped(text or "", rest)):
            lines.append(f"{indent}{'' if number else name:{first}}{line}".rstrip())
    print("\n".join(lines), end="\n\n")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def serialized(collection: Collection, name: str | None = None) -> dict[str, Any]:
    """Return what ``--list --list-format json`` prints, each task under the name it is run by."""
    aliases = collection.tasks.aliases
    tasks = [
        {
            "name": key,
            "help": helpline(task),
            "aliases": sorted(alias for alias, target in aliases.items() if target == key),
        }
        for key, task in sorted(collection.tasks.items())
    ]
    inner = [serialized(item, key) for key, item in sorted(collection.collections.items())]
    return {
        "name": name or collection.name,
        "help": helpline(collection),
        "default": collection.default,
        "tasks": tasks,
        "collections": inner,
    }


class DirectCall(Call):
    """A task named on the command line: runs as often as it is named, while its pre-tasks run once."""

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, DirectCall) else super().__eq__(other)


def normalize(executor: Executor, tasks: Any) -> list[Call]:
    """Make the calls; a task of an older client's command is not in the collection."""
    calls = [
        call.clone(into=DirectCall) if type(call) is Call else call for call in _normalize(executor, tasks)
    ]
    for context, call in zip(tasks, calls, strict=False):
        if isinstance(context, TaskContext) and context.classic and context.classic.task:
            call.task = context.task
    return calls


# The configuration


def _settings_reader(read: Callable[[Path], dict[str, Any]]) -> Callable[[Config, Any], dict[str, Any]]:
    """Report a settings file that cannot be parsed in one line instead of a traceback."""

    def read_or_end(config: Config, path: Any) -> dict[str, Any]:
        try:
            return read(Path(path))
        except ConfigError as err:
            raise _fail(str(err)) from err

    return read_or_end


def load_runtime(config: Config, merge: bool = True) -> None:
    """Load the file of ``pai -f FILE`` or INVOKE_RUNTIME_CONFIG; a missing one is an error."""
    try:
        _load_runtime(config, merge)
    except UnknownFileType as err:
        path = compat.config_path(config, "runtime")
        raise _fail(f"cannot read {path}: its name must end in .yaml, .json or .py") from err
    path = compat.config_path(config, "runtime")
    if path is not None and not compat.is_config_found(config, "runtime"):
        raise _fail(f"no such settings file: {path}")


def merge(config: Config) -> None:
    try:
        _merge(config)
    except AmbiguousMergeError as err:
        raise _fail(_describe_conflict(config)) from err


def _describe_conflict(config: Config) -> str:
    """Return which setting is a single value in one place and a group of values in another."""
    merged: dict[str, Any] = {}
    for level in ("defaults", "collection", "system", "user", "project", "env", "runtime", "overrides"):
        data = compat.config_level(config, level) or {}
        origin = compat.config_path(config, level) or {"collection": "tasks.py"}.get(level, level)
        for path in _conflicts(merged, data, ()):
            return (
                f"{origin}: {'.'.join(path)} is a value here and a group of values in another settings file"
            )
        merge_dicts(merged, data)
    return "a setting is a value in one settings file and a group of values in another"


def _conflicts(base: Any, data: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key in data.keys() & base.keys():
        if isinstance(base[key], dict) and isinstance(data[key], dict):
            yield from _conflicts(base[key], data[key], (*path, str(key)))
        elif isinstance(base[key], dict) or isinstance(data[key], dict):
            yield (*path, str(key))


class Environment(InvokeEnvironment):
    """INVOKE_* variables, without ours; ambiguous names are an error only when they are set."""

    def load(self) -> dict[str, Any]:
        paths: dict[str, list[list[str]]] = {}
        for path in self._leaves(self._config, []):
            paths.setdefault(self._prefix + "_".join(map(str, path)).upper(), []).append(path)
        for variable in paths.keys() & os.environ.keys():
            self._set(variable, paths[variable])
        return self.data

    def _leaves(self, data: Any, path: list[str]) -> Iterator[list[str]]:
        for key, value in data.items():
            if isinstance(value, dict):
                if path or key != OURS:
                    yield from self._leaves(value, [*path, key])
            else:
                yield [*path, key]

    def _set(self, variable: str, paths: list[list[str]]) -> None:
        if len(paths) > 1:
            names = " and ".join(".".join(map(str, path)) for path in paths)
            raise _fail(f"{variable} is ambiguous ({names}); use invoke.yaml instead")
        old = self._path_get(paths[0])
        if isinstance(old, (list, tuple)):
            raise _fail(f"{variable}: lists cannot be set by a variable; use invoke.yaml instead")
        try:
            self._path_set(paths[0], os.environ[variable])
        except (ValueError, TypeError):
            raise _fail(f"{variable} must be of type {type(old).__name__}") from None


# Commands


def respond(runner: Runner, buffer_: list[str]) -> None:
    """Skip joining all output so far at every chunk when there are no watchers to read it."""
    if runner.watchers:
        _respond(runner, buffer_)


# Output


def _flushed(method: Callable[..., None]) -> Callable[..., None]:
    """Write all output within the method, as its errors are handled there."""

    def run(program: Program, *words: Any) -> None:
        with terminal.output_flushed():
            try:
                method(program, *words)
            except ThreadException as err:  # of `c.run`, whose threads write its output
                ends = (one.value for one in err.exceptions if isinstance(one.value, Exit))
                raise next(ends, err) from None

    return run


_core_args = Program.core_args
_parse_cleanup = Program.parse_cleanup
_normalize = Executor.normalize
_load_runtime = Config.load_runtime
_merge = Config.merge
_respond = Runner.respond

REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (Program, "core_args", core_args),
    (Program, "_make_parser", make_parser),
    (Program, "parse_core", _flushed(Program.parse_core)),
    (Program, "parse_collection", _flushed(Program.parse_collection)),
    (Program, "parse_cleanup", _flushed(parse_cleanup)),
    (Program, "execute", _flushed(Program.execute)),
    (Program, "print_task_help", print_task_help),
    (Program, "print_columns", print_columns),
    (Collection, "serialized", serialized),
    (Executor, "normalize", normalize),
    (Config, "_load_yaml", _settings_reader(read_yaml)),
    (Config, "_load_yml", _settings_reader(read_yaml)),
    (Config, "_load_json", _settings_reader(read_json)),
    (Config, "load_runtime", load_runtime),
    (Config, "merge", merge),
    (invoke.config, "Environment", Environment),
    (Runner, "respond", respond),
)


@functools.cache
def patch_invoke() -> None:
    """Replace the methods, once; prepare the streams."""
    terminal.prepare_streams()
    for owner, name, replacement in REPLACEMENTS:
        setattr(owner, name, replacement)
