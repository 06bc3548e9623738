"""The environment variables of submitters, with which the embedded cluster runs their jobs as processes.

They are sent in a header next to the document, which means the same on every cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from openpai_tasks.errors import ProtocolError

HEADER = "x-openpai-environment"
LIMIT = 32 * 1024  # characters of the header; servers accept 64 KB of all headers
_PYTHON = ("VIRTUAL_ENV", "CONDA_PREFIX")
_NAMES = frozenset({*_PYTHON, "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH"})


def is_submitted(name: str) -> bool:
    """Whether a variable is sent with a job; no other one is, as it may hold a secret."""
    return name in _NAMES or (name.startswith("LC_") and name.isascii() and name.isidentifier())


def select(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are sent with a job."""
    return {name: value for name, value in sorted(variables.items()) if value and is_submitted(name)}


def encode(variables: Mapping[str, str]) -> str:
    """Return the value of the header: JSON in ASCII, whatever bytes the variables have."""
    return json.dumps(select(variables), separators=(",", ":"))


def decode(text: str) -> dict[str, str]:
    """Read the value of the header; ignore variables that are not sent with jobs."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    values = found.values() if isinstance(found, dict) else [None]
    if not all(isinstance(value, str) and "\0" not in value for value in values):
        raise ProtocolError(f"{HEADER} must be a JSON object of texts")
    return select(found)


def python_folder(variables: Mapping[str, str]) -> str:
    """Return the folder of the active virtual or conda environment; empty if there is none."""
    return next((variables[name] for name in _PYTHON if variables.get(name)), "")
