"""The benchmarks compare fairly and report ratios."""

import random

import pytest

from benchmarks import jobs, report, startup
from benchmarks.side_by_side import Comparison, run


@pytest.fixture
def turns():
    """Two contenders that write down when it is their turn; ours takes twice as long."""
    taken = []

    def turn(name, seconds):
        def take():
            taken.append(name)
            return seconds

        return take

    return taken, {"ours": turn("ours", 2.0), "peer": turn("peer", 1.0)}


def test_each_contender_runs_once_a_round_in_shuffled_order(turns):
    taken, contenders = turns
    random.seed(1)
    run(Comparison("work", contenders), rounds=20)
    rounds = [tuple(taken[start : start + 2]) for start in range(0, len(taken), 2)]
    assert len(rounds) == 21  # one warms up
    assert set(rounds) == {("ours", "peer"), ("peer", "ours")}


def test_warming_up_does_not_count(turns):
    outcome = run(Comparison("work", turns[1]), rounds=3)
    assert outcome.seconds == {"ours": [2.0] * 3, "peer": [1.0] * 3}


@pytest.mark.parametrize(("goal", "word"), [(2.0, "met"), (1.9, "missed")])
def test_the_table_says_whether_a_goal_is_met(turns, goal, word):
    outcome = run(Comparison("work", turns[1], {"peer": goal}, amount=100, unit="files"), rounds=1)
    row = report.table([outcome]).splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("work", "50 files/s", "peer", "100 files/s"),
        *("2.00", "2.00 to 2.00", f"≤ {goal:.2f}", word),
    ]


def test_a_contender_without_own_clock_is_timed():
    outcome = run(Comparison("work", {"ours": lambda: None}), rounds=1)
    assert outcome.seconds["ours"][0] >= 0 and not outcome.ratios()


def test_startup_compares_projects_with_and_without_our_tasks(shell, tmp_path):
    (tmp_path / "projects").mkdir()
    places = startup.projects(tmp_path / "projects")
    listed = {
        name: shell.run("inv", "--search-root", str(path), "--list").out for name, path in places.items()
    }
    assert "job.sub" not in listed["bare"] and "job.sub" in listed["ours"]
    assert listed["ours and 70 more"].count("many.task-") == 70


def test_jobs_run_beside_every_installed_peer(tmp_path):
    (outcome,) = [run(one, rounds=0) for one in jobs.throughput(tmp_path, jobs=3)]
    assert {"ours"} <= set(outcome.seconds) <= {"ours", "task-spooler", "submitit"}


def test_lists_of_few_and_many_jobs_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "ROUNDS", 1)
    (outcome,) = [run(one, rounds=1) for one in jobs.lists(tmp_path, many=300)]
    assert set(outcome.seconds) == {"ours", "100 jobs"} and len(outcome.seconds["ours"]) == 1
