"""Comparisons of jobs as values."""

import pytest

from openpai_tasks.protocol.document import scripts
from openpai_tasks.sdk.jobs.metrics import is_lower_better
from openpai_tasks.sdk.sweeps.comparison import ComparedJob, Comparison


def job(name, parameters=(), metrics=(), result=(), command="run", **more):
    fields = {"state": "SUCCEEDED", "duration": 1.0, "image": "i", "resources": {"gpu": 1}, **more}
    return ComparedJob(
        name=name,
        parameters=dict(parameters),
        metrics=dict(metrics),
        result=dict(result),
        command=command,
        **fields,
    )


def named(rows):
    return {row.name: row.values for row in rows}


def test_only_what_differs_and_missing_values_count_as_different():
    found = Comparison((job("a", {"lr": 1, "x": 2}), job("b", {"lr": 1})), ())
    assert named(found.differing) == {"x": (2, None)}
    assert named(found.rows)["gpu"] == (1, 1) and named(found.rows)["image"] == ("i", "i")


def test_commands_of_one_sweep_are_not_shown_besides_their_parameters():
    jobs = (job("a", {"lr": 1}, command="run 1"), job("b", {"lr": 2}, command="run 2"))
    assert named(Comparison(jobs, (), "grid").differing) == {"lr": (1, 2)}
    assert "command" in named(Comparison(jobs, ()).differing)


@pytest.mark.parametrize(
    ("name", "values", "best"),
    [
        ("val_loss.best", [3.0, 1.0, None, 1.0], {1, 3}),
        ("accuracy.best", [3.0, 1.0, None, "x"], {0}),
        ("loss.last", [float("nan"), 2.0, 1.0, True], {2}),
        ("loss.last", [1.0, 1.0, None, None], set()),
    ],
)
def test_the_best_value_is_marked(name, values, best):
    jobs = tuple(job(str(at), metrics={name: value}) for at, value in enumerate(values))
    [row] = [row for row in Comparison(jobs, ()).rows if row.name == name]
    assert row.best == best


def test_parameters_have_no_best_value():
    found = Comparison((job("a", {"loss": 1}), job("b", {"loss": 2})), ())
    assert not any(row.best for row in found.rows)


def test_losses_and_errors_are_better_if_lower():
    assert all(map(is_lower_better, ["loss", "val_loss", "trainLoss", "word-error", "err", "a_mae", "RMSE"]))
    assert not any(map(is_lower_better, ["accuracy", "f1", "maestro", "merry", "reward"]))


def test_variables_are_read_from_the_steps_that_export_them():
    assert scripts.read_export("export lr='0.1 x' || exit 1") == {"lr": "0.1 x"}
    for step in ("export KEY='<% $secrets.KEY %>' || exit 1", "export a=1; rm -r /", "export 'a", "cd x"):
        assert scripts.read_export(step) == {}
