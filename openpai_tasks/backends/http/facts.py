"""What rarely changes about a cluster, kept on disk for some minutes; never secrets.

A file in ``~/.openpai/cache/facts`` for each account and address. It only saves requests: what cannot be read
counts as missing.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.fields import mapping, number
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, write_private
from openpai_tasks.settings.registry import Cluster

KEPT_SECONDS = 300.0
LARGEST = 1 << 20  # characters of a file


class Facts:
    """The facts about a cluster as one user sees it."""

    def __init__(self, cluster: Cluster) -> None:
        to = cluster.destination
        who = json.dumps([to.address, to.user, to.ca, cluster.kind, cluster.generation])
        self._path = home() / "cache" / "facts" / sha256(who.encode())[:32]

    def get(self, name: str) -> Any:
        """Return a fact; None if it is unknown or too old."""
        fact = mapping(self._read().get(name))
        age = time.time() - (number(fact.get("time")) or 0)
        return fact.get("value") if 0 <= age < KEPT_SECONDS else None

    def keep(self, name: str, value: Any) -> None:
        """Keep a fact from now on."""
        text = json.dumps({**self._read(), name: {"time": time.time(), "value": value}})
        with contextlib.suppress(ConfigError):
            write_private(self._path, text, sync=False)

    def forget(self) -> bool:
        """Forget all facts; return whether there were any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def _read(self) -> dict[str, Any]:
        try:
            with self._path.open(encoding="utf-8") as file:
                return mapping(parse(file.read(LARGEST)))
        except (OSError, ValueError):
            return {}
