"""The variables and hooks of submitters, which come in headers."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import requests

from openpai_tasks.hooks import hook
from openpai_tasks.hooks.hook import JobHooks, parse
from openpai_tasks.protocol.environment import HEADER
from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, State
from tests.server.conftest import JOB, Api

V1 = {"jobName": "old", "image": "i", "taskRoles": [{"name": "main", "command": "echo $VIRTUAL_ENV"}]}


def submit(api: Api, name: str, header: str, command: str = "echo $VIRTUAL_ENV") -> int:
    body = JOB.format(name=name, command=json.dumps(command))
    headers = {"Content-Type": "text/yaml", HEADER: header}
    return api.call("POST", "/api/v2/jobs", data=body.encode(), headers=headers).status_code


def output(api: Api, key: str) -> str:
    body = api.until(key, "SUCCEEDED", "FAILED")
    [task] = body["taskRoles"]["main"]["taskStatuses"]
    logs = api.get(task["containerLog"]).json()["locations"]
    return api.get(next(one["uri"] for one in logs if one["name"] == "stdout")).text


def test_a_job_runs_with_the_variables_of_its_submitter_and_shows_them(alice: Api) -> None:
    given = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/v", "SECRET": "x"}
    assert submit(alice, "mine", json.dumps(given), "echo $VIRTUAL_ENV $PATH ${SECRET-none}") == 202
    assert output(alice, "alice~mine") == "/v /usr/bin:/bin none\n"
    assert alice.detail("alice~mine")["environment"] == {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/v"}


def test_bytes_that_are_not_text_are_kept_for_the_job_and_shown_replaced(alice: Api) -> None:
    given = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/\udcff"}
    assert submit(alice, "bytes", json.dumps(given), 'printf %s "$VIRTUAL_ENV" | od -An -tx1') == 202
    assert output(alice, "alice~bytes").split() == ["2f", "ff"]
    assert alice.detail("alice~bytes")["environment"]["VIRTUAL_ENV"] == "/\ufffd"


@pytest.mark.parametrize("header", ["PATH=/bin", '["PATH"]', '{"PATH": null}'])
def test_a_wrong_header_is_refused(alice: Api, header: str) -> None:
    assert submit(alice, "wrong", header) == 400
    assert alice.get("/api/v2/jobs/alice~wrong").status_code == 404


def test_version_1_jobs_run_with_them_too(alice: Api) -> None:
    headers = {HEADER: json.dumps({"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/v1"})}
    assert alice.call("POST", "/api/v1/user/alice/jobs", json=V1, headers=headers).status_code == 202
    assert output(alice, "alice~old") == "/v1\n"


def test_a_database_of_an_earlier_release_gets_the_column(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with sqlite3.connect(path) as old:
        old.executescript(SCHEMA.replace(", environment TEXT NOT NULL DEFAULT ''", ""))
    database = Database(path, SCHEMA)
    assert State(database, tmp_path / "jobs").environment("nobody~nothing") == {}
    assert "environment" in {row["name"] for row in database.rows("PRAGMA table_info(jobs)")}
    database.close()


def submit_hooked(api: Api, name: str, header: str) -> requests.Response:
    headers = {"Content-Type": "text/yaml", hook.HEADER: header}
    return api.call(
        "POST", "/api/v2/jobs", data=JOB.format(name=name, command="sleep 0").encode(), headers=headers
    )


def test_the_answer_says_that_hooks_are_kept_and_nothing_shows_them(admin: Api, owner: str) -> None:
    given = JobHooks((parse("http://127.0.0.1:9/secret-path"), parse({"command": "true # secret-path"})))
    answer = submit_hooked(admin, "hooked", given.encode())
    assert answer.status_code == 202 and answer.json()[OWN_FIELD]["hooks"] == 2
    assert "secret-path" not in json.dumps(admin.detail(f"{owner}~hooked"))


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("https://hooks.slack.com/services/x", 202),
        ("http://127.0.0.1:9/secret-path", 403),
        ("https://intranet.example/secret-path", 403),
        ({"command": "true # secret-path"}, 403),
        ({"desktop": True}, 403),
    ],
)
def test_others_than_the_owner_use_only_hooks_of_public_services(alice: Api, value: Any, status: int) -> None:
    given = JobHooks((parse(value),)).encode()
    answer = submit_hooked(alice, "slack", given)
    assert answer.status_code == status and "secret-path" not in answer.text
    assert status == 202 or "only hooks with the addresses of Slack, Teams and ntfy.sh" in answer.text


def test_an_invalid_header_of_hooks_is_refused(alice: Api) -> None:
    answer = submit_hooked(alice, "bad-hook", '{"hooks": ["secret-path"]}')
    assert answer.status_code == 400 and "secret-path" not in answer.text
