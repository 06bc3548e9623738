"""Jobs that the words of a command line stand for."""

import json
import os

import pytest

from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.sdk.jobs import records
from openpai_tasks.sdk.sweeps.choosing import choose_jobs
from tests.hostile import client_of

API = "/rest-server/api/v2/jobs"


def row(name, state="SUCCEEDED", user="alice"):
    return {"name": name, "username": user, "state": state, "submissionTime": 1}


def cluster(serve, *rows, **configs):
    """A client of a server that has these jobs, newest first."""
    answers = {f"GET {API}": list(rows)}
    for one in rows:
        key = f"{one['username']}~{one['name']}"
        detail = {"jobStatus": {"username": one["username"], "state": one["state"]}, "taskRoles": {}}
        answers[f"GET {API}/{key}"] = detail
        answers[f"GET {API}/{key}/config"] = configs.get(one["name"], {})
    return client_of(serve(answers))


def test_a_name_is_that_job_even_if_others_begin_with_it(serve, tmp_path):
    client = cluster(serve, row("train-2"), row("train"))
    [one] = choose_jobs(client, ["train"], tmp_path)
    assert (one.name, one.is_whole, one.is_guess) == ("train", True, False)


def test_unique_beginning_of_a_name_is_enough(serve, tmp_path):
    client = cluster(serve, row("train-2"), row("test-1"))
    [one] = choose_jobs(client, "tr", tmp_path)
    assert (one.word, one.name, one.is_guess) == ("tr", "train-2", True)


def test_ambiguous_beginning_is_an_error_that_names_the_jobs(serve, tmp_path):
    client = cluster(serve, *(row(f"train-{number}") for number in range(7)))
    with pytest.raises(NotFound, match=r"7 begin with it: train-0, .*, train-4 and 2 more"):
        choose_jobs(client, ["tr"], tmp_path)


def test_pattern_stands_for_all_jobs_that_match_oldest_first(serve, tmp_path):
    client = cluster(serve, row("train-2", "RUNNING"), row("other"), row("train-1"))
    assert [one.name for one in choose_jobs(client, ["train-*"], tmp_path)] == ["train-1", "train-2"]
    with pytest.raises(NotFound, match="no job matches 'x\\*'"):
        choose_jobs(client, ["x*"], tmp_path)


def test_a_job_that_two_words_choose_is_there_once(serve, tmp_path):
    client = cluster(serve, row("train-2"), row("train-1"))
    assert [one.name for one in choose_jobs(client, ["train-2", "*"], tmp_path)] == ["train-2", "train-1"]


def test_another_users_jobs_are_chosen_by_pattern_and_named_with_the_user(serve, tmp_path):
    client = cluster(serve, row("train-1", user="bob"))
    assert [one.name for one in choose_jobs(client, ["bob~tr*"], tmp_path)] == ["bob~train-1"]
    assert [one.name for one in choose_jobs(client, ["bob~tr"], tmp_path)] == ["bob~train-1"]


def test_a_sweep_stands_for_its_jobs(serve, tmp_path):
    mark = {"extras": {"openpaiSweep": {"name": "wide", "point": {}}}}
    rows = (row("wide-i-2"), row("wide-i-1"), row("wide-other"))
    client = cluster(serve, *rows, **{"wide-i-1": mark, "wide-i-2": mark})
    assert [one.name for one in choose_jobs(client, ["wide"], tmp_path)] == ["wide-i-1", "wide-i-2"]


def test_a_recorded_sweep_stands_for_its_jobs(serve, tmp_path):
    client = cluster(serve, row("wide-b"), row("wide-a"), row("wide-not"))
    path = tmp_path / ".openpai" / "sweeps" / client.cluster.alias / "wide.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"job": f"wide-{one}", "point": {}}) + "\n" for one in "ab"))
    assert [one.name for one in choose_jobs(client, ["wide"], tmp_path)] == ["wide-a", "wide-b"]


def record(folder, name, cluster, second):
    path = folder / ".openpai" / "jobs" / name / "record.json"
    path.parent.mkdir(parents=True)
    texts = dict.fromkeys(("user", "uri", "command", "commit", "source_hash", "cloned_from", "document"), "")
    others = {"submitted": 0, "dirty": False, "sources": (), "files": {}, "settings": {}}
    path.write_text(records.Record(name, cluster=cluster, **texts, **others, secrets=()).text)
    os.utime(path, (second, second))


def test_last_is_the_job_submitted_last_from_this_folder_to_this_cluster(serve, tmp_path):
    client = cluster(serve, row("old"), row("new"))
    alias = client.cluster.alias
    with pytest.raises(NotFound, match="@last: no job was submitted from here"):
        choose_jobs(client, ["@last"], tmp_path)
    record(tmp_path, "new", alias, 200)
    record(tmp_path, "old", alias, 100)
    record(tmp_path, "elsewhere", "another", 300)
    (tmp_path / ".openpai" / "jobs" / "broken").mkdir()
    (tmp_path / ".openpai" / "jobs" / "broken" / "record.json").write_text("{")
    assert [one.name for one in choose_jobs(client, ["@last"], tmp_path)] == ["new"]


def test_too_many_jobs_and_no_word_are_refused(serve, tmp_path):
    client = cluster(serve, *(row(f"train-{number}") for number in range(201)))
    with pytest.raises(ConfigError, match="201 jobs match '\\*', more than 200"):
        choose_jobs(client, ["*"], tmp_path)
    with pytest.raises(ConfigError, match="name a job"):
        choose_jobs(client, [])


def test_near_names_that_were_seen_before_are_suggested(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    client = cluster(serve, row("train-resnet"))
    choose_jobs(client, ["train-resnet"], tmp_path)
    with pytest.raises(NotFound, match=r"no job named 'trian-resnet' .*, did you mean 'train-resnet'\?"):
        choose_jobs(client, ["trian-resnet"], tmp_path)
