"""The values of a submission."""

from __future__ import annotations

import shlex
import sqlite3
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.errors import ApiError
from openpai_tasks.protocol import validate
from openpai_tasks.server.paddlecloud import jobs, records
from openpai_tasks.server.paddlecloud.account import check_quota
from openpai_tasks.server.paddlecloud.document import document
from openpai_tasks.server.paddlecloud.submission import check_name, parse_memory, read_submission
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state import state
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.schema import add_columns
from tests.properties.mutations import steady

GPU_QUOTA = "exceeds the quota of GPU: request: 3, usage: 0, limit: 2"
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


@pytest.mark.parametrize(("gpus", "refusal"), [(0, ""), (2, GPU_QUOTA), (3, "")])
def test_gpus_are_limited_where_there_are_some(tmp_path, gpus, refusal):
    database = Database(tmp_path / "cluster.db", state.SCHEMA + records.SCHEMA)
    engine = SimpleNamespace(capacity=lambda: SimpleNamespace(total=ResourceAmount(4, 8192, gpus)))
    context = SimpleNamespace(engine=engine, state=SimpleNamespace(database=database))
    try:
        check_quota(context, "alice", read_submission(LEAST | {"parallelism": 3, "gpu": 1}))
    except ApiError as err:
        assert str(err) == refusal
    else:
        assert not refusal
    database.close()


def test_a_database_of_an_earlier_release_lists_its_jobs(tmp_path):
    old = records.SCHEMA.replace(",\n    request TEXT NOT NULL DEFAULT ''", "")
    with sqlite3.connect(tmp_path / "cluster.db") as database:
        database.executescript(state.SCHEMA + old)
        database.execute("INSERT INTO paddlecloud_jobs VALUES ('alice~old', 'alice', 'old', 2, 1, 1)")
    upgraded = Database(tmp_path / "cluster.db", state.SCHEMA + records.SCHEMA)
    add_columns(upgraded, records.ADDED)
    assert upgraded.row("SELECT request FROM paddlecloud_jobs")["request"] == ""
    one = records.PaddleJob("old", 2, 1, "", {}, None)
    assert jobs._designed_row(one) == {"name": "old", "parallelism": 2, "pservers": 1}
    upgraded.close()


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
        ("job_package", 7),
        ("jobPackage", []),
        ("registry", "mine"),
    ],
)
def test_odd_values_are_refused_with_their_name(key, value):
    with pytest.raises(ApiError) as err:
        read_submission({**LEAST, key: value})
    assert key in str(err.value) and len(str(err.value)) < 200 and "\n" not in str(err.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    str.strip
)


@steady(100)
@given(entry=TEXTS, topology=TEXTS)
def test_any_entry_reaches_the_shell_unchanged(entry, topology):
    wanted = read_submission({**LEAST, "entry": entry, "topology": topology})
    commands = validate(document("alice", "train", wanted)).commands("trainer")
    exported = commands.partition("export ENTRY=")[2].partition("\nexport PADDLE_INIT_TRAINER_COUNT")[0]
    assert shlex.split(exported, posix=True) == [entry]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NUMBERS = ["parallelism", "cpu", "gpu", "memory", "pservers", "pscpu", "psmemory", "passes"]
PACKAGES = ["job_package", "jobPackage"]
KEYS = st.sampled_from(
    [*PACKAGES, "name", "datacenter", "entry", "topology", "image", "registry", "other", *NUMBERS]
)


@steady(100)
@given(body=st.dictionaries(KEYS, VALUES) | VALUES)
def test_any_json_is_a_submission_or_refused_in_one_line(body):
    try:
        found = read_submission(body)
    except ApiError as err:
        assert str(err) and "\n" not in str(err)
    else:
        assert validate(document("alice", "train", found)).name == "train"
