"""Values to views for people, and to JSON, YAML and CSV for programs. Prints nothing."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.render.views import Facts, Moment, Page, Prose, TextTable, View
from openpai_tasks.text.durations import compact_duration, format_duration
from openpai_tasks.text.plain import PlainBytes, escape_json, is_plain, one_line, plain
from openpai_tasks.text.plurals import counted

Columns = Sequence[str] | Callable[[Any], View]
"""The fields that a table shows, or a function that makes the whole view of a value."""

_TIMES = frozenset({"submitted", "launched", "completed", "modified", "started", "time"})
_USUAL = {"retries": "0", "virtual_cluster": "default", "count": "1", "gpu_hours": "0.00"}
"""Values of a column that say nothing if all rows have them."""
_HEADERS = {"peak_memory_mb": "peak MB", "cpu_seconds": "CPU s"}


OLD = 30 * 86400  # seconds after which a time is shown as a date
MOST_SKEW = 300  # seconds by which a cluster's clock may be ahead
WIDTHS = (23, 8)  # of the time and of the level
INDENT = "    "


def format_values(items: Any, columns: Columns, output: str = "table") -> str:
    """Format one value or a list of them as ``output`` names it, without control sequences."""
    check_format(output)
    return plain(FORMATS[output](items, columns))


def check_format(output: str) -> None:
    if output not in FORMATS:
        raise ConfigError(f"no output format named {output!r} (known: {', '.join(FORMATS)})")


def table(items: Any, columns: Columns) -> View:
    """Return a table with a row for each value, or the view that ``columns`` makes."""
    return columns(items) if callable(columns) else rows(items, columns)


def rows(items: Any, columns: Sequence[str]) -> TextTable:
    """Return a table with a row for each value."""
    states = columns.index("state") if "state" in columns else None
    found = cells(items, columns)
    usual = {at: {"-", _USUAL.get(name, "-")} for at, name in enumerate(columns) if at and found}
    omitted = frozenset(at for at, words in usual.items() if all(row[at] in words for row in found))
    optional = columns.index("cause") if "cause" in columns else None
    return TextTable([header(name).upper() for name in columns], found, states, omitted, optional)


def cells(items: Any, columns: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table, as people read them."""
    return [[cell(name, _get(row, name)) for name in columns] for row in listed(items)]


def listed(items: Any) -> Sequence[Any]:
    """Return the values of a list, or one value as a list."""
    return items if isinstance(items, (list, tuple)) else [items]


def cell(name: str, value: Any) -> str:
    """Format one value for people: on one line, without control sequences."""
    if value is None or value == "":
        return "-"
    try:
        if name in _TIMES:
            return Moment(when(value), age(value))
        if name in _AMOUNTS:
            return _AMOUNTS[name](value)
    except (ValueError, TypeError, OverflowError, OSError):  # an impossible time or amount
        return one_line(str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = ", ".join(f"{key}={item}" for key, item in value.items()) or "-"
    elif isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value)) or "-"
    return one_line(str(value))


def when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def age(milliseconds: int) -> str:
    """Format how long ago a time was; the date of one that is a month old or in the future."""
    seconds = int(time.time() - milliseconds / 1000)
    if not -MOST_SKEW <= seconds < OLD:
        return when(milliseconds)[: len("2026-01-31")]
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return "now"


duration = format_duration


def size(count: int) -> str:
    """Format bytes in the largest unit that leaves at least 1."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


_AMOUNTS: dict[str, Callable[[Any], str]] = {
    "duration": duration,
    "gpus_idle": duration,
    "size": size,
    "gpu_hours": "{:.2f}".format,
    "cpu_seconds": "{:.1f}".format,
    "cpu_hours": "{:.2f}".format,
    **dict.fromkeys(("gpu_used", "cpu_used", "failed"), "{:.0f} %".format),
    "waited": duration,
}

JOB = ("name", "state", "virtual_cluster", "submitted", "duration", "gpu_hours", "exit_code", "retries")
TASK = ("role", "index", "state", "ip", "ports", "exit_code", "peak_memory_mb", "cpu_seconds")
EVENT = ("time", "count", "type", "reason", "message")


def status(jobs: Any) -> View:
    """A job with the reason of its failure, its tasks and its events; several jobs as a table."""
    job, *others = listed(jobs)
    if others:
        return rows(jobs, JOB)
    parts: list[TextTable | str] = [rows([job], JOB)]
    parts += ["\n".join(lines)] if (lines := end_lines(job)) else []
    parts += ["\n".join(lines)] if (lines := dependency_lines(job)) else []
    parts += [f"Python: {cell('python', job.python)}"] if job.python else []
    parts += [rows(job.tasks, TASK)] if job.tasks else []
    parts += [rows(job.events, EVENT)] if job.events else []
    return Page(parts)


def report_title(report: Any) -> str:
    """Return whose jobs a usage report is about, and since when."""
    whose = "all users" if report.user == "all" else report.user
    return f"jobs of {one_line(whose)}, by {report.by}, since {when(report.since)}"


def end_lines(job: Any) -> list[str]:
    """Why a job failed, until when it is kept, or that its GPUs are idle, and the platform's exit code."""
    why = (job.cause or job.message) if job.exit_status else ""
    lines = [f"because: {cell('cause', why)}"] if why else []
    if job.kept_until:
        lines.append(f"it has failed; its environment is kept until {when(job.kept_until)}")
    lines += [f"its GPUs have been idle for {duration(job.gpus_idle)}"] if job.gpus_idle else []
    return lines + [f"the platform's exit code: {cell('end', job.platform_end)}"] * bool(job.platform_end)


def dependency_lines(job: Any) -> list[str]:
    """The jobs that a job comes after, and those that come after it, with their states."""
    found = [("after", job.name_jobs(job.after, has_when=True)), ("before", job.name_jobs(job.dependents))]
    return [f"{name}: {cell('name', others)}" for name, others in found if others]


def plan(item: Any) -> Facts:
    """What a submission will do, about ten lines."""
    return Facts([(name.upper(), one_line(value)) for name, value in plan_rows(item)])


def plan_rows(item: Any) -> list[tuple[str, str]]:
    """Return what a submission will do: names and sentences, without what does not apply."""
    roles, files = item.roles, item.files
    several = len(roles) > 1
    named = f"the first of {counted(item.jobs, 'job')} of sweep {item.sweep}" if item.sweep else ""
    rows = [("job", f"{item.name} ({named})" if named else item.name)]
    rows += [("command", f"{role.name}: " * several + _first_line(role.command)) for role in roles]
    rows += [
        ("image", ", ".join(dict.fromkeys(role.image for role in roles))),
        ("resources", "; ".join(f"{role.name}: " * several + _resources(role) for role in roles)),
        ("files", _planned_files(files) if files else ""),
        ("to", f"cluster {item.cluster}, virtual cluster {item.virtual_cluster}"),
        ("url", item.url),
        ("folder", item.workspace),
        ("adds", "; ".join(_injected(item))),
        ("limits", ", ".join(_limits(item))),
        ("tags", ", ".join(item.tags)),
        ("after", ", ".join(f"{one.job} has {one.when}" for one in item.after)),
        ("priority", item.priority),
        ("notifies", "; ".join(item.hooks)),
    ]
    return [(name, text) for name, text in rows if text] + [("note", text) for text in item.warnings]


def _first_line(command: str) -> str:
    first, *rest = command.strip().splitlines() or [""]
    return f"{first} … ({counted(len(rest), 'more line')})" if rest else first


def _resources(role: Any) -> str:
    amounts = [counted(role.cpu, "CPU"), f"{role.memory_mb} MB of memory"]
    each = ", ".join([*amounts, counted(role.gpu, "GPU") if role.gpu else "no GPU"])
    return f"{role.instances} tasks of {each}" if role.instances > 1 else each


def _planned_files(files: Any) -> str:
    total = f"{counted(files.count, 'file')}, {size(files.size)} (packed: {size(files.archive_size)})"
    return (
        f"{total}; the largest is {files.largest}, {size(files.largest_size)}"
        if files.count > 1
        else (f"{files.largest}, {size(files.size)} (packed: {size(files.archive_size)})")
    )


def _injected(item: Any) -> list[str]:
    """What is added to the user's command and image."""
    found = [
        ("variables", item.variables),
        ("secrets", item.secrets),
        ("mounts", item.mounts),
        ("packages by pip", item.packages),
    ]
    named = [f"{name} {', '.join(values)}" for name, values in found if values]
    keeps = [f"a copy of {', '.join(item.outputs)} in the outputs"] if item.outputs else []
    parts = [("ssh logins with your key", item.has_ssh), ("openpai_tasks.runtime", item.has_runtime)]
    return [*named, *keeps, *(text for text, is_there in parts if is_there)]


def _limits(item: Any) -> list[str]:
    retries = (
        [f"up to {counted(item.retries, 'retry').replace('retrys', 'retries')}"] if item.retries > 0 else []
    )
    found = retries + ([f"{duration(item.max_seconds)} for each task"] if item.max_seconds else [])
    if item.requeues:
        times = counted(item.requeues, "time")
        found.append(f"then requeued up to {times} (TERM {compact_duration(item.grace)} before the limit)")
    if item.idle_stop:
        found.append(f"stopped when its GPUs are idle for {compact_duration(item.idle_stop)}")
    if item.keep_failed:
        found.append(f"a failed task is kept for {compact_duration(item.keep_failed)}, with its resources")
    return found


def verdicts(items: Any) -> str:
    """A line for each problem of a job file, ``file:line: what``, as compilers write them for editors."""
    lines = []
    for item in items:
        file = one_line(str(item.file))
        lines += [f"{file}: valid"] if item.valid else []
        for problem in item.problems:
            place = file if problem.line is None else f"{file}:{problem.line}"
            what = f"{problem.path}: {problem.rule}" if problem.path else problem.rule
            lines.append(f"{place}: {cell('rule', what)}")
    return "\n".join(lines)


def explanation(items: Any) -> Prose:
    """The reason for the state of one or more jobs, advice, related facts, and their last output."""
    parts = []
    for item in listed(items):
        parts.append(one_line(item.headline))
        advice = "\n".join(f"- {cell('advice', line)}" for line in item.advice)
        parts += [f"what to do:\n{advice}"] if advice else []
        parts += ["\n".join(f"- {cell('fact', fact)}" for fact in item.facts)] if item.facts else []
        parts += [f"the last output of {one_line(item.log_of)}:\n{_quoted(item.log)}"] if item.log else []
        parts += [f"its output as the cluster kept it:\n{_quoted(item.kept_log)}"] if item.kept_log else []
        parts += [one_line(item.platform)] if item.platform else []
    return Prose("\n\n".join(parts))


def _quoted(lines: Sequence[str]) -> str:
    return "\n".join(f"  | {plain(line)}" for line in lines)


def difference(item: Any) -> str:
    """The lines of a unified diff, without control sequences."""
    return "\n".join(map(plain, item.lines))


def flat_table(items: Any) -> TextTable:
    """A table of rows that hold mappings, such as the point of a sweep: each key is a column."""
    return rows(*flat(items))


def flat(items: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows without nested mappings, and the names of all their columns."""
    rows = [_flat_row(_plain(item)) for item in listed(items)]
    return rows, list(dict.fromkeys(name for row in rows for name in row))


def _flat_row(item: dict[str, Any]) -> dict[str, Any]:
    """Prefix a key with the name of its mapping if another column has the key and a different value."""
    row: dict[str, Any] = {}
    for name, value in item.items():
        for key, inner in value.items() if isinstance(value, dict) else ():
            taken = key in item or str(row.get(key, inner)) != str(inner)
            row[f"{name}.{key}" if taken else key] = inner
        if not isinstance(value, dict):
            row[name] = value
    return row


def facts(item: Any) -> Facts:
    """One value, a line for each field that is set."""
    known = {name: value for name, value in _plain(item).items() if value not in (None, "", [], {})}
    return Facts([(header(name).upper(), cell(name, value)) for name, value in known.items()])


def document(item: Any) -> str:
    """A document as YAML, which a table cannot show."""
    return _yaml(item, ())


def progress(job: Any) -> str:
    """A job in one line."""
    tasks = ", ".join(f"{task.label} {task.state}" for task in job.tasks)
    return one_line(f"{job.name} {job.state}" + (f" ({tasks})" if tasks else ""))


def header(name: str) -> str:
    """Return the words of a column's name."""
    return one_line(_HEADERS.get(name) or name.replace("_", " "))


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name)


def _plain(value: Any) -> Any:
    """Convert dataclasses, tuples and paths to what JSON and YAML have."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


def _yaml(items: Any, columns: Columns) -> str:
    import yaml

    text: str = yaml.dump(_plain(items), Dumper=_dumper(), sort_keys=False, allow_unicode=True)
    return plain(text).rstrip("\n")


@functools.cache
def _dumper() -> Any:
    """Put text with control characters in double quotes, where the escapes of the filter are YAML, too."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def string(dumper: Any, value: str) -> Any:
        style = None if is_plain(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, string)
    return Dumper


def _csv(items: Any, columns: Columns) -> str:
    """Write the columns of the table, or all of them; lists and mappings as JSON."""
    import csv
    import io

    rows, names = flat(items)
    if not callable(columns) and columns:
        names = list(columns)
        rows = [{name: _plain(_get(row, name)) for name in columns} for row in listed(items)]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writerow({name: plain(name) for name in names})  # csv of Python 3.10 refuses NUL
    writer.writerows({name: _value(value) for name, value in row.items()} for row in rows)
    return out.getvalue().rstrip("\n")


def _value(value: Any) -> Any:
    if isinstance(value, (bool, dict, list)):
        return escape_json(json.dumps(value, ensure_ascii=False))
    return plain(value) if isinstance(value, str) else value


FORMATS: dict[str, Callable[[Any, Columns], str]] = {
    "table": lambda items, columns: str(table(items, columns)),
    "json": lambda items, _: escape_json(json.dumps(finite(_plain(items)), indent=2, ensure_ascii=False)),
    "yaml": _yaml,
    "csv": _csv,
}


def log_line(record: Any) -> str:
    """Return a record's time, level, task and message; further lines of the message are indented."""
    when, level = "-", "-"
    if record.time is not None:
        when = datetime.fromtimestamp(record.time).isoformat(" ", "milliseconds")
    if record.level:
        level = one_line(record.level)
    logger = f"{one_line(record.logger)}: " if record.logger not in ("", "root") else ""
    text = f"{record.message}\n{record.exception}" if record.exception else record.message
    begin = f"{when:<{WIDTHS[0]}} {level:<{WIDTHS[1]}} {one_line(record.task)} {logger}"
    return begin + _plain_text(text).replace("\n", f"\n{INDENT}")


def json_line(record: Any) -> str:
    """Return everything that the program wrote about a record, as valid JSON on one line."""
    return escape_json(json.dumps(finite(record.all_fields), ensure_ascii=False))


def _plain_text(text: str) -> str:
    """Remove colours and other sequences; escape the rest that a terminal would interpret."""
    text = text.rstrip("\r\n")
    if text.isascii() and text.isprintable():
        return text
    return PlainBytes().feed(text.encode("utf-8", "backslashreplace"), final=True).decode()
