"""Documents whose verdict, and whose rendered commands, were taken from the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import validate, validate_v1

DATA = Path(__file__).parent.parent / "data"
REFUSED = "refused in one line"


def vectors(name: str, least: int) -> dict[str, Any]:
    """Return the vectors of a file by their names."""
    found = [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]
    named = {vector["id"]: vector for vector in found}
    assert len(named) == len(found) >= least
    return named


def verdict(check: Callable[[str], Any], document: str) -> Any:
    """Return what a document becomes, or how it is refused."""
    try:
        return check(document)
    except ProtocolError as err:
        return REFUSED if err.problems and "\n" not in str(err) else err


def test_v2_documents_are_validated_and_rendered_like_on_the_real_server():
    known = vectors("job-protocol-v2.jsonl", 181)
    expected = {name: one["entrypoints"] if one["valid"] else REFUSED for name, one in known.items()}
    checked = {
        name: verdict(lambda text: validate(text).entrypoints(), one["document"])
        for name, one in known.items()
    }
    assert checked == expected


def test_v1_documents_are_validated_and_completed_like_on_the_real_server():
    known = vectors("job-config-v1.jsonl", 120)
    expected = {name: one["normalized"] if one["valid"] else REFUSED for name, one in known.items()}
    assert {name: verdict(validate_v1, one["document"]) for name, one in known.items()} == expected
