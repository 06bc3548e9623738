"""No pattern of the package takes long: each runs against texts that are made to mislead it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.adversarial import texts

PACKAGE = Path(__file__).parent.parent / "openpai_tasks"
METHODS = ("match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn")
LENGTHS = (20, 2000, 10_000)  # with the last one alone, some patterns would never end
SECONDS = 0.02  # of CPU time: a linear pattern takes less than 1 ms, and others a tenth of a second or more

MADE_ELSEWHERE: dict[str, Callable[[Any], list[Any]]] = {
    "backends.paddlecloud.client: words": lambda module: [*module.STATUSES.values()],
    "backends.paddlecloud.log_reader: f'(?={re.escape(text[:LEAST])})'": lambda module: [
        "(?=aaaaaaaaaaaaaaaa)"
    ],
    "server.engines.kubernetes.site: self.one": lambda module: [
        value.one for value in vars(module).values() if isinstance(value, module.OptionForm)
    ],
    "text.plain: text": lambda module: arguments(module, "_pattern"),
    "protocol.document.rules: self.pattern": lambda module: [r"[A-Za-z0-9._~]+"],
    "protocol.legacy.v1: pattern": lambda module: [
        *arguments(module, "_text"),
        *arguments(module, "_free"),
    ],
    "causes.table: self.pattern": lambda module: [row.pattern for row in module.CAUSES],
    "sdk.diagnosis.symptoms: self.pattern": lambda module: arguments(module, "Symptom"),
    "sdk.logs.structured: grep": lambda module: [],  # the user's own; each line is cut before
    "sdk.notebooks.results: f'{re.escape(mark.stem)}\\\\.{EXECUTED}(?:-(\\\\d+))?'": lambda module: [
        rf"a\.{module.EXECUTED}(?:-(\d+))?"
    ],
    "sdk.notebooks.running: f'\\\\b{name}\\\\b'": lambda module: [r"\baa\b"],
    "sdk.sweeps.grid: "
    "'(?<![$\\\\\\\\{])\\\\{(' + '|'.join(map(re.escape, point)) + ')\\\\}'": lambda module: [
        r"(?<![$\\{])\{(a|aa)\}"
    ],
    "server.storages: f'(?<![\\\\w.~}}-]){re.escape(path)}(?![\\\\w.-])'": lambda module: [
        r"(?<![\w.~}-])/a(?![\w.-])"
    ],
    "text.wildcards: f'{text}.*{end}' if start else end": lambda module: [],  # see test_wildcards.py
}
"""Patterns that are not written where they are used, by their place."""


@dataclasses.dataclass(frozen=True)
class Use:
    """A pattern, and a method that is called with it."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    def slow_text(self) -> Any:
        """Return a text for which the pattern takes too long, if there is one; the shortest ones first."""
        is_text = isinstance(self.pattern.pattern, str)
        for text in (text for length in LENGTHS for text in texts(self.pattern, length)):
            given = text if is_text else text.encode()
            if self.seconds(given) > SECONDS and min(self.seconds(given) for _ in range(2)) > SECONDS:
                return given
        return None

    def seconds(self, text: Any) -> float:
        run = getattr(self.pattern, self.method)
        run = functools.partial(run, text[:0]) if self.method in ("sub", "subn") else run
        begun = time.thread_time()
        found = run(text)
        if self.method == "finditer":
            list(found)
        return time.thread_time() - begun


@functools.cache
def modules() -> dict[Any, ast.Module]:
    """Return the modules that have patterns, without the name of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if re.search(r"^import re$", source, re.M):
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            try:
                module = importlib.import_module(name.removesuffix(".__init__"))
            except ModuleNotFoundError as err:
                if str(err.name).startswith("openpai_tasks"):
                    raise
                continue  # an optional package, which is installed in CI
            found[module] = ast.parse(source)
    return found


def short(module: Any) -> str:
    return module.__name__.removeprefix("openpai_tasks.")


def arguments(module: Any, function: str) -> list[Any]:
    """Return the first argument of each call of a function in its module."""
    called = (node for node in ast.walk(modules()[module]) if isinstance(node, ast.Call) and node.args)
    wanted = (node for node in called if ast.unparse(node.func) == function)
    return [eval(ast.unparse(node.args[0]), vars(module)) for node in wanted]


@functools.cache
def calls(tree: ast.Module) -> list[tuple[str, str, ast.Call]]:
    """Return the calls of methods that patterns have: the object's last name, the method, and the call."""
    return [
        (ast.unparse(node.func.value).rpartition(".")[2], node.func.attr, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in (*METHODS, "compile")
    ]


def compiled(value: Any, name: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the compiled patterns in a value, each with the name of its variable or field."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from compiled(one, name)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from compiled(getattr(value, field.name), field.name)


def methods_of(name: str, module: Any) -> set[str]:
    """Return the methods that are called on a pattern with this name, in its module or in any."""
    where = [modules()[module]] if name.startswith("_") else modules().values()
    used = {method for tree in where for owner, method, _ in calls(tree) if owner == name}
    return used & {*METHODS} or {"match"}  # one that is passed on


def flags_of(call: ast.Call, method: str, module: Any) -> int:
    at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(method, 2)
    given = [word.value for word in call.keywords if word.arg == "flags"] or call.args[at : at + 1]
    return int(eval(ast.unparse(given[0]), vars(module))) if given else 0


def written(module: Any) -> Iterator[Use]:
    """Yield the patterns that are written in calls of `re`."""
    for owner, method, call in calls(modules()[module]):
        if owner != "re":
            continue
        place = f"{short(module)}: {ast.unparse(call.args[0])}"
        try:
            found = [eval(ast.unparse(call.args[0]), vars(module))]
        except NameError:
            found = MADE_ELSEWHERE[place](module)  # add a pattern that is made at run time there
        if method == "compile" and place not in MADE_ELSEWHERE:
            continue  # it has a name
        flags = flags_of(call, method, module)
        for pattern in found:
            yield Use(place, re.compile(pattern, flags), "search" if method == "compile" else method)


def named(module: Any) -> Iterator[Use]:
    """Yield the compiled patterns in the module's variables."""
    for variable, value in vars(module).items():
        for name, pattern in compiled(value, variable):
            for method in methods_of(name, module):
                yield Use(f"{short(module)}.{name}", pattern, method)


def test_no_pattern_takes_long_for_any_text():
    uses = {
        (use.pattern, use.method): use for module in modules() for use in (*written(module), *named(module))
    }
    assert len(uses) > 250
    slow = {use.place: text[:40] for use in uses.values() if (text := use.slow_text())}
    assert not slow


def test_slow_patterns_are_found():
    for pattern in (r"a.*b.*c", r"([\w./-]+): not found", r"(a+)+b", r"(?:a|a)*b", r"\s+$"):
        assert Use("", re.compile(pattern), "search").slow_text(), pattern
