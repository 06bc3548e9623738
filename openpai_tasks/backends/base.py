"""What every kind of cluster can be asked for."""

from __future__ import annotations

from openpai_tasks.backends.openpai import Client as Backend

__all__ = ["Backend"]
