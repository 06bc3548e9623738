"""The names of secrets that the user chose for jobs, in ``~/.openpai/chosen_secrets.json``.

A job's document may be somebody else's, and so may a record that came with a folder. When a job is submitted
again, only names in this file, or given again, are read from the environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.files.job_folders import cluster_mark
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked, write_private

MOST = 1000  # jobs

Choices = dict[str, tuple[str, list[str]]]
"""Job -> digest of its record in the project's folder, and the names."""


def save(client: Backend, name: str, record: str, names: Iterable[str]) -> None:
    """Save the names that the user chose for a job, and the text of the job's record."""
    if chosen := sorted(names):
        with locked(_path()):
            known = _read()
            known.pop(_key(client, name), None)
            known[_key(client, name)] = (_digest(record), chosen)
            write_private(_path(), json.dumps(dict(list(known.items())[-MOST:]), indent=1) + "\n")


def load(client: Backend, user: str, name: str, record: str | None = None) -> frozenset[str]:
    """Return the names that the user chose for a job; none if ``record`` is not the text of its record."""
    if user != client.user:
        return frozenset()
    digest, names = _read().get(_key(client, name), ("", []))
    return frozenset(names if record is None or _digest(record) == digest else ())


def _key(client: Backend, name: str) -> str:
    return f"{cluster_mark(client.cluster)} {job_key(client.user, name)}"


def _digest(record: str) -> str:
    return sha256(record.encode("utf-8", "surrogateescape"))


def _path() -> Path:
    return home() / "chosen_secrets.json"


def _read() -> Choices:
    try:
        known = json.loads(_path().read_text(encoding="utf-8"))
        return {job: (str(digest), [str(name) for name in names]) for job, (digest, names) in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise ConfigError(f"cannot read {_path()}; remove it to be asked for the secrets of jobs") from err
