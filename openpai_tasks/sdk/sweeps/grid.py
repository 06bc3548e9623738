"""The points of a sweep: read them, name their jobs, and fill their values into commands."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, InvalidOption, PathError
from openpai_tasks.files.regular import LARGEST_LIST, read_limited, reason
from openpai_tasks.protocol.document.scripts import variable
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.digests import sha256

Point = dict[str, str]

LONGEST_NAME = 200  # characters; servers accept 255
LONGEST_LABEL = 55  # of a name in Kubernetes, to which clusters add a suffix
MOST_POINTS = 20_000

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def parse_points(axes: Iterable[str], file: str | None = None) -> list[Point]:
    """Combine every row of the file with every value of each axis (``lr=0.1,0.01``)."""
    grid = [_axis(text) for text in axes]
    if not grid and not file:
        return []
    rows = read_rows(Path(file)) if file else [{}]
    names = [*(rows[0] if rows else ()), *(name for name, _ in grid)]
    for name, times in Counter(names).items():
        variable(name)
        if times > 1:
            raise ConfigError(f"the sweep varies {name!r} twice")
    count = len(rows) * math.prod(len(values) for _, values in grid)
    if count > MOST_POINTS:
        raise ConfigError(f"the sweep has {count} points, more than {MOST_POINTS}")
    found = [
        {**row, **dict(zip((name for name, _ in grid), values, strict=True))}
        for row in rows
        for values in itertools.product(*(values for _, values in grid))
    ]
    return list({tuple(point.items()): point for point in found}.values())


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise InvalidOption("sweep", f"needs name=value,value,...; got {text!r}")
    return name.strip(), [value for part in values.split(",") for value in _values(part.strip())]


def _values(text: str) -> list[str]:
    """Return the value itself, or every integer of a range such as ``1..5``."""
    match = _RANGE.fullmatch(text)
    if not match:
        return [text]
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MOST_POINTS:
        raise InvalidOption("sweep", f": {text} has more than {MOST_POINTS} values")
    step = 1 if first <= last else -1
    return [str(number) for number in range(first, last + step, step)]


def read_rows(path: Path) -> list[Point]:
    """Read the rows of a CSV, TSV, JSON, JSON Lines or YAML file, which must all have the same names."""
    try:
        text = read_limited(path, LARGEST_LIST, is_named=True).removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as err:
        raise PathError(f"cannot read sweep file {str(path)!r}: {reason(err)}") from err
    rows = _READERS.get(path.suffix.lower(), _yaml_rows)(text, path)
    if not rows:
        raise ConfigError(f"{path} has no rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row or row.keys() != rows[0].keys():
            expected = ", ".join(map(str, rows[0])) if isinstance(rows[0], dict) else "name: value"
            raise ConfigError(f"{path}: row {number} has other names than the first ({expected})")
    return [{str(name): value_text(value) for name, value in row.items()} for row in rows]


def value_text(value: Any) -> str:
    """Return a value as text for commands and variables."""
    if value is None:
        return ""
    if isinstance(value, (str, os.PathLike)):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=json_number)
    except (TypeError, ValueError) as err:
        raise ConfigError(f"cannot write {value!r} as text: {err}") from err


def json_number(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as a number of Python, for ``json``."""
    found = plain_number(value)
    if found is value:
        raise TypeError(f"{type(value).__name__} is not a number, a text, a list or a mapping")
    return found


def plain_number(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as a number of Python, and other values as they are."""
    if isinstance(value, (str, int, float)) or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except (TypeError, ValueError, RuntimeError) as err:
        raise ConfigError(f"expected one value, got {value!r}: {err}") from err


def _csv_rows(text: str, path: Path) -> list[Any]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    import csv

    try:
        found = [line for line in csv.reader(io.StringIO(text, newline=None), delimiter=separator) if line]
    except csv.Error as err:
        raise ConfigError(f"{path}: {err}") from err
    header, *lines = found or [[]]
    names = [name.strip() for name in header]
    for number, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise ConfigError(f"{path}: row {number} has {len(line)} values for {len(names)} names")
    return [dict(zip(names, line, strict=True)) for line in lines]


def _json_rows(text: str, path: Path) -> list[Any]:
    try:
        found = parse(text, constant=float)
    except ValueError:
        return _line_rows(text, path)
    return found if isinstance(found, list) else [found]


def _line_rows(text: str, path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(parse(line, constant=float))
            except ValueError as err:
                raise ConfigError(f"{path}, line {number}: not JSON") from err
    return rows


def _yaml_rows(text: str, path: Path) -> list[Any]:
    from openpai_tasks.protocol.yaml import limited

    try:
        found = limited.load(text)
    except limited.InvalidYaml as err:
        mark = err.problem_mark
        raise ConfigError(f"{path}{f', line {mark.line + 1}' if mark else ''}: not YAML") from err
    if found is not None and not isinstance(found, list):
        raise ConfigError(f"{path}: expected a list of rows, each with name: value")
    return found or []


_READERS = {
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".json": _json_rows,
    ".jsonl": _line_rows,
    ".ndjson": _line_rows,
}


def job_names(sweep: str, found: Sequence[Point], is_free: bool = True) -> list[str]:
    """Name each point's job after its values, with a hash where that is too long or not unique.

    Names that are not free have lower case letters, digits and ``-`` only, and are short.
    """
    longest = LONGEST_NAME if is_free else LONGEST_LABEL
    full = [
        f"{sweep}-{'-'.join(f'{_name_part(key)}-{_name_part(value)}' for key, value in p.items())}"
        for p in found
    ]
    full = full if is_free else [name.lower().replace("_", "-") for name in full]
    count = Counter(full)
    names = []
    for name, point in zip(full, found, strict=True):
        if len(name) > longest or count[name] > 1:
            digest = sha256(json.dumps(point, sort_keys=True).encode())[:8]
            name = f"{name[: longest - 9]}-{digest}"
        names.append(name)
    return names


def _name_part(text: str) -> str:
    """Make text valid in a job name: ``0.1`` becomes ``0_1``, ``-3`` becomes ``m3``."""
    text = re.sub(r"^-(?=[\d.])", "m", text)
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "x"


def fill_command(command: str, point: Mapping[str, str]) -> str:
    """Replace ``{lr}`` by the value as one word; other braces stay as they are."""
    if not point:
        return command
    hole = re.compile(r"(?<![$\\{])\{(" + "|".join(map(re.escape, point)) + r")\}")
    return hole.sub(lambda match: shlex.quote(point[match[1]]), command)


def fill_parameters(document: dict[str, Any], point: Mapping[str, str]) -> dict[str, Any]:
    """Fill the values into a template's parameters, such as its command."""
    found = document.get("parameters") or {}
    filled = {
        key: fill_command(value, point) if isinstance(value, str) else value for key, value in found.items()
    }
    return {**document, "parameters": filled} if filled else document
