"""The points of a sweep: where they come from, what each is called, and how its values reach a command."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol.document.scripts import variable

Point = dict[str, str]

LONGEST = 200  # letters of a name; servers take 255
MOST = 20_000

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def parse_points(axes: Iterable[str], file: str | None = None) -> list[Point]:
    """Every row of the file with every value of each axis (``lr=0.1,0.01``); none where neither is given."""
    grid = [_axis(text) for text in axes]
    if not grid and not file:
        return []
    rows = read_rows(Path(file)) if file else [{}]
    names = [*(rows[0] if rows else ()), *(name for name, _ in grid)]
    for name, count in Counter(names).items():
        variable(name)
        if count > 1:
            raise ConfigError(f"the sweep varies {name!r} twice")
    found = [
        {**row, **dict(zip((name for name, _ in grid), values, strict=True))}
        for row in rows
        for values in itertools.product(*(values for _, values in grid))
    ]
    if len(found) > MOST:
        raise ConfigError(f"the sweep has {len(found)} points, more than {MOST}")
    return list({tuple(point.items()): point for point in found}.values())


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise ConfigError(f"--sweep needs name=value,value,...; got {text!r}")
    return name.strip(), [value for part in values.split(",") for value in _values(part.strip())]


def _values(text: str) -> list[str]:
    """The value itself, or every whole number of ``1..5``."""
    match = _RANGE.fullmatch(text)
    if not match:
        return [text]
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MOST:
        raise ConfigError(f"--sweep: {text} has more than {MOST} values")
    return [str(number) for number in range(first, last + 1)] or [
        str(number) for number in range(first, last - 1, -1)
    ]


def read_rows(path: Path) -> list[Point]:
    """The rows of a CSV, TSV, JSON (also one object a line) or YAML file; all with the same names."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read the sweep file {str(path)!r}: {reason}") from err
    rows = _READERS.get(path.suffix.lower(), _yaml_rows)(text, path)
    if not rows:
        raise ConfigError(f"{path}: there are no rows in it")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row or row.keys() != rows[0].keys():
            expected = ", ".join(map(str, rows[0])) if isinstance(rows[0], dict) else "name: value"
            raise ConfigError(f"{path}: row {number} does not have the same names as the first ({expected})")
    return [{str(name): text_of(value) for name, value in row.items()} for row in rows]


def text_of(value: Any) -> str:
    """A value as a command and a variable get it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv_rows(text: str, path: Path) -> list[Any]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    header, *lines = [line for line in csv.reader(io.StringIO(text), delimiter=separator) if line] or [[]]
    names = [name.strip() for name in header]
    for number, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise ConfigError(f"{path}: row {number} has {len(line)} values for {len(names)} names")
    return [dict(zip(names, line, strict=True)) for line in lines]


def _json_rows(text: str, path: Path) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return _line_rows(text, path)
    return found if isinstance(found, list) else [found]


def _line_rows(text: str, path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as err:
                raise ConfigError(f"{path}, line {number}: not JSON") from err
    return rows


def _yaml_rows(text: str, path: Path) -> list[Any]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        raise ConfigError(f"{path}{f', line {mark.line + 1}' if mark else ''}: not YAML") from err
    if found is not None and not isinstance(found, list):
        raise ConfigError(f"{path}: a list of rows is expected, each with name: value")
    return found or []


_READERS = {
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".json": _json_rows,
    ".jsonl": _line_rows,
    ".ndjson": _line_rows,
}


def names(sweep: str, found: Sequence[Point]) -> list[str]:
    """A name for each point's job that tells its values; with a hash where it is too long or not unique."""
    told = [f"{sweep}-{'-'.join(f'{_word(key)}-{_word(value)}' for key, value in p.items())}" for p in found]
    count = Counter(told)
    return [
        name if len(name) <= LONGEST and count[name] == 1 else f"{name[: LONGEST - 9]}-{_hash(point)}"
        for name, point in zip(told, found, strict=True)
    ]


def _word(text: str) -> str:
    """Only what a job's name may hold: ``0.1`` becomes ``0_1``, ``-3`` becomes ``m3``."""
    text = re.sub(r"^-(?=[\d.])", "m", text)
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "x"


def _hash(point: Point) -> str:
    return hashlib.sha256(json.dumps(point, sort_keys=True).encode()).hexdigest()[:8]


def fill(command: str, point: Mapping[str, str]) -> str:
    """The command with ``{lr}`` replaced by the value, as one word; other braces stay as they are."""
    if not point:
        return command
    hole = re.compile(r"(?<![$\\{])\{(" + "|".join(map(re.escape, point)) + r")\}")
    return hole.sub(lambda match: shlex.quote(point[match[1]]), command)


def fill_parameters(document: dict[str, Any], point: Mapping[str, str]) -> dict[str, Any]:
    """A filled-in template whose parameters have holes themselves, such as its command."""
    found = document.get("parameters") or {}
    filled = {key: fill(value, point) if isinstance(value, str) else value for key, value in found.items()}
    return {**document, "parameters": filled} if filled else document
