"""Values to text: tables for people, JSON and YAML for programs. Prints nothing."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from openpai_tasks.errors import ConfigError

Columns = Sequence[str] | Callable[[Any], str]
"""The fields a table shows, or what draws the whole picture of one value."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TIMES = frozenset({"submitted", "launched", "completed", "started"})


def text(items: Any, columns: Columns, output: str = "table") -> str:
    """One value or a list of them, in the format named ``output``."""
    try:
        write = FORMATS[output]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ConfigError(f"no output format named {output!r} (known: {known})") from None
    return write(items, columns)


def table(items: Any, columns: Columns) -> str:
    """Aligned columns with a header; one value alone is shown as one row."""
    if callable(columns):
        return columns(items)
    rows = items if isinstance(items, (list, tuple)) else [items]
    cells = [[_header(name) for name in columns]]
    cells += [[cell(name, _get(row, name)) for name in columns] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def cell(name: str, value: Any) -> str:
    """One value as a person reads it, on one line, with nothing that could steer a terminal."""
    if value is None or value == "":
        return "-"
    if name in _TIMES:
        return when(value)
    if name == "duration":
        return duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = ", ".join(f"{key}={item}" for key, item in value.items()) or "-"
    elif isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value)) or "-"
    return _CONTROL.sub(" ", str(value))


def when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def duration(seconds: float) -> str:
    """Time spent, in the two largest units that count."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s"
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes}m {whole % 60:02d}s" if hours == 0 else f"{hours}h {minutes % 60:02d}m"


def size(count: int) -> str:
    """Bytes in the unit a person would choose."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


JOB = ("name", "state", "virtual_cluster", "submitted", "duration", "exit", "retries")
TASK = ("role", "index", "state", "ip", "ports", "exit_code")
EVENT = ("type", "reason", "message")


def status(job: Any) -> str:
    """A job, why it ended if it did not end well, its tasks, and what the platform noted."""
    parts = [table([job], JOB)]
    parts += [f"because: {cell('message', job.message)}"] if job.message and job.exit_status else []
    parts += [table(job.tasks, TASK)] if job.tasks else []
    parts += [table(job.events, EVENT)] if job.events else []
    return "\n\n".join(parts)


def facts(item: Any) -> str:
    """One value, a line for each thing it has to tell."""
    told = {name: value for name, value in _plain(item).items() if value not in (None, "", [], {})}
    width = max(map(len, told), default=0)
    return "\n".join(f"{_header(name):{width}}  {cell(name, value)}" for name, value in told.items())


def progress(job: Any) -> str:
    """A job in one line."""
    tasks = ", ".join(f"{task.label} {task.state}" for task in job.tasks)
    return f"{job.name} {job.state}" + (f" ({tasks})" if tasks else "")


def _header(name: str) -> str:
    return name.replace("_", " ").upper()


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name)


def _plain(value: Any) -> Any:
    """Dataclasses, tuples and paths as JSON and YAML know them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _json(items: Any, columns: Columns) -> str:
    return json.dumps(_plain(items), indent=2, ensure_ascii=False)


def _yaml(items: Any, columns: Columns) -> str:
    import yaml

    return str(yaml.safe_dump(_plain(items), sort_keys=False, allow_unicode=True)).rstrip("\n")


FORMATS: dict[str, Callable[[Any, Columns], str]] = {"table": table, "json": _json, "yaml": _yaml}
