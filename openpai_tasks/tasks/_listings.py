"""Long results, printed as they come."""

from __future__ import annotations

import io
import itertools

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks._asking import confirm

render = lazy("openpai_tasks.render")

SORTED = 10_000
"""As many names are sorted; a longer list is printed in the order it comes in."""
COLUMNS = ("name", "type", "size", "modified", "link", "url")
USAGE = ("size", "files", "folders", "url")


def escape(out):
    """From here on, what the encoding of ``out`` cannot write is written with backslashes."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")


def stream(found, output, out):
    """Files a line each, without waiting for the last one; other formats need them all."""
    if output != "table":
        print(render.text(sorted(found, key=lambda info: info.name), COLUMNS, output), file=out)
        return
    first = list(itertools.islice(found, SORTED))
    if len(first) < SORTED:
        first.sort(key=lambda info: info.name)
    for info in itertools.chain(first, found):
        out.write(f"{line(info)}\n")


def usage(found, output, out):
    """A row for each thing in a folder and, last, one for the folder: a long list is printed as it comes."""
    rows = list(itertools.islice(found, SORTED if output == "table" else None))
    if len(rows) < SORTED or output != "table":
        rows[:-1] = sorted(rows[:-1], key=lambda row: row.url)
    print(render.text(rows, USAGE, output), file=out)
    for row in found:
        out.write("  ".join(render.cell(name, getattr(row, name)) for name in USAGE) + "\n")


def line(info):
    size = "-" if info.type == "folder" else render.size(info.size)
    changed = render.when(info.modified) if info.modified else "-"
    mark = "/" if info.type == "folder" else ""
    return f"{size:>10}  {changed:>19}  {render.cell('name', info.name)}{mark}"


def tree(url, found, output, out):
    """The folder and all below it; as data, one row for each."""
    if output != "table":
        rows = [{"path": item.name, "depth": item.depth, **_facts(item.entry)} for _, item in found]
        print(render.text(rows, ("path", "type", "size"), output), file=out)
        return
    out.write(f"{render.cell('name', url)}\n")
    for bars, item in found:
        mark = "/" if item.entry.is_folder else ""
        out.write(f"{bars}{render.cell('name', item.entry.name)}{mark}\n")


def _facts(entry):
    return {"type": "folder" if entry.is_folder else "file", "size": entry.size, "modified": entry.mtime_ms}


def summary(copied):
    """A copy in one line, and one for each failure."""
    parts = [f"{copied.files} copied ({render.size(copied.bytes)})", f"{copied.skipped} skipped"]
    parts += [f"{copied.removed} removed"] if copied.removed else []
    parts += [f"{len(copied.failed)} failed", f"{copied.seconds:.1f}s"]
    lines = [
        f"failed {render.cell('path', one.path)}: {render.cell('reason', one.reason)}"
        for one in copied.failed
    ]
    return "\n".join([*lines, ("preview: " if copied.preview else "") + ", ".join(parts)])


def packed(made):
    """A pack in one line."""
    shards = "1 shard" if made.shards == 1 else f"{made.shards} shards"
    size, whole = render.size(made.bytes), render.size(made.packed_bytes)
    return f"{made.files} packed ({size}) into {shards} ({whole}), {made.seconds:.1f}s"


def pour(pieces, out):
    """Bytes as they are."""
    out.flush()
    for piece in pieces:
        out.buffer.write(piece)
    out.buffer.flush()


def confirm_removals(removals):
    """Ask about full folders, and about what only fits a ``[``."""
    asked = [one for one in removals if one.is_full or one.is_guess]
    words = [render.cell("url", one.place.url) + " and all in it" * one.is_full for one in asked]
    if words:
        confirm(f"remove {', '.join(words)}?")
