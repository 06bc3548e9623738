"""Read files, and show values."""

import json
from pathlib import Path

_REQUIRED = object()


def from_file(fname, default=_REQUIRED):
    """Return the content of a YAML or JSON file; the default if it is missing, empty or of another type."""
    import yaml

    readers = {".yaml": yaml.safe_load, ".yml": yaml.safe_load, ".json": json.loads, ".jsn": json.loads}
    suffix = Path(fname).suffix
    if suffix not in readers:
        raise ValueError(f"cannot read {str(fname)!r}: expected one of {', '.join(readers)}")
    try:
        found = readers[suffix](Path(fname).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        if default is _REQUIRED:
            raise
        return default
    if default is _REQUIRED:
        if found is None:
            raise ValueError(f"{str(fname)!r} is empty")
        return found
    return found if isinstance(found, type(default)) else default


def to_screen(msg, **_):
    """Print a text, or other values as YAML."""
    import yaml

    print(msg if isinstance(msg, str) else yaml.safe_dump(msg, sort_keys=False).rstrip())
