"""Results of jobs: whose they are, and how they are sorted."""

import math

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.sweeps.results import JobResult, as_number, gather_results, sort_results
from tests.hostile import client_of

API = "/rest-server/api/v2/jobs"
DETAIL = {"jobStatus": {"username": "bob", "state": "SUCCEEDED"}, "taskRoles": {}}


def test_results_of_another_users_job_are_found(serve, tmp_path):
    server = serve(
        {
            f"GET {API}/bob~train": DETAIL,
            f"GET {API}/bob~train/config": {"extras": {"openpaiSweep": {"point": {"lr": "0.1"}}}},
        }
    )
    [found] = gather_results(client_of(server), ["bob~train"], tmp_path)
    assert found == JobResult("train", "SUCCEEDED", {"lr": 0.1}, {})


def test_a_mark_that_is_no_point_is_ignored(serve, tmp_path):
    config = {"extras": {"openpaiSweep": {"point": ["lr"]}}}
    server = serve({f"GET {API}/bob~train": DETAIL, f"GET {API}/bob~train/config": config})
    assert gather_results(client_of(server), ["bob~train"], tmp_path)[0].point == {}


@pytest.mark.parametrize(
    "text, number",
    [("3", 3), ("-3", -3), ("0.10", 0.1), (".5", 0.5), ("1.", 1.0), ("1e-3", 0.001), ("2E5", 2e5), ("0", 0)],
)
def test_text_of_a_number_is_a_number(text, number):
    assert as_number(text) == number and type(as_number(text)) is type(number)


@pytest.mark.parametrize(
    "text", ["007", "1_000", "1e999", "nan", "inf", "", "-", ".", "1 ", "\u0663", "9" * 99]
)
def test_other_text_stays_text(text):
    assert as_number(text) == text


def results(*values):
    return [JobResult(f"job-{number}", "", {}, {"acc": value}) for number, value in enumerate(values)]


def names(found):
    return [one.name.removeprefix("job-") for one in found]


def test_numbers_are_followed_by_texts_and_then_by_everything_else():
    found = results("b", 1, math.nan, "10", None, True, "a", math.inf, [3], 10**400)
    assert "".join(names(sort_results(found, "acc"))) == "7931" + "60" + "2458"
    assert names(sort_results(found, "acc", lowest=True))[:4] == ["1", "3", "9", "7"]
    assert names(sort_results(found, "acc", best=5)) == ["7", "9", "3", "1", "6"]


def test_equal_values_keep_their_order():
    assert names(sort_results(results(1, 2, 1, 2), "acc")) == ["1", "3", "0", "2"]


def test_columns_are_named_as_in_the_table():
    found = [JobResult("a", "X", {"lr": 1}, {"lr": 5}), JobResult("b", "Y", {"lr": 2}, {"lr": 4})]
    assert [one.name for one in sort_results(found, "lr")] == ["b", "a"]
    assert [one.name for one in sort_results(found, "result.lr")] == ["a", "b"]
    assert [one.name for one in sort_results(found, "state")] == ["a", "b"]
    with pytest.raises(ConfigError, match="known: name, state, lr"):
        sort_results(found, "loss")
    assert sort_results([], "loss") == []
