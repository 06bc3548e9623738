"""Malformed data of jobs and servers, read without a server: a value, nothing, or one of our errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks import protocol
from openpai_tasks.backends.openpai import endpoints
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import fields, json_text
from openpai_tasks.sdk.logs.json_lines import parse_object
from openpai_tasks.sdk.notebooks import pull, results
from openpai_tasks.storage.job_files.workspace import Workspace
from openpai_tasks.storage.local.store import LocalStore
from tests.properties.answers import DETAIL
from tests.properties.mutations import BROKEN, ODD, body, deep, mutated, odd, steady, text_of

NOTEBOOK = {
    "metadata": {
        "openpai_run": {"state": "failed", "index": 0, "cell": 1, "of": 2, "reason": "x", "files": ["a"]}
    },
    "cells": [
        {"source": ["1/0\\n"], "outputs": [{"output_type": "error", "traceback": ["", "ZeroDivisionError"]}]}
    ],
}
MANIFEST = {"period": 1, "large": ["x"], "files": {"a.ipynb": {"base": "1", "versions": ["1", "2"]}}}
REFERENCE = {
    "job": "train",
    "user": "ann",
    "cluster": "x",
    "archive": "",
    "size": 1,
    "files": 1,
    "submitted": 1,
}


@steady(50)
@given(body(DETAIL))
def test_json_is_parsed_to_a_writable_value_or_raises_value_error(text):
    try:
        value = json_text.parse(text)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=True).encode()


@pytest.mark.parametrize("levels, is_list", [(65, True), (65, False), (500, True), (900, False)])
def test_too_deeply_nested_json_is_refused(levels, is_list):
    with pytest.raises(ValueError, match="nested"):
        json_text.parse(text_of(deep(levels, is_list)))
    assert json_text.parse(text_of(deep(60, is_list))) == deep(60, is_list)


def test_lone_surrogates_are_replaced_and_surrogate_pairs_are_kept():
    assert json_text.parse(r'{"\ud800": "a\udfff", "b": "\ud83d\ude00"}') == {
        "\ufffd": "a\ufffd",
        "b": "\U0001f600",
    }
    assert json_text.parse(b'["\xff", NaN, -Infinity]') == ["\ufffd", None, None]


READERS: dict[str, tuple[Any, tuple[type, ...]]] = {
    "text": (fields.text, (str,)),
    "whole": (fields.whole, (int, type(None))),
    "number": (fields.number, (int, float, type(None))),
    "moment": (fields.moment, (int, type(None))),
    "count": (fields.count, (int,)),
    "mapping": (fields.mapping, (dict,)),
    "rows": (fields.rows, (list,)),
    "texts": (fields.texts, (tuple,)),
}


@pytest.mark.parametrize("name", READERS)
def test_field_reader_always_returns_its_type(name):
    read, kinds = READERS[name]

    @steady(50)
    @given(odd)
    def check(value):
        assert isinstance(read(value), kinds) and not isinstance(read(value), bool)

    check()


def test_field_readers_accept_what_real_servers_send():
    assert [fields.whole(one) for one in ("3", 3, 3.0, -7351, "-1")] == [3, 3, 3, -7351, -1]
    assert [fields.whole(one) for one in (True, "x", 1.5, 10**400, None, "")] == [None] * 6
    assert fields.moment(1794764631094) == 1794764631094 and fields.moment("2024-01-01") is None
    assert fields.text(19450) == "19450" and fields.text(False) == ""


def test_document_with_expanding_aliases_or_deep_nesting_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(PaiError, match="aliases add more than"):
        protocol.read("\n".join(lines))
    with pytest.raises(PaiError, match="nested deeper"):
        protocol.read("[" * 2000 + "]" * 2000)


@steady(50)
@given(body(NOTEBOOK))
def test_malformed_notebook_of_a_job_never_ends_in_a_traceback(content):
    found = results.read_summary(content)
    if found is not None:
        repr(found).encode()
        results.plain_traceback(found.traceback, False)


@steady(50)
@given(mutated(MANIFEST))
def test_malformed_manifest_of_a_job_never_ends_in_a_traceback(text):
    try:
        manifest = json_text.parse(text)
    except ValueError:
        return
    if isinstance(manifest, dict):
        pull.parse_changes(manifest)


@steady(50)
@given(body(REFERENCE))
def test_malformed_result_line_of_a_job_never_ends_in_a_traceback(line):
    found = parse_object(line)
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("text", [*BROKEN, *(text_of({**REFERENCE, "job": one}).encode() for one in ODD)])
def test_malformed_reference_of_a_job_never_ends_in_a_traceback(tmp_path, text):
    folder = tmp_path / "w/jobs/train/source"
    folder.mkdir(parents=True)
    (folder / "none.json").write_bytes(text)
    Workspace("/w", LocalStore(str(tmp_path))).references_of("train")


@steady(50)
@given(st.sampled_from(ODD) | st.text(max_size=20), st.text(max_size=50))
def test_malformed_log_address_or_page_never_ends_in_a_traceback(address, page):
    endpoints.addresses(fields.text(address))
    endpoints.text_of_page(f"<pre>{page}</pre>")
