"""Documents whose verdict, and whose rendered commands, were taken from the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import validate, validate_v1

DATA = Path(__file__).parent.parent / "data"


def vectors(name: str) -> list[Any]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [pytest.param(vector, id=vector["id"]) for vector in map(json.loads, lines)]


@pytest.mark.parametrize("vector", vectors("job-protocol-v2.jsonl"))
def test_v2_document_is_validated_and_rendered_like_on_the_real_server(vector):
    if vector["valid"]:
        assert validate(vector["document"]).entrypoints() == vector["entrypoints"]
    else:
        with pytest.raises(ProtocolError) as caught:
            validate(vector["document"])
        assert "\n" not in str(caught.value)
        assert caught.value.problems


@pytest.mark.parametrize("vector", vectors("job-config-v1.jsonl"))
def test_v1_document_is_validated_and_completed_like_on_the_real_server(vector):
    if vector["valid"]:
        assert validate_v1(vector["document"]) == vector["normalized"]
    else:
        with pytest.raises(ProtocolError):
            validate_v1(vector["document"])
