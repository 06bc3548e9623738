"""The values of a submission."""

from __future__ import annotations

import pytest

from openpai_tasks.errors import ApiError
from openpai_tasks.server.paddlecloud.submission import check_name, parse_memory, read_submission

LEAST = {"entry": "true", "datacenter": "local"}


@pytest.mark.parametrize(
    "text, megabytes",
    [
        ("10Gi", 10240),
        ("512Mi", 512),
        ("1.5Gi", 1536),
        (".5Gi", 512),
        ("5.Mi", 5),
        ("1Ki", 1),
        ("1G", 954),
        ("1e9", 954),
        ("1E9", 954),
        ("2E", 10**9),
        ("1500m", 1),
        ("104857600", 100),
        ("0", 0),
        ("9999999Ei", 10**9),
    ],
)
def test_quantities_of_memory_become_megabytes(text, megabytes):
    assert parse_memory(text) == megabytes


@pytest.mark.parametrize(
    "text", ["", "10GB", "-1Gi", "1 Gi", "Gi", "1gi", "1Gi\n", "¹Gi", "1e999", "nan", "."]
)
def test_other_text_is_not_a_quantity(text):
    with pytest.raises(ApiError, match="invalid memory"):
        parse_memory(text)


@pytest.mark.parametrize("name", ["a", "0", "word-emb-2", "a" * 55])
def test_label_is_a_name(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["-a", "a-", "A", "a.b", "a_b", "a" * 56, "a\n", "ä", "a b", "../a"])
def test_other_text_is_not_a_name(name):
    with pytest.raises(ApiError, match="invalid job name"):
        check_name(name)


def test_defaults_are_those_of_the_original():
    found = read_submission(LEAST)
    assert found.name == "paddle-cluster-job"
    assert (found.trainers, found.cpu, found.gpu, found.memory_mb, found.passes) == (1, 1, 0, 1024, 1)
    assert (found.pservers, found.pserver_cpu, found.pserver_memory_mb) == (1, 1, 1024)


@pytest.mark.parametrize(
    "key, value",
    [
        ("parallelism", 0),
        ("parallelism", -1),
        ("parallelism", "four"),
        ("parallelism", 1.5),
        ("parallelism", True),
        ("parallelism", [1]),
        ("parallelism", 10**12),
        ("cpu", -1),
        ("gpu", None),
        ("memory", {}),
        ("memory", 1.5),
        ("entry", ["true"]),
        ("entry", "a\0b"),
        ("entry", "x" * 100_000),
        ("image", "--privileged"),
        ("image", "a b"),
        ("datacenter", "../x"),
        ("name", 7),
        ("registry", "mine"),
    ],
)
def test_odd_values_are_refused_with_their_name(key, value):
    with pytest.raises(ApiError) as err:
        read_submission({**LEAST, key: value})
    assert key in str(err.value) and len(str(err.value)) < 200 and "\n" not in str(err.value)
