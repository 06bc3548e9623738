"""What the code of a cell does with us: its syntax tree tells, as comments and strings do nothing.

IPython may not be here, so its own lines (``%magic``, ``!command``, ``help?``) are read as it would do: what
is Python stays, and a line that Python stumbles over is taken for one of these if it looks like one.
"""

from __future__ import annotations

import ast
import re
import warnings

PACKAGE, SUBMIT = "openpai_tasks", "submit_this_notebook"
MAGICS = ("pai", "pai_sub")
LOADERS = ("load_ext", "reload_ext")
AROUND = ("time", "timeit", "capture", "prun")  # magics whose text is code of the notebook
CALLS = ("run_line_magic", "run_cell_magic", "magic", "load_extension", "reload_extension")

_WHOLE = re.compile(r"\s*%%(\w+)[^\n]*\n?(.*)", re.S)
_TARGET = r"(?:[^=%!?#(]*[^=<>!%?#(\s]\s*=\s*)?"
_MAGIC = re.compile(rf"(\s*)({_TARGET})%+(\w+)(.*)", re.S)
_AUTOMATIC = re.compile(rf"(\s*)()({'|'.join(MAGICS)})((?:\s+[\w-].*)?)", re.S)
_SHELL = re.compile(rf"(\s*){_TARGET}!!?\s*pai(?:\s.*)?", re.S)
_OPTIONS = re.compile(r"\s*(?:-(?:[slTD]\s+\S+|\w+(?:\s+\d+)?)\s+)*")  # of those around
_OTHER = re.compile(rf"\s*{_TARGET}!|\s*\?|.*\?\s*$", re.S)


def speaks_to_the_cluster(source: str) -> bool:
    """Whether the cell submits the notebook, or uses our magics."""
    whole = _WHOLE.match(source)
    if whole and whole[1] not in AROUND:
        return whole[1] in MAGICS
    tree = _tree(whole[2] if whole else source)
    return any(_is_ours(node) for node in ast.walk(tree)) if tree else False


def _is_ours(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == SUBMIT for alias in node.names)
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func)
    return name == SUBMIT or (name in CALLS and _is_our_magic(node.args))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_our_magic(arguments: list[ast.expr]) -> bool:
    """Whether these words of a call name one of our magics, or load them."""
    texts = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    name, rest = [*" ".join(texts).split(maxsplit=1), "", ""][:2]
    name = name.lstrip("%")
    if name in AROUND:
        return speaks_to_the_cluster(_OPTIONS.sub("", rest, count=1))
    return name in (*MAGICS, PACKAGE) or (name in LOADERS and rest.split()[:1] == [PACKAGE])


# Lines that are IPython's


def _tree(source: str) -> ast.Module | None:
    """The code, with IPython's own lines as the calls they are; nothing for what is no code at all."""
    lines = source.split("\n")
    for _ in range(len(lines) + 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what the code itself is warned of when it runs
                return ast.parse("\n".join(lines))
        except SyntaxError as err:
            if not _mend(lines, (err.lineno or 1) - 1):
                return _readable(lines)
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _readable(lines: list[str]) -> ast.Module | None:
    """What of the code can be read, statement by statement, where all of it cannot."""
    found: list[ast.stmt] = []
    for line in lines:
        mended = [line]
        _mend(mended, 0)
        for text in dict.fromkeys((line.strip(), mended[0].strip())):
            try:
                found += ast.parse(text).body
            except (SyntaxError, ValueError):
                continue
    return ast.Module(found, []) if found else None


def _mend(lines: list[str], at: int) -> bool:
    """Put a call in place of a line of IPython's, with those that it goes on in; whether it is one."""
    if not 0 <= at < len(lines):
        return False
    last = at
    while lines[last].endswith("\\") and last + 1 < len(lines):
        last += 1
    text = "\n".join(lines[at : last + 1])
    called = _called(text)
    if called is None:
        return False
    lines[at : last + 1] = [called, *[""] * (last - at)]
    return True


def _called(text: str) -> str | None:
    """The line as the call that it stands for, if it is IPython's; what is neither is nothing."""
    magic = _MAGIC.fullmatch(text) or _AUTOMATIC.fullmatch(text)
    if magic:
        indent, target, name, rest = magic.groups()
        return f"{indent}{target}get_ipython().run_line_magic({name!r}, {rest.strip()!r})"
    shell = _SHELL.fullmatch(text)
    if shell:
        return f"{shell[1]}get_ipython().run_line_magic({MAGICS[0]!r}, '')"
    if _OTHER.match(text):
        return text[: len(text) - len(text.lstrip())] + "pass"
    return None
