"""The names of parts: files that a copy is still writing, or has left unfinished."""

from __future__ import annotations

import re

from openpai_tasks.storage.store import Entry

PART = ".pai-part-"
"""Prefix of the name of an unfinished file; its start time and random letters follow."""
PART_NAME = re.compile(re.escape(PART) + r"([0-9a-f]{8})[0-9a-f]{8}([0-9a-f]{8})?")
"""Groups: when it was started, and the copy that writes it (see ``copying.claims``)."""


def is_part(entry: Entry) -> bool:
    """Whether it is an unfinished file of a running or killed copy."""
    if not entry.name.startswith(PART) or entry.is_folder or entry.is_link:
        return False
    return PART_NAME.fullmatch(entry.name) is not None
