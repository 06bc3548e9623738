"""A hook is notified once, by a real server or program."""

import json
import os
import re
from pathlib import Path

import pytest

from openpai_tasks.hooks import delivery
from openpai_tasks.hooks.delivery import DeliveryFailed, deliver
from openpai_tasks.hooks.hook import parse
from openpai_tasks.hooks.messages import Facts
from tests.scripted import Reply

FAILED = Facts("end", "train-1", "FAILED", "ann", "out of <memory>\x1b[2J", 137, 185.0, "pai job.why train-1")
LINE = "job train-1 failed after 3 min 05 s: out of <memory>\\x1b[2J"


def test_a_post_is_json_with_all_facts(serve):
    server = serve({"POST /x": ""})
    deliver(parse(f"{server.uri}/x"), FAILED, {}, "id-1", 3)
    (request,) = server.seen
    assert json.loads(request.body) == {
        **{"kind": "job", "event": "end", "name": "train-1", "user": "ann", "state": "FAILED"},
        **{"cause": "out of <memory>\\x1b[2J", "exit_code": 137, "duration": 185.0},
        **{"link": "pai job.why train-1", "text": LINE},
    }
    assert (request.headers["X-Openpai-Delivery"], request.headers["X-Openpai-Attempt"]) == ("id-1", "3")
    assert "X-Openpai-Signature" not in request.headers


def test_services_get_messages_in_their_own_form(serve):
    server = serve({"POST /x": ""})
    for service in ("slack", "teams", "ntfy"):
        deliver(parse(f"{service}:{server.uri}/x"), FAILED, {})
    slack, teams, ntfy = server.seen
    assert json.loads(slack.body)["text"] == (
        "job train-1 failed after 3 min 05 s: out of &lt;memory&gt;\\x1b[2J\n`pai job.why train-1`"
    )
    (card,) = json.loads(teams.body)["attachments"]
    runs = [block["inlines"] for block in card["content"]["body"]]
    assert runs == [[{"type": "TextRun", "text": text}] for text in (LINE, "pai job.why train-1")]
    assert ntfy.body == f"{LINE}\npai job.why train-1" and ntfy.headers["Tags"] == "x"


def test_the_documented_program_verifies_the_signature(serve):
    page = (Path(__file__).parents[2] / "docs" / "afterwards.md").read_text()
    (program,) = re.findall(r"```python\n(import hashlib.*?)```", page, re.DOTALL)
    server = serve({"POST /x": ""})
    deliver(parse({"post": f"{server.uri}/x", "secret": "s3cret"}), FAILED, {})
    (request,) = server.seen
    found: dict = {}
    exec(program, found)
    headers, body = {name: value for name, value in request.headers.items()}, request.body.encode()
    assert found["is_genuine"](b"s3cret", headers, body)
    assert not found["is_genuine"](b"other", headers, body)
    assert not found["is_genuine"](b"s3cret", headers, body + b" ")
    assert not found["is_genuine"](b"s3cret", {**headers, "X-Openpai-Timestamp": "1"}, body)


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (408, True), (429, True), (500, True), (503, True)]
)
def test_a_refusal_is_worth_another_attempt_only_if_it_may_pass(serve, caplog, status, again):
    caplog.set_level("DEBUG")
    server = serve({"POST /secret-path": Reply("", status)})
    with pytest.raises(DeliveryFailed, match=f"HTTP {status}") as failed:
        deliver(parse(f"{server.uri}/secret-path"), FAILED, {})
    assert failed.value.again is again and "secret-path" not in str(failed.value)
    assert f"POST {server.uri} " in caplog.text and "secret-path" not in caplog.text


def test_a_redirect_is_not_followed(serve):
    other = serve({"POST /x": ""})
    server = serve({"POST /x": Reply("", 307, (("Location", f"{other.uri}/x"),))})
    with pytest.raises(DeliveryFailed, match="redirects are not followed") as failed:
        deliver(parse(f"{server.uri}/x"), FAILED, {})
    assert not failed.value.again and not other.seen


def test_a_server_that_does_not_answer_is_tried_again():
    with pytest.raises(DeliveryFailed, match="Connection refused") as failed:
        deliver(parse("http://127.0.0.1:9/secret-path"), FAILED, {})
    assert failed.value.again and "secret-path" not in str(failed.value)


def test_a_proxy_of_the_environment_is_used(serve, monkeypatch):
    proxy = serve({"POST http://hooks.example/x": ""})
    proxy.answers["POST /x"] = ""
    monkeypatch.setenv("http_proxy", proxy.uri)
    deliver(parse("http://hooks.example/x"), FAILED, {})
    assert len(proxy.seen) == 1


def test_a_command_gets_the_facts_as_variables_and_is_not_in_the_process_list(tmp_path):
    command = (
        'echo "$PAI_JOB_NAME $PAI_JOB_STATE $PAI_DELIVERY_ID" > out; tr "\\0" " " < /proc/$$/cmdline >> out'
    )
    deliver(parse({"command": command}), FAILED, {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, "id-1")
    first, arguments = (tmp_path / "out").read_text().splitlines()
    assert first == "train-1 FAILED id-1"
    assert "PAI_JOB_NAME" not in arguments


def test_a_command_that_fails_or_takes_too_long_is_reported(tmp_path, monkeypatch):
    with pytest.raises(DeliveryFailed, match="exit code 7"):
        deliver(parse({"command": "exit 7"}), FAILED, dict(os.environ))
    monkeypatch.setattr(delivery, "COMMAND_SECONDS", 0.1)
    with pytest.raises(DeliveryFailed, match="killed after") as failed:
        deliver(parse({"command": "sleep 60 & sleep 60"}), FAILED, dict(os.environ))
    assert not failed.value.again


def test_a_desktop_without_notifications_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "DESKTOP_SECONDS", 60.0)
    with pytest.raises(DeliveryFailed, match="no desktop with notify-send"):
        deliver(parse({"desktop": True}), FAILED, {"PATH": str(tmp_path)})
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/shown\n')
    program.chmod(0o700)
    deliver(parse({"desktop": True}), FAILED, {"PATH": str(tmp_path)})
    assert LINE in (tmp_path / "shown").read_text()
