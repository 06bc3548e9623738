"""Switch faults of the embedded cluster on and off while it runs."""

from __future__ import annotations

import json
from pathlib import Path

from openpai_tasks.settings.home import write_private


def switch(folder: Path, **switches: object) -> None:
    """Have exactly these faults from the next call on; ``folder`` is the server's own."""
    write_private(folder / "faults.json", json.dumps(switches))
