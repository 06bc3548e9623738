from __future__ import annotations

import threading
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.query import JobQuery
from openpai_tasks.server.state.state import SCHEMA, State, folder_name, task_folder
from tests.server.workshop import document, role


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")


def submit(state: State, name: str, user: str = "alice", **more: object) -> str:
    roles = more.pop("roles", {"main": role("true")})
    text = document(name, roles, **more)  # type: ignore[arg-type]
    return state.submit(user, validate(text), text).key


def names(state: State, **query: object) -> list[str]:
    return [job.name for job in state.jobs(JobQuery(**query))]  # type: ignore[arg-type]


@pytest.fixture
def several(state: State) -> State:
    submit(state, "apple", "alice")
    submit(state, "pear", "bob", defaults={"virtualCluster": "other"}, roles={"main": role("true", gpu=2)})
    priority = {"hivedScheduler": {"jobPriorityClass": "prod"}}
    submit(state, "plum", "carol", extras=priority, roles={"main": role("true", instances=3)})
    state.add_tag("alice~apple", "red")
    state.add_tag("alice~apple", "round")
    state.add_tag("bob~pear", "green")
    return state


def test_a_new_job_waits_with_one_attempt_and_no_tasks(state: State) -> None:
    job = state.job(submit(state, "new", roles={"a": role("x", instances=2, gpu=1), "b": role("x")}))
    assert job
    assert (job.key, job.state, job.sub_state) == ("alice~new", "WAITING", "AttemptCreationPending")
    assert (job.execution, job.attempt, job.tasks, job.roles, job.gpus) == ("START", 0, 3, 2, 2)
    assert [one.state for one in state.attempts(job.key)] == ["WAITING"]
    assert state.tasks(job.key, 0) == []
    assert state.counts() == {"WAITING": 1}


def test_secrets_are_stored_for_running_and_never_shown(state: State) -> None:
    key = submit(state, "secret", roles={"main": role("echo <% $secrets.word %>")}, secrets={"word": "mute"})
    job = state.job(key)
    assert job and "mute" not in job.config and "******" in job.config
    state.forget_document(key)
    assert state.document(key).commands("main") == "echo mute"


def test_unknown_job_has_no_record_attempts_or_events(state: State) -> None:
    assert state.job("alice~none") is None
    assert state.attempt("alice~none", 0) is None
    assert state.attempts("alice~none") == []
    assert state.events("alice~none") == []


def test_lists_are_newest_first_unless_ordered(several: State) -> None:
    assert names(several) == ["plum", "pear", "apple"]
    assert names(several, order="jobName", descending=False) == ["apple", "pear", "plum"]
    assert names(several, order="totalGpuNumber") == ["pear", "plum", "apple"]
    assert names(several, order="totalTaskNumber")[0] == "plum"
    assert names(several, order="nonsense", descending=False) == ["plum", "pear", "apple"]


def test_missing_values_sort_last_ascending_and_first_descending(several: State) -> None:
    assert names(several, order="jobPriority", descending=False)[0] == "plum"
    assert names(several, order="jobPriority")[-1] == "plum"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"users": ("alice", "carol")}, {"apple", "plum"}),
        ({"virtual_clusters": ("other",)}, {"pear"}),
        ({"states": ("WAITING",)}, {"apple", "pear", "plum"}),
        ({"states": ("RUNNING",)}, set()),
        ({"keyword": "app"}, {"apple"}),
        ({"keyword": "APP"}, set()),
        ({"keyword": "bob"}, {"pear"}),
        ({"keyword": "othe"}, {"pear"}),
        ({"keyword": "%"}, set()),
        ({"tags": ("red", "green")}, {"apple", "pear"}),
        ({"without_tags": ("red",)}, {"pear", "plum"}),
        ({"priorities": ("prod",)}, {"plum"}),
        ({"priorities": ("default",)}, {"apple", "pear"}),
        ({"priorities": ("default", "prod")}, {"apple", "pear", "plum"}),
        ({"users": ("alice",), "virtual_clusters": ("other",)}, set()),
    ],
)
def test_filters_select_the_matching_jobs(several: State, query: dict[str, object], found: set[str]) -> None:
    assert set(names(several, **query)) == found


def test_page_includes_the_total_count(several: State) -> None:
    query = JobQuery(limit=1, offset=1)
    assert (several.count(query), names(several, limit=1, offset=1)) == (3, ["pear"])


def test_tags_are_added_and_removed_once(several: State) -> None:
    assert not several.add_tag("alice~apple", "red")
    assert several.remove_tag("alice~apple", "red")
    assert not several.remove_tag("alice~apple", "red")
    job = several.job("alice~apple")
    assert job and job.tags == ("round",)


def test_repeated_event_is_counted(several: State) -> None:
    for message in ("first", "second"):
        several.add_event("alice~apple", "Warning", "Trouble", message)
    several.add_event("alice~apple", "Normal", "Other", "x", once=True)
    several.add_event("alice~apple", "Normal", "Other", "y", once=True)
    trouble = several.events("alice~apple", "Warning")
    assert [(event.message, event.count) for event in trouble] == [("second", 2)]
    other = several.events("alice~apple", "Normal")
    assert [(event.message, event.count) for event in other] == [("x", 1)]


def test_simultaneous_submissions_of_one_name_create_one_job(state: State) -> None:
    text = document("same", {"main": role("true")})
    parsed = validate(text)
    made: list[str] = []

    def try_it() -> None:
        try:
            made.append(state.submit("alice", parsed, text).key)
        except Exception as err:
            made.append(type(err).__name__)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == ["Conflict"] * 7 + ["alice~same"]


def test_folder_names_can_neither_escape_nor_clash() -> None:
    assert folder_name("alice~job-1") == "alice~job-1"
    assert folder_name("alice~Job-1").lower() != folder_name("alice~job-1").lower()
    for name in ("..", "../x", ".hidden", "a/b", "x" * 300, "ä~b", ""):
        made = folder_name(name)
        assert "/" not in made and not made.startswith(".") and 0 < len(made.encode()) < 200
    long = [folder_name("x" * 300 + end) for end in "ab"]
    assert long[0] != long[1]
    assert task_folder(Path("/jobs"), "a~b", 1, "main", 2, 3) == Path("/jobs/a~b/1/main-2-3")
