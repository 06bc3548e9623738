"""Long results, printed as they arrive."""

from __future__ import annotations

import itertools
import sys

from openpai_tasks import render
from openpai_tasks.tasks.framework import screen, terminal
from openpai_tasks.tasks.framework.prompts import confirm

SORTED = 10_000
"""The most names that are sorted; a longer list is printed in the order it arrives."""
COLUMNS = ("name", "type", "size", "modified", "link", "url")
USAGE = ("size", "files", "folders", "url")


def stream(found, output):
    """Print a line for each file as it arrives; other formats wait for all of them."""
    if output != "table":
        terminal.put(render.format_values(sorted(found, key=lambda info: info.name), COLUMNS, output))
        return
    first = list(itertools.islice(found, SORTED))
    if len(first) < SORTED:
        first.sort(key=lambda info: info.name)
    for info in itertools.chain(first, found):
        terminal.put(line(info))


def usage(found, output):
    """Print a row for each entry of a folder and, last, one for the folder; a long list as it arrives."""
    rows = list(itertools.islice(found, SORTED if output == "table" else None))
    if len(rows) < SORTED or output != "table":
        rows[:-1] = sorted(rows[:-1], key=lambda row: row.url)
    if output == "table":
        screen.print_view(render.table(rows, USAGE))
    else:
        terminal.put(render.format_values(rows, USAGE, output))
    for row in found:
        terminal.put("  ".join(render.cell(name, getattr(row, name)) for name in USAGE))


def line(info):
    size = "-" if info.type == "folder" else render.size(info.size)
    changed = render.when(info.modified) if info.modified else "-"
    mark = "/" if info.type == "folder" else ""
    return f"{size:>10}  {changed:>19}  {render.cell('name', info.name)}{mark}"


def tree(url, found, output):
    """Print a folder and everything below it; as data, one row for each entry."""
    if output != "table":
        rows = [{"path": item.name, "depth": item.depth, **_facts(item.entry)} for _, item in found]
        terminal.put(render.format_values(rows, ("path", "type", "size"), output))
        return
    terminal.put(render.cell("name", url))
    for bars, item in found:
        mark = "/" if item.entry.is_folder else ""
        terminal.put(f"{bars}{render.cell('name', item.entry.name)}{mark}")


def _facts(entry):
    return {"type": "folder" if entry.is_folder else "file", "size": entry.size, "modified": entry.mtime_ms}


def summary(copied):
    """Summarise a copy in one line, after a line for each failure."""
    parts = [f"{copied.files} copied ({render.size(copied.bytes)})", f"{copied.skipped} skipped"]
    parts += [f"{copied.removed} removed"] if copied.removed else []
    parts += [f"{len(copied.failed)} failed", f"{copied.seconds:.1f}s"]
    lines = [
        f"failed {render.cell('path', one.path)}: {render.cell('reason', one.reason)}"
        for one in copied.failed
    ]
    return "\n".join([*lines, ("preview: " if copied.preview else "") + ", ".join(parts)])


def packed(made):
    """Summarise a pack in one line."""
    shards = "1 shard" if made.shards == 1 else f"{made.shards} shards"
    size, whole = render.size(made.bytes), render.size(made.packed_bytes)
    return f"{made.files} packed ({size}) into {shards} ({whole}), {made.seconds:.1f}s"


def pour(pieces):
    """Write bytes to stdout unchanged."""
    for piece in pieces:
        terminal.raw(sys.stdout, piece)


def confirm_removals(removals):
    """Ask before full folders are removed, and names that matched only as a pattern with ``[``."""
    asked = [one for one in removals if one.is_full or one.is_guess]
    words = [render.cell("url", one.place.url) + " and all in it" * one.is_full for one in asked]
    if words:
        confirm(f"remove {', '.join(words)}?")
