"""Cells that use this package: they stay here, as the job's image lacks it and a job must not submit itself.

A cell's syntax tree decides, so comments and strings do not count. IPython may be missing here, so its own
lines (``%magic``, ``!command``, ``help?``) are recognised where Python's parser fails.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import warnings
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.notebooks.notebook_file import Notebook
from openpai_tasks.sdk.payloads.notebook_runner import first_line, source_of

PACKAGE, SUBMIT = "openpai_tasks", "submit_this_notebook"
RUNTIME = "runtime"  # the part of the package that a job has
MAGICS = ("pai", "pai_sub")
LOADERS = ("load_ext", "reload_ext")
WRAPPERS = ("time", "timeit", "capture", "prun")  # magics whose argument is code
MOST_ROUNDS = 100
WIDTH = 40  # characters of a cell's first line in messages
CALLS = ("run_line_magic", "run_cell_magic", "magic", "load_extension", "reload_extension")

_WHOLE = re.compile(r"\s*%%(\w+)[^\n]*\n?(.*)", re.S)
_NOT_IN_TARGETS = re.compile(r"[%!?#(]|[<>]\s*\Z")
_MAGIC = re.compile(r"%+(\w+)(.*)", re.S)
_AUTOMATIC = re.compile(rf"({'|'.join(MAGICS)})((?:\s+[\w-].*)?)", re.S)
_SHELL = re.compile(r"!!?\s*pai(?:\s.*)?", re.S)
_OPTIONS = re.compile(r"\s*(?:-(?:[slTD]\s+\S+|\w+(?:\s+\d+)?)\s+)*")  # options of the wrappers


def without_cluster_cells(notebook: Notebook) -> Notebook:
    """Return the notebook without what uses the cluster; one of format 3 stays unchanged."""
    if notebook.version != 4:
        return notebook
    cells = [_for_job(cell) if cell["cell_type"] == "code" else cell for cell in notebook.cells]
    return dataclasses.replace(notebook, content={**notebook.content, "cells": cells})


def _for_job(cell: dict[str, Any]) -> dict[str, Any]:
    source = source_of(cell)
    kept = code_for_job(source)
    if kept == source:
        return cell
    return {**cell, "source": kept} if kept else _as_raw(cell)


def describe_cluster_cells(notebook: Notebook) -> list[str]:
    """Return a note that lists the cells left out, if any; refuse a notebook that has no other code."""
    found = _cluster_cells(notebook)
    if not found:
        return []
    if len(found) == sum(cell["cell_type"] == "code" for cell in notebook.cells):
        raise ConfigError(f"nothing to run: every code cell of {notebook.name} uses the cluster")
    count = "1 cell that uses the cluster is"
    if len(found) > 1:
        count = f"{len(found)} cells that use the cluster are"
    which = ", ".join(f"cell {number} ({first_line(cell, WIDTH)})" for number, cell in found.items())
    return [f"{count} not run (numbered among all cells, text included): {which}"]


def _cluster_cells(notebook: Notebook) -> dict[int, dict[str, Any]]:
    """Return the code cells that use the cluster, by number."""
    return {
        number: cell
        for number, cell in enumerate(notebook.cells if notebook.version == 4 else (), 1)
        if cell["cell_type"] == "code" and uses_cluster(source_of(cell))
    }


def _as_raw(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the cell as raw text, which is shown but never run."""
    rest = {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}
    return {**rest, "cell_type": "raw"}


def uses_cluster(source: str) -> bool:
    """Return whether the cell submits the notebook or uses our magics, or only imports the submission."""
    whole = _WHOLE.match(source)
    if whole and whole[1] in MAGICS:
        return True
    tree = parse_cell(source)
    if tree is None:
        return False
    if any(_is_ours(node) for node in ast.walk(tree)):
        return True
    return bool(tree.body) and all(
        isinstance(node, ast.ImportFrom) and _imports_submission(node) and not _other_names(node)
        for node in tree.body
    )


def code_for_job(source: str) -> str:
    """Return what the job runs of a cell.

    Nothing of one that uses the cluster, except for the import of the runtime, which other cells use. Of
    another that imports the submission, everything else.
    """
    if not uses_cluster(source):
        return _without_submission(source)
    tree = parse_cell(source)
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)] if tree else []
    names = [name for node in nodes if node.module == PACKAGE for name in _other_names(node)]
    kept = [name for name in dict.fromkeys(names) if name.split()[0] == RUNTIME]
    return f"from {PACKAGE} import {', '.join(kept)}" if kept else ""


def _without_submission(source: str) -> str:
    """Return the code without the imports of the submission; unchanged if it is not plain code."""
    whole = _WHOLE.match(source)
    start = whole.start(2) if whole and whole[1] in WRAPPERS else 0
    tree = _parse_whole(source[start:].split("\n")) if SUBMIT in source else None
    if tree is None:
        return source
    lines = source[start:].encode().split(b"\n")  # columns are counted in bytes
    for node in reversed(list(ast.walk(tree))):
        if not isinstance(node, ast.ImportFrom) or not _imports_submission(node):
            continue
        rest = ", ".join(_other_names(node))
        new = f"from {node.module} import {rest}" if rest else "pass"
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [head + new.encode() + tail]
    return source[:start] + b"\n".join(lines).decode()


def _imports_submission(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == SUBMIT for alias in node.names)


def _other_names(node: ast.ImportFrom) -> list[str]:
    """Return what an import names besides the submission, as it is written."""
    return [ast.unparse(alias) for alias in node.names if alias.name != SUBMIT]


def parse_cell(source: str) -> ast.Module | None:
    """Parse a cell with IPython's own lines replaced by calls; None if it is not code in Python."""
    whole = _WHOLE.match(source)
    if whole and whole[1] not in WRAPPERS:
        return None
    return _parse(whole[2] if whole else source)


def _is_ours(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name == SUBMIT or (name in CALLS and _is_our_magic(node.args))


def _is_our_magic(arguments: list[ast.expr]) -> bool:
    """Return whether the arguments of a call name or load one of our magics."""
    texts = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    name, rest = [*" ".join(texts).split(maxsplit=1), "", ""][:2]
    name = name.lstrip("%")
    if name in WRAPPERS:
        return uses_cluster(_OPTIONS.sub("", rest, count=1))
    return name in (*MAGICS, PACKAGE) or (name in LOADERS and rest.split()[:1] == [PACKAGE])


# IPython's own lines


def _parse(source: str) -> ast.Module | None:
    """Parse the code with IPython's own lines replaced by calls; None if it is not code."""
    lines = source.split("\n")
    return _parse_whole(lines) or _parse_lines(lines)


def _parse_whole(lines: list[str]) -> ast.Module | None:
    """Parse the lines, replacing those of IPython's in place; None if they are not code as a whole."""
    for _ in range(min(len(lines) + 1, MOST_ROUNDS)):  # each replaces one line
        try:
            return _parse_quietly("\n".join(lines))
        except SyntaxError as err:
            if not _replace_line(lines, (err.lineno or 1) - 1):
                return None
        except (ValueError, RecursionError, MemoryError):
            lines.clear()
            return None
    return None


def _parse_lines(lines: list[str]) -> ast.Module | None:
    """Parse line by line and keep the lines that parse."""
    found: list[ast.stmt] = []
    for line in lines:
        replaced = [line]
        _replace_line(replaced, 0)
        for text in dict.fromkeys((line.strip(), replaced[0].strip())):
            try:
                found += _parse_quietly(text).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return ast.Module(found, []) if found else None


def _parse_quietly(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern the run, not us
        return ast.parse(text)


def _replace_line(lines: list[str], at: int) -> bool:
    """Replace a line of IPython's and its continuation lines by a call; False if it is not IPython's."""
    if not 0 <= at < len(lines):
        return False
    last = at
    while lines[last].endswith("\\") and last + 1 < len(lines):
        last += 1
    text = "\n".join(lines[at : last + 1])
    called = _as_call(text)
    if called is None:
        return False
    lines[at : last + 1] = [called, *[""] * (last - at)]
    return True


def _as_call(text: str) -> str | None:
    """Return the call that a line of IPython's stands for; None for any other line."""
    line = text.lstrip()
    indent, (target, value) = text[: len(text) - len(line)], _split_target(line)
    magic = _MAGIC.fullmatch(value) or (None if target else _AUTOMATIC.fullmatch(value))
    if magic:
        return f"{indent}{target}get_ipython().run_line_magic({magic[1]!r}, {magic[2].strip()!r})"
    if _SHELL.fullmatch(value):
        return f"{indent}get_ipython().run_line_magic({MAGICS[0]!r}, '')"
    if value.startswith("!") or line.startswith("?") or line.rstrip().endswith("?"):
        return f"{indent}pass"
    return None


def _split_target(line: str) -> tuple[str, str]:
    """Split a line into ``target = ``, which may be empty, and the rest."""
    target, equals, rest = line.partition("=")
    if not equals or not target.strip() or _NOT_IN_TARGETS.search(target):
        return "", line
    value = rest.lstrip()
    return line[: len(line) - len(value)], value
