"""Parser for command lines: Invoke's grammar, without its surprises.

Unlike Invoke's own parser: a positional may be optional or take several words; a flag's value may look like
a flag (``--name=--x``); words after ``--`` are never flags, keep their quoting and go to the remaining
positionals; the last value of a repeated flag counts; an invalid number, an unknown flag or an unknown task
is reported in one line with a suggestion; the name of a collection lists its tasks.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser as InvokeParser
from invoke.parser.parser import ParseResult
from invoke.program import Program

from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.contexts import Contexts, TaskContext, UsageError
from openpai_tasks.tasks.framework.suggestions import suggestion
from openpai_tasks.tasks.framework.task import is_optional_value
from openpai_tasks.text import hints

KINDS = {int: "a whole number", float: "a number"}
HELP = ("--help", "-h")


class CommandLine:
    """A command line that is being run, and its words after ``--``, each as it was typed."""

    def __init__(self, program: Program, remainder: tuple[str, ...] = ()) -> None:
        self.program, self.remainder = program, remainder


current_line: ContextVar[CommandLine | None] = ContextVar("current_line", default=None)
"""The command line that tasks run for; None where they are called from Python."""


def shell_text(words: Iterable[str]) -> str:
    """Join words to one shell command; a single word is a command already."""
    words = list(words)
    return words[0] if len(words) == 1 else shlex.join(words)


class Parser(InvokeParser):
    """Parses the words of a command line; ``rest`` are the words after ``--`` if they were cut off before.

    Without ``contexts`` it reads Invoke's own flags and leaves everything from the first task on unparsed.
    """

    def __init__(
        self,
        initial: ParserContext,
        contexts: Contexts | None = None,
        rest: list[str] | None = None,
        program: Program | None = None,
    ) -> None:
        self.initial = initial
        self.contexts = contexts  # type: ignore[assignment]
        self.rest = rest
        self.program = program

    def parse_argv(self, argv: list[str]) -> ParseResult:
        words, rest = list(argv), self.rest
        if rest is None and "--" in words:
            cut = words.index("--")
            words, rest = words[:cut], words[cut + 1 :]
        line = _Line(self.initial, self.contexts, words, rest)  # type: ignore[arg-type]
        result = line.read()
        if self.program is not None:
            if line.took_rest:
                self.program.core.remainder = ""  # else Fabric would run it on hosts
            if line.swallowed and not self.program.args.complete.value:
                _warn_of_flags(line.swallowed, line.context)
        return result


class _Line:
    """A single pass over the words; ``context`` is the task whose flags are being read."""

    def __init__(
        self, core: ParserContext, contexts: Contexts | None, words: list[str], rest: list[str] | None
    ) -> None:
        self.core = core
        self.contexts = contexts
        self.words = deque(words)
        self.rest = rest
        self.context: TaskContext | None = None
        self.result = ParseResult([core])
        self.took_rest = False
        self.swallowed: list[str] = []  # flags of the task that stand inside a bare command

    def read(self) -> ParseResult:
        while self.words and not self.result.unparsed:
            word = self.words.popleft()
            if self.is_flag(word):
                self.read_flag(word)
            elif self.is_positional(word):
                self.read_positional(word)
            else:
                self.read_name(word)
        self.take_rest()
        self.finish_task()
        self.result.remainder = shell_text(self.rest) if self.rest else ""
        return self.result

    def is_flag(self, word: str) -> bool:
        """Whether the word is a flag, and not a negative number for a positional."""
        if not word.startswith("-") or word == "-":
            return False
        if self.context is not None and self.context.open_positionals():
            with contextlib.suppress(ValueError):
                float(word)
                return self.find_flag(word[:2]) is not None
        return True

    def read_flag(self, word: str) -> None:
        name, value = _split(self.context.with_two_dashes(word) if self.context else word)
        argument = self.find_flag(name)
        if argument is None:
            self.unknown_flag(word, name)
        elif self.context is not None and argument is _argument(self.core, "--help"):
            argument.set_value(self.context.typed, cast=False)
        elif argument.takes_value:
            self.store(argument, name, value.removeprefix("=") if value else self.next_value(argument, name))
        elif value.startswith("="):
            raise UsageError(f"{name} takes no value, got {value[1:]!r}", self.context)
        else:
            is_inverse = self.context is not None and name in self.context.inverse_flags
            argument.set_value(not is_inverse, cast=False)
            if value:  # -xyz is -x -yz
                self.words.appendleft(f"-{value}")

    def find_flag(self, name: str) -> Argument | None:
        """Find a flag of the task, or of Invoke itself; flags of one letter may have two dashes."""
        if self.context is not None:
            if len(name) == 3 and name[1:] in self.context.flags:
                name = name[1:]
            if self.context.classic:
                name = _whole_flag(self.context.classic.renamed.get(name, name), self.context)
            name = self.context.inverse_flags.get(name, name)
            if name in self.context.flags:
                return _argument(self.context, name)
        return _argument(self.core, name) if name in self.core.flags else None

    def is_known(self, name: str) -> bool:
        """Whether the task has the flag, or shows its help for it."""
        assert self.context is not None
        return name in self.context.flags or name in self.context.inverse_flags or name in HELP

    def next_value(self, argument: Argument, name: str) -> str | bool:
        """Return the next word, or True for a flag that is used without its optional value."""
        following = self.words[0] if self.words else None
        is_flag = following is not None and self.is_flag(following) and self.find_flag(_split(following)[0])
        if following is None or is_flag:
            if argument.optional:
                return True
            hint = (
                f", but {following} is a flag (for this value, write {name}={following})" if is_flag else ""
            )
            raise UsageError(f"{name} needs a value{hint}", self.context)
        is_value = not following or is_optional_value(argument, following)
        if argument.optional and not is_value and self.may_be_other(following):
            return True
        if argument.optional and self.context is not None:
            if self.context.missing_positionals():
                hint = f"write {name}={following} if it is the value"
                raise UsageError(f"ambiguous word {following!r} after {name}; {hint}", self.context)
            if self.contexts is not None and following in self.contexts:
                return True
        return self.words.popleft()

    def may_be_other(self, word: str) -> bool:
        """Whether the word after a flag may be a positional or the next task."""
        if self.contexts is None or self.context is None or self.context.open_positionals():
            return True
        return word in self.contexts or self.contexts.is_collection(word)

    def store(self, argument: Argument, name: str, value: str | bool) -> None:
        try:
            argument.set_value(value, cast=value is not True)
        except (ValueError, TypeError):
            kind = KINDS.get(argument.kind, f"a value of type {argument.kind.__name__}")
            raise UsageError(f"{name} needs {kind}, got {value!r}", self.context) from None

    def is_positional(self, word: str) -> bool:
        """Whether the word is a positional: required ones take any word, optional ones no task's name."""
        if self.context is None or not self.context.open_positionals():
            return False
        if self.context.classic and self.context.classic.task:
            return True  # `job-status JOB config`
        return bool(self.context.missing_positionals()) or self.contexts is None or word not in self.contexts

    def read_positional(self, word: str) -> None:
        assert self.context is not None
        if self.context.classic and self.context.classic.greedy:
            tail = [] if self.rest is None else ["--", *self.rest]
            names = [_split(item)[0] for item in self.words if item.startswith("--")]
            self.swallowed = [name for name in dict.fromkeys(names) if self.is_known(name)]
            word = shell_text([word, *self.words, *tail])
            self.words.clear()
            self.rest = None
        argument = self.context.open_positionals()[0]
        self.store(argument, argument.names[0].upper(), word)

    def read_name(self, word: str) -> None:
        if self.contexts is None:
            self.result.unparsed = [word, *self.words]
            return
        word = self.join_words(word) if self.contexts.spaced and self.context is None else word
        if self.is_collection_to_list(word):
            self.core.args["list"].set_value(word, cast=False)
            self.words.clear()
        else:
            context = self.find_task(word)
            self.finish_task()
            self.context = context
            if context.classic:
                self.words.extendleft(reversed(context.classic.words))

    def join_words(self, word: str) -> str:
        """Join `job sub` to `job.sub`, as the older clients spelt it; return their own commands as typed."""
        assert self.contexts is not None
        while self.words and self.contexts.is_collection(word):
            both, name = f"{word} {self.words[0]}", f"{word}.{self.words[0]}"
            if both in self.contexts.spaced:
                self.words.popleft()
                return both
            if name not in self.contexts and not self.contexts.is_collection(name):
                break
            word = name
            self.words.popleft()
        if f"{word} FILE" in self.contexts.spaced and any(item.endswith(".ipynb") for item in self.words):
            return f"{word} FILE"
        self.check_in_collection(word)
        return word

    def check_in_collection(self, word: str) -> None:
        """Raise if the word after a collection is not one of its tasks, and nothing else takes it."""
        following = self.words[0] if self.words else "-"
        if self.contexts is None or following.startswith("-") or not self.contexts.is_collection(word):
            return
        is_used = word in self.contexts and bool(self.contexts[word].positional_args)
        if not is_used and following not in self.contexts:
            raise self.contexts.unknown_task(f"{word}.{following}")

    def is_collection_to_list(self, word: str) -> bool:
        """Whether to list a collection: one without a default task, or one that is followed by --help."""
        assert self.contexts is not None
        asked = bool(self.words) and self.words[0] in HELP
        return (asked or word not in self.contexts) and self.contexts.is_collection(word)

    def find_task(self, word: str) -> TaskContext:
        assert self.contexts is not None
        if word in self.contexts:
            return self.contexts[word]
        first = self.contexts.find_classic(word) if self.context is None else None
        if first is not None:
            return first
        if self.context is not None and self.context.positional_args:
            hint = "quote values that contain spaces"
            raise UsageError(f"{self.context.name}: unexpected word {word!r} ({hint})", self.context)
        raise self.contexts.unknown_task(word, self.context)

    def unknown_flag(self, word: str, name: str) -> None:
        if self.contexts is None:
            self.result.unparsed = [word, *self.words]
            return
        if self.context is None:
            hint = suggestion(name, self.core.flags) or " (flags of a task follow its name)"
            raise UsageError(f"unknown flag {name}{hint}", self.context)
        known = [*self.context.flags, *self.context.inverse_flags, *self.core.flags]
        hint = suggestion(name, known)
        raise UsageError(f"{self.context.name} has no flag {name}{hint}", self.context)

    def take_rest(self) -> None:
        """Give the words after ``--`` to the remaining positionals; a command takes all that are left."""
        if self.context is None or not self.rest:
            return
        words, context, still_open = deque(self.rest), self.context, self.context.open_positionals()
        self.took_rest = bool(still_open)
        if still_open and context.takes_all(still_open[-1]):  # `container.run -- ls`: its job is optional
            still_open = [one for one in still_open if one.name in context.required or one is still_open[-1]]
        for argument in still_open:
            while words and argument.kind is list and argument is self.context.positional_args[-1]:
                self.store(argument, argument.names[0], words.popleft())
            if words:
                is_command = self.context.takes_all(argument)
                value = shell_text(words) if is_command else words.popleft()
                self.store(argument, argument.names[0].upper(), value)
                words = deque() if is_command else words
        if words and self.took_rest:
            raise UsageError(f"{self.context.name}: unexpected word {words[0]!r} after --", self.context)

    def finish_task(self) -> None:
        """Finish the task, or raise if a positional is missing."""
        if self.context is None:
            return
        missing = ", ".join(item.names[0].upper() for item in self.context.missing_positionals())
        if missing and not self.core.args["help"].got_value:
            usage = f"(usage: {self.context.usage()})"
            raise UsageError(f"{self.context.name} needs {missing} {usage}", self.context)
        self.result.append(self.context)


def _warn_of_flags(names: list[str], context: TaskContext | None) -> None:
    """Point out flags of ours that became a part of a bare command."""
    assert context is not None
    taken = f"{names[0]} was" if len(names) == 1 else f"{', '.join(names)} were"
    ours = f"flags of `{hints.command(context.typed)}` go before it, and `--` there silences this line"
    terminal.say(f"warning: {taken} taken as part of the command; {ours}")


def _whole_flag(name: str, context: TaskContext) -> str:
    """Complete the beginning of a long flag, as the older clients did (`--toke` for `--token`)."""
    if name in context.flags or name in context.inverse_flags or not name.startswith("--"):
        return name
    found = sorted((flag for flag in context.flags if flag.startswith(name)), key=len)
    is_clear = bool(found) and all(flag.startswith(found[0]) for flag in found)
    return found[0] if is_clear else name


def _argument(context: ParserContext, flag: str) -> Argument:
    argument: Argument = context.flags[flag]
    return argument


def _split(word: str) -> tuple[str, str]:
    """Split a flag from its value: ``--x=1`` and ``-x=1`` give ``=1``, ``-x1`` gives ``1``."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, equals + value
    return word[:2], word[2:]
