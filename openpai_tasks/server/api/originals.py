"""v1 configurations of jobs as submitted."""

from __future__ import annotations

import json
from typing import Any

from openpai_tasks.server.state.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS v1_configs (
    job TEXT PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE, config TEXT NOT NULL
);
"""


class Originals:
    """v1 configurations by job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, key: str, config: dict[str, Any]) -> None:
        self._database.write("INSERT INTO v1_configs VALUES (?, ?)", [key, json.dumps(config)])

    def config_of(self, key: str) -> dict[str, Any] | None:
        """Return the job's v1 configuration; None if it was submitted as a v2 document."""
        row = self._database.row("SELECT config FROM v1_configs WHERE job = ?", [key])
        config: dict[str, Any] | None = json.loads(row["config"]) if row else None
        return config
