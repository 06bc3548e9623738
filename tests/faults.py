"""Enable and disable faults of the embedded cluster while it runs."""

from __future__ import annotations

import json
from pathlib import Path

from openpai_tasks.settings.home import write_private


def switch(folder: Path, **switches: object) -> None:
    """Enable exactly these faults from the next call on; ``folder`` is the server's folder."""
    write_private(folder / "faults.json", json.dumps(switches))
