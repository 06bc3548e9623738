"""The benchmarks compare fairly and report ratios."""

import contextlib
import os
import random
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from benchmarks import (
    afar,
    copying,
    executor,
    jobs,
    kubernetes,
    logs,
    metrics,
    mount,
    notebooks,
    objects,
    packing,
    portal,
    report,
    results,
    slurm,
    startup,
)
from benchmarks.__main__ import DOCS, TOPICS
from benchmarks.plot import plot
from benchmarks.results import TopicResult
from benchmarks.side_by_side import Comparison, run
from tests import forked_server, forkserver, needs
from tests.server.engines import kube_cluster, slurm_cluster
from tests.storage import object_servers


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


@pytest.fixture
def quick_starts(monkeypatch, tmp_path_factory):
    """Fork our commands and servers, and spare Jupyter's the grammar of IRIs: see tests/__init__.py."""
    stubs, popen = tmp_path_factory.mktemp("stubs"), subprocess.Popen
    (stubs / "rfc3987_syntax.py").write_text("raise ImportError")
    programs = {"openpai_tasks": [str(forkserver.BIN / "pai")], "openpai_tasks.server": forked_server.COMMAND}

    def start(argv, **options):
        if list(argv[:2]) != [sys.executable, "-m"]:
            return popen(argv, **options)
        environment = dict(options.pop("env", None) or os.environ)
        if argv[2] not in programs:
            return popen(argv, env=environment | {"PYTHONPATH": str(stubs)}, **options)
        environment.pop("PYTHONPATH", None)  # which is the one of the tests
        words = [*programs[argv[2]], *map(str, argv[3:])]
        kind = forkserver.Forked if hasattr(os, "pidfd_open") else popen
        return kind(words, env=environment, **options)

    forkserver.ForkServer.get()
    monkeypatch.setattr(subprocess, "Popen", start)


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
    row = report.table(outcome.rows()).splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("work", "50 files/s", "peer", "100 files/s"),
        *("2.00", "2.00 to 2.00", "1", f"≤ {goal:.2f}", word),
    ]


def test_the_number_of_rounds_is_the_callers_or_else_that_of_the_comparison(turns):
    comparison = Comparison("work", turns[1], rounds=4)
    assert [run(comparison, rounds).rows()[0].rounds for rounds in (None, 2)] == [4, 2]


def test_the_page_has_the_tables_and_the_plot_a_mark_for_each_peer(turns):
    rows = run(Comparison("work & more", turns[1], {"peer": 1.5}), rounds=2).rows()
    kept = {
        "startup": TopicResult("2026-01-02", "a laptop", rows),
        "jobs": TopicResult("2026-01-03", "b", rows),
    }
    page = report.page(kept, ["startup"], "Notes stay.")
    assert page.count(report.table(rows)) == 2 and page.endswith("Notes stay.\n")
    assert "### startup\n\n2026-01-02: a laptop.\n" in page and "### jobs\n\n2026-01-03: b.\n" in page
    picture = ElementTree.fromstring(plot(rows))
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "work & more / peer" in texts and "2.00" in texts


def test_a_run_replaces_the_results_of_its_topics_only(turns, tmp_path):
    rows, file = run(Comparison("work", turns[1]), rounds=1).rows(), tmp_path / "results.json"
    first, second = (TopicResult(f"2026-01-0{day}", "a laptop", rows) for day in (1, 2))
    order = ["startup", "jobs", "hdfs"]
    assert results.replace({"hdfs": first, "jobs": first}, order, file) == {"jobs": first, "hdfs": first}
    without_rows = TopicResult("2026-01-02", "a laptop", [])
    results.replace({"startup": second, "jobs": second, "hdfs": without_rows}, order, file)
    assert list(results.read(file).items()) == [("startup", second), ("jobs", second), ("hdfs", first)]


def test_the_page_and_the_plot_show_the_results_that_are_kept():
    kept, page = results.read(), (DOCS / "performance.md").read_text(encoding="utf-8")
    notes = page.partition(".svg)\n")[2].strip()
    assert notes and page == report.page(kept, TOPICS, notes)
    rows = [row for result in kept.values() for row in result.rows]
    assert (DOCS / "performance.svg").read_text(encoding="utf-8") == plot(rows)


def test_a_contender_without_own_clock_is_timed():
    outcome = run(Comparison("work", {"ours": lambda: None}), rounds=1)
    assert outcome.seconds["ours"][0] >= 0 and not outcome.rows()


def test_startup_compares_projects_with_and_without_our_tasks(shell, tmp_path):
    (tmp_path / "projects").mkdir()
    places = startup.projects(tmp_path / "projects")
    listed = {
        name: shell.run("inv", "--search-root", str(path), "--list").out for name, path in places.items()
    }
    assert "job.sub" not in listed["bare"] and "job.sub" in listed["ours"]
    assert listed["ours and 70 more"].count("many.task-") == 70


def test_objects_arrive_with_each_contender(tmp_path):
    if reason := object_servers.missing("rclone"):
        pytest.skip(reason)
    for comparison in objects.comparisons(tmp_path, files=3, large=1 << 20):
        for turn in comparison.contenders.values():
            assert turn() > 0


@pytest.mark.root  # /dev/fuse may be root's
def test_a_file_is_read_through_a_mount_and_copied(tmp_path):
    needs.require("fusermount3")
    if reason := object_servers.missing("rclone"):
        pytest.skip(reason)
    with contextlib.closing(mount.comparisons(tmp_path, large=1 << 20)) as found:
        assert all(turn() > 0 for turn in next(found).contenders.values())


def test_a_training_runs_with_and_without_metrics(tmp_path):
    [comparison] = metrics.comparisons(tmp_path, steps=100)
    assert all(turn() > 0 for turn in comparison.contenders.values())
    [file] = (tmp_path / ".pai" / "metrics").iterdir()
    assert len(file.read_text().splitlines()) == 100


def test_logs_are_followed_and_filtered_by_each_contender(quick_starts, tmp_path):
    found = logs.comparisons(tmp_path, followed=1, filtered=1)
    whats = []
    for comparison in found:
        whats.append(comparison.what)
        for turn in comparison.contenders.values():
            turn()
    assert whats[0] == "follow a log of 1 MB" and len(whats) == 7


def test_jobs_on_slurm_are_counted_with_each_contender(tmp_path, monkeypatch, capsys):
    needs.require(*slurm_cluster.PROGRAMS)
    monkeypatch.setattr(slurm.importlib.util, "find_spec", lambda name: None)  # submitit takes long
    for comparison in slurm.comparisons(tmp_path, jobs=3):
        for turn in comparison.contenders.values():
            turn()
    assert "sbatch: " in (printed := capsys.readouterr().err) and "ours: " in printed


def test_jobs_on_kubernetes_are_counted_with_each_contender(tmp_path, capsys):
    with kube_cluster.kube_namespace():
        for comparison in kubernetes.comparisons(tmp_path, jobs=2):
            for turn in comparison.contenders.values():
                turn()
    printed = capsys.readouterr().err
    assert "kubectl create, all pods: " in printed and "MB after 2 finished jobs" in printed


def test_copies_are_compared_and_checked(quick_starts, tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "PEERS", {"cp": copying.PEERS["cp"]})
    tiny = copying.Sizes(small=3, unchanged=3, large=1 << 10)
    outcomes = [run(comparison, rounds=0) for comparison in copying.comparisons(tmp_path, tiny)]
    assert [set(outcome.seconds) for outcome in outcomes] == [{"ours", "cp"}, {"ours", "cp"}, {"ours"}]


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_copy_that_differs_ends_the_benchmark(tmp_path, damage):
    source, target = (copying.make_tree(tmp_path / name, 2, 10) for name in ("source", "target"))
    for file in source.rglob("*.bin"):
        (target / file.relative_to(source)).write_bytes(file.read_bytes())
    copying.check_same(source, target)
    victim = next(target.rglob("*.bin"))
    victim.unlink() if damage == "missing" else victim.write_bytes(b"other byte")
    with pytest.raises(RuntimeError):
        copying.check_same(source, target)


def test_packers_are_compared_and_checked(tmp_path):
    outcomes = [run(comparison, rounds=0) for comparison in packing.comparisons(tmp_path, files=12)]
    assert [outcome.what.split()[0] for outcome in outcomes] == ["pack", "unpack", "read", "read"]
    for outcome in outcomes:
        assert {"ours", "tarfile"} <= set(outcome.seconds)


def test_notebooks_run_beside_every_installed_peer(quick_starts, tmp_path):
    (outcome,) = [run(one, rounds=0) for one in notebooks.comparisons(tmp_path, cells=2)]
    assert {"ours"} <= set(outcome.seconds) <= {"ours", "papermill", "nbclient"}


def test_jobs_run_beside_every_installed_peer(quick_starts, tmp_path):
    (outcome,) = [run(one, rounds=0) for one in jobs.throughput(tmp_path, jobs=3)]
    assert {"ours"} <= set(outcome.seconds) <= {"ours", "task-spooler", "submitit"}


def test_lists_of_few_and_many_jobs_are_compared(quick_starts, tmp_path):
    (outcome,) = [run(one, rounds=0) for one in jobs.lists(tmp_path, many=300)]
    assert set(outcome.seconds) == {"ours", "100 jobs"}


def test_commands_from_afar_are_compared_with_their_round_trips(quick_starts, tmp_path):
    outcomes = [run(comparison, rounds=0) for comparison in afar.comparisons(tmp_path, round_trip=0.001)]
    assert [outcome.what for outcome in outcomes][:2] == ["job.list from afar", "job.status from afar"]
    assert list(outcomes[2].seconds) == ["ours", "near by + 2 round trips", "http.client, 2 round trips"]


def test_sweeps_metrics_and_logs_of_the_portal_are_compared(quick_starts, tmp_path, monkeypatch):
    monkeypatch.setattr(portal.importlib.util, "find_spec", lambda name: None)  # pandas takes long to load
    sizes = {"jobs": 3, "points": 30, "megabytes": {"opened": 2, "searched": 1}}
    outcomes = {
        outcome.what: outcome.seconds
        for comparison in portal.comparisons(tmp_path, **sizes)
        for outcome in [run(comparison, rounds=0)]
    }
    assert list(outcomes)[:8] == [
        "open a log of 2 MB",
        "first hit in a log of 1 MB",
        "search a log of 1 MB",
        "page of a sweep of 3 jobs",
        "page of a sweep of 30 jobs",
        "job.results of 3 jobs",
        "job.results of 30 jobs",
        "page of a sweep of 3 jobs, none read before",
    ]
    assert set(outcomes["job.results of 30 jobs"]) == {"ours", "limit of 2 s", "3 jobs"}
    assert set(outcomes["metrics page of 300 points"]) == {"ours", "30 points"}


def test_calls_through_executors_are_compared(quick_starts, tmp_path, monkeypatch):
    monkeypatch.setattr(executor, "has_submitit", lambda: False)  # it takes seconds
    monkeypatch.chdir(tmp_path)
    outcomes = [run(comparison, rounds=0) for comparison in executor.comparisons(tmp_path, calls=4, batch=2)]
    assert [outcome.what for outcome in outcomes] == ["4 calls, a job each", "4 calls, 2 in a job"]
    assert all(set(outcome.seconds) == {"ours", "ProcessPoolExecutor"} for outcome in outcomes)
