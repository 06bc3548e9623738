"""The table of shard formats; a row is the ``FORMAT`` of a module."""

from __future__ import annotations

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.packing import har, sequencefile, tar, tfrecord
from openpai_tasks.storage.packing.shards import Format

FORMATS = {
    "tar": tar.FORMAT,
    "tfrecord": tfrecord.FORMAT,
    "sequencefile": sequencefile.FORMAT,
    "har": har.FORMAT,
}


def find_format(name: str) -> Format:
    if name not in FORMATS:
        raise ConfigError(f"no format named {name!r} (known: {', '.join(FORMATS)})")
    return FORMATS[name]


def format_of(name: str) -> str:
    """Return the format of a shard without an index, by its suffix."""
    for known, form in FORMATS.items():
        if name.endswith(form.suffix) or (known == "tfrecord" and ".tfrecord" in name):
            return known
    ends = ", ".join(form.suffix for form in FORMATS.values())
    raise PathError(f"{name} is not a shard: its name must end with one of {ends}")
