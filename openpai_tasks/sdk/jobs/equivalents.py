"""The flags of ``job.sub`` as texts that users can run: a command line, and a call in Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from openpai_tasks.hints import command

WIDTH = 88
_VARIABLES = "env"


def as_command(flags: Mapping[str, Any], alias: str = "") -> str:
    """Return the command line with these flags; it asks for secrets, so they have only names."""
    given = {name: value for name, value in flags.items() if _is_given(value)}
    text = given.pop("command", "")
    # A word alone could be the name of a task, and a dash begins a flag.
    parts = [[text if re.search(r"\s", text) and not text.startswith("-") else f"--command={text}"]]
    for name, value in [*given.items(), *([("cluster_alias", alias)] if alias else [])]:
        flag = f"--{name.replace('_', '-')}"
        for one in map(str, value if isinstance(value, (list, tuple)) else (value,)):
            parts.append([f"{flag}={one}"] if one.startswith("-") else [flag, one])
    texts = [command("job.sub", *parts[0]), *(shlex.join(part) for part in parts[1:])]
    line = " ".join(texts)
    return line if len(line) <= WIDTH else " \\\n  ".join(texts)


def as_python(flags: Mapping[str, Any], alias: str = "") -> str:
    """Return the program that submits the same; it reads secrets from variables of their names."""
    given = {name: value for name, value in flags.items() if _is_given(value)}
    words = [repr(given.pop("command", ""))]
    words += [f"{name}={_value(name, value)}" for name, value in given.items()]
    words += [f"cluster={alias!r}"] if alias else []
    line = f"job = submit({', '.join(words)})"
    if len(line) > WIDTH:
        line = "job = submit(\n" + "".join(f"    {word},\n" for word in words) + ")"
    return f"from openpai_tasks import submit\n\n{line}\n"


def _value(name: str, value: Any) -> str:
    if name == _VARIABLES:
        return repr(dict(one.split("=", 1) for one in value))
    return repr(list(value) if isinstance(value, tuple) else value)


def _is_given(value: Any) -> bool:
    return value not in (None, "", (), [])
