"""Submitting jobs in the browser: the editor for job files, templates, the form and its sources."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from openpai_tasks.errors import PaiError
from openpai_tasks.portal import uploads
from openpai_tasks.portal.pages import submit_form
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.portal.sessions import Session
from openpai_tasks.portal.uploads import Upload
from openpai_tasks.sdk.jobs.options import JobOptions
from openpai_tasks.settings.config import Settings
from tests.portal.conftest import Web
from tests.sdk.pai_server import PASSWORD, USER, PaiServer
from tests.server.workshop import until

HERE = "/c/local/submit/file"
FORM = "/c/local/submit"
JSON = {"accept": "application/json"}
GUIDE = {
    "jobName": "hello-world",
    "image": "python:3.12-slim",
    "taskRoles": [
        {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 512, "command": "echo hello v1"},
    ],
}
"""A job in the form of OpenPAI's first guide for newcomers."""


def text_of(page: requests.Response, name: str = "text") -> str:
    found = re.search(rf'<textarea[^>]* name="{name}".*?>\n(.*?)</textarea>', page.text, re.S)
    assert found
    return html.unescape(found[1])


def document(name: str, command: str = "echo hello") -> str:
    role = {
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 1, "memoryMB": 512, "gpu": 0},
        "commands": [command],
    }
    return yaml.safe_dump(
        {
            "protocolVersion": 2,
            "name": name,
            "type": "job",
            "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "python:3"}],
            "taskRoles": {"main": role},
        },
        sort_keys=False,
    )


def check(visitor: Any, text: str) -> Any:
    return visitor.post(f"{HERE}/check", {"text": text}, headers=JSON).json()


def problems(found: Any) -> list[tuple[int, str]]:
    return [(one["line"], one["path"]) for one in found["problems"]]


def jobs_named(cluster: Any, start: str) -> list[str]:
    listed = cluster.ok("job.list", "-o", "json").json()
    return [job["name"] for job in listed if job["name"].startswith(start)]


# Job files


def test_the_page_has_a_job_that_is_ready_to_be_sent(cluster, visitor):
    text = text_of(visitor.get(HERE))
    assert check(visitor, text) == {"version": 2, "problems": [], "notes": []}
    sent = visitor.post(HERE, {"text": text.replace("\n", "\r\n")})
    name = yaml.safe_load(text)["name"]
    assert sent.history[0].status_code == 303 and sent.url.endswith(f"~{name}")
    assert cluster.ok("job.wait", name).code == 0
    assert "hello world from task 0" in cluster.ok("job.logs", name).out
    assert yaml.safe_load(text_of(visitor.get(HERE)))["name"] != name


def test_the_old_address_leads_to_the_editor(visitor):
    assert visitor.get("/submit.html").url.endswith(FORM)


def test_problems_have_their_lines(visitor):
    wrong = document("x").replace("cpu: 1", "cpu: many").replace("type: job", "typ: job")
    lines = wrong.split("\n")
    expected = [lines.index("typ: job") + 1, lines.index("      cpu: many") + 1]
    found = check(visitor, wrong)
    assert found["version"] == 2
    assert {(expected[0], "typ"), (expected[1], "taskRoles.main.resourcePerInstance.cpu")} <= set(
        problems(found)
    )
    broken = check(visitor, "name: [1,\ntype: job\n")
    assert broken["problems"][0]["rule"].startswith("invalid YAML") and broken["problems"][0]["line"]


def test_old_jobs_are_checked_by_their_own_rules(visitor):
    text = json.dumps({**GUIDE, "imag": 1, "jobName": "a b"}, indent=2)
    found = check(visitor, text)
    assert found["version"] == 1
    assert set(problems(found)) == {(2, "jobName"), (13, "imag")}


def test_old_jobs_run_and_can_be_converted(cluster, visitor):
    text = json.dumps({**GUIDE, "jobName": "from.guide"}, indent=2)
    notes = check(visitor, text)["notes"]
    assert notes[0].startswith("This is a v1 job") and "'from.guide' becomes 'from_guide'" in notes[1]
    converted = visitor.post(f"{HERE}/convert", {"text": text}, headers=JSON).json()["text"]
    assert check(visitor, converted) == {"version": 2, "problems": [], "notes": []}
    sent = visitor.post(HERE, {"text": text})
    assert sent.url.endswith("~from_guide") and "the image python:3.12-slim is not used" in sent.text
    cluster.ok("job.wait", "from_guide")
    assert "hello v1" in cluster.ok("job.logs", "from_guide").out


def test_a_preview_sends_nothing_and_masks_secrets(cluster, visitor):
    text = document("only-preview") + "secrets:\n  token: hidden-value\n"
    shown = visitor.post(f"{HERE}/preview", {"text": text}, headers=JSON).json()
    assert shown["text"] == text.replace("secrets:\n  token: hidden-value", 'secrets: "******"')
    plan = dict(shown["plan"])
    assert shown["is_masked"] and plan["Url"].endswith("/api/v2/jobs") and plan["Command"] == "echo hello"
    assert plan["Adds"].startswith("secrets token") and "hidden-value" not in json.dumps(shown)
    assert cluster.pai("job.status", "only-preview").code != 0
    refused = visitor.post(f"{HERE}/preview", {"text": "name: x"}, headers=JSON)
    assert refused.status_code == 400 and "required" in refused.json()["error"]


def test_a_refused_job_is_explained_and_its_text_is_kept(cluster, visitor):
    text = document("</textarea><script>alert(1)</script>", "echo '<b>'")
    page = visitor.post(HERE, {"text": text})
    assert page.status_code == 400 and "Not submitted" in page.text and "(line 2)" in page.text
    assert text_of(page) == text and "<script>alert" not in page.text
    lab = document("elsewhere") + "defaults:\n  virtualCluster: nowhere\n"
    page = visitor.post(HERE, {"text": lab})
    assert 400 <= page.status_code < 500 and "nowhere" in page.text.partition("<form id=")[0]
    assert text_of(page) == lab


def test_a_name_that_exists_is_explained(cluster, visitor):
    visitor.post(HERE, {"text": document("twice"), "draft": "a"})
    page = visitor.post(HERE, {"text": document("twice"), "draft": "b"})
    assert page.status_code == 409 and "a job named &#39;twice&#39; exists" in page.text
    link = re.search(r'href="([^"]+)">the job of that name', page.text)
    assert link and visitor.get(link[1]).status_code == 200


def test_a_form_that_is_sent_twice_makes_one_job(cluster, visitor):
    token, values = visitor.token, {"command": "echo double click", "draft": "once"}

    def send(_: int) -> str:
        answer = visitor.web.post(visitor.root + FORM, data={"csrf": token, **values}, timeout=60)
        return answer.url

    with ThreadPoolExecutor(4) as pool:
        addresses = set(pool.map(send, range(4)))
    assert len(addresses) == len(jobs_named(cluster, "echo-double-click")) == 1
    visitor.post(FORM, {**values, "draft": "another page"})
    assert len(jobs_named(cluster, "echo-double-click")) == 2


def test_a_text_that_is_too_long_is_refused_in_one_line(visitor):
    text = document("long", "echo " + "x" * (1 << 20))
    for options in ({}, {"files": {"nothing": b""}}):
        page = visitor.post(f"{HERE}/check", {"text": text}, headers=JSON, **options)
        assert page.status_code == 400 and "too large" in page.json()["error"]


def test_the_text_is_kept_while_the_cluster_does_not_answer(cluster, visitor, serve):
    server = serve({})
    cluster.ok("cluster.add", "gone", server.uri, "--user", "ann", "--no-check", OPENPAI_TOKEN="x")
    server.close()
    text = document("kept")
    page = visitor.post("/c/gone/submit/file", {"text": text})
    assert page.status_code >= 400 and text_of(page) == text
    page = visitor.post("/c/gone/submit", {"command": "echo kept", "draft": "gone"})
    assert page.status_code >= 400 and text_of(page, "command") == "echo kept"


# Templates


def test_every_template_fills_the_editor(visitor):
    names = re.findall(r'href="/c/local/submit/file\?template=([^"]+)"', visitor.get(HERE).text)
    assert "hello" in names and "gpu-training" in names
    for name in names:
        text = text_of(visitor.get(f"{HERE}?template={name}"))
        assert check(visitor, text)["problems"] == [] and yaml.safe_load(text)["name"].startswith(name[:5])


def test_parameters_of_a_template_are_filled_in(visitor):
    page = visitor.get(HERE, params={"template": "hello", "p.who": "it's <you>", "p.tasks": "3"})
    made = yaml.safe_load(text_of(page))
    assert (made["parameters"]["who"], made["taskRoles"]["main"]["instances"]) == ("it's <you>", 3)
    assert 'name="p.who" value="it&#39;s &lt;you&gt;"' in page.text
    wrong = visitor.get(HERE, params={"template": "hello", "p.tasks": "many"})
    assert wrong.status_code == 400 and "must be a whole number" in wrong.text
    assert check(visitor, text_of(wrong))["problems"] == []


def test_only_listed_templates_are_read(cluster, visitor):
    (cluster.project / "outside.yaml").write_text(document("outside"))
    for name in ("none", "outside.yaml", "./outside", str(cluster.project / "outside.yaml"), "../hello"):
        page = visitor.get(HERE, params={"template": name})
        assert page.status_code == 404 and "outside" not in text_of(page)


# The form


def upload(visitor: Any, draft: str, *files: tuple[str, bytes], path: str = "upload") -> requests.Response:
    data = {"draft": draft, "path": [name for name, _ in files]}
    parts = [("file", ("file", io.BytesIO(content))) for _, content in files]
    return visitor.post(f"{FORM}/{path}", data, files=parts, headers=JSON)


def test_the_command_line_and_the_python_text_request_the_same(cluster, visitor):
    sources = {"train.py": b"print('a')\n", "lib/a b.txt": b"x", "run.sh": b"#!/bin/sh\n"}
    for name, content in sources.items():
        path = cluster.project / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if content.startswith(b"#!") else 0o644)
    upload(visitor, "same", *sources.items())
    values = {
        "draft": "same",
        "command": "echo \"it's\" $HOME\r\necho '# b' \\\\ --flag",
        "job_name": "same-request",
        "image": "python:3.11",
        "gpu": "0",
        "cpu": "1",
        "memoryMB": "1g",
        "instances": "2",
        "virtual_cluster": "default",
        "env_name": ["A", "EMPTY", "DASH"],
        "env_value": ["x 'y' \"z\" $1", "", "-1"],
        "secret_name": ["API_KEY"],
        "secret_value": ["never-shown"],
        "retries": "1",
        "max_time": "2h",
        "requeue_on_timeout": "2",
        "grace": "1m",
        "keep_failed": "1h",
        "shm": "64m",
        "outputs": "model/*.pt\r\n*.log",
        "pip_installs": "numpy>=1,<3",
        "tag": "one, two",
        "priority": "low",
        "notify": "ntfy:https://ntfy.example.org/mine",
    }
    texts = visitor.post(f"{FORM}/check", values, headers=JSON).json()
    shown = visitor.post(f"{FORM}/preview", values, headers=JSON).json()
    assert texts["problem"] == "" and "never-shown" not in json.dumps([texts, shown])
    assert {name for name, _ in shown["files"]} >= set(sources)

    typed = cluster.run("bash", "-c", f"{texts['command']} --preview", API_KEY="never-shown")
    assert typed.code == 0, typed
    runner = "import functools, openpai_tasks as o; o.submit = functools.partial(o.submit, preview=True); "
    ran = cluster.run(
        sys.executable,
        "-c",
        runner + f"exec({texts['python']!r}); print(job.preview())",
        API_KEY="never-shown",
    )
    assert ran.code == 0, ran
    assert yaml.safe_load(typed.out) == yaml.safe_load(shown["text"]) == yaml.safe_load(ran.out)


@pytest.mark.parametrize("command", ["-x --gpu 7", "--help", "job.list", "a; b <% c | d", 'it\'s\n"two"'])
def test_commands_are_quoted(cluster, visitor, command):
    values = {"draft": "quoting", "command": command, "job_name": "quoted"}
    texts = visitor.post(f"{FORM}/check", values, headers=JSON).json()
    shown = visitor.post(f"{FORM}/preview", values, headers=JSON).json()
    typed = cluster.run("bash", "-c", f"{texts['command']} --preview")
    assert yaml.safe_load(typed.out) == yaml.safe_load(shown["text"])
    calls: list[Any] = []
    exec(
        texts["python"].partition("\n\n")[2], {"submit": lambda *words, **named: calls.append((words, named))}
    )
    assert calls == [((command,), {"job_name": "quoted"})]


def test_the_form_warns_of_gpus_that_are_not_there(visitor):
    values = {"draft": "many", "command": "true", "gpu": "64", "instances": "2"}
    problem = visitor.post(f"{FORM}/check", values, headers=JSON).json()["problem"]
    assert re.fullmatch(r"virtual cluster default has \d+ GPUs?; the job asks for 128", problem)


def test_sources_travel_with_the_job(cluster, visitor):
    sent = upload(
        visitor, "travel", ("run.sh", b"#!/bin/sh\ncat data/in.txt\n"), ("data/in.txt", b"from afar")
    )
    assert [(one["name"], one["is_folder"]) for one in sent.json()] == [("data", True), ("run.sh", False)]
    values = {"draft": "travel", "command": "./run.sh", "job_name": "travel", "tag": "portal"}
    assert visitor.post(FORM, values).url.endswith("~travel")
    cluster.ok("job.wait", "travel")
    assert "from afar" in cluster.ok("job.logs", "travel").out
    assert cluster.ok("job.status", "travel", "-o", "json").json()["tags"] == ["portal"]
    assert json.loads(next((cluster.project / ".openpai/jobs/travel").glob("record.json")).read_text())[
        "sources"
    ] == ["data", "run.sh"]
    assert upload(visitor, "travel", path="upload").json() == []  # nothing stays behind


def test_page_of_a_new_job_says_what_the_machine_lacks(visitor):
    page = visitor.post(FORM, {"draft": "large", "command": "true", "job_name": "large", "cpu": "9999"})
    assert page.url.endswith("~large") and "the job asks for 9999 and runs alone</p>" in page.text


def test_sources_can_be_removed_again(visitor):
    upload(visitor, "remove", ("a.py", b"1"), ("b/c.py", b"2"), ("b/d.py", b"3"))
    left = visitor.post(f"{FORM}/remove", {"draft": "remove", "path": "b"}, headers=JSON)
    assert [one["name"] for one in left.json()] == ["a.py"]


HOSTILE = ["", "..", "../x", "a/../../x", "/etc/x", "a//b", "a\\b", "a\nb", "a\0b", "x" * 300, "./a"]


def test_hostile_names_are_refused(visitor):
    for name in HOSTILE:
        for path in ("upload", "remove"):
            refused = upload(visitor, "hostile", (name, b"x"), path=path)
            assert refused.status_code == 400 and "error" in refused.json(), name
        assert upload(visitor, "hostile").json() == [], name


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"command": " "}, "the command is empty"),
        ({"command": "x", "gpu": "two"}, "“GPUs per task” needs a whole number, got &#39;two&#39;"),
        ({"command": "x", "cpu": "-1"}, "“CPU cores per task” must be at least 1, got -1"),
        ({"command": "x", "memoryMB": "much"}, "“Memory per task” needs megabytes"),
        ({"command": "x", "max_time": "soon"}, "“Time limit of a task” must be a duration"),
        ({"command": "x", "env_name": "A=B", "env_value": "1"}, "needs a name without ="),
        ({"command": "x", "env_name": "", "env_value": "1"}, "needs a name without ="),
        ({"command": "x", "secret_name": "KEY", "secret_value": ""}, "enter the value of the secret KEY"),
        ({"command": "x", "outputs": "../x"}, "../x"),
        ({"command": "x", "notify": "ftp://a"}, "“Notify at the end” has an invalid address: expected https"),
        ({"command": "x", "notify": '{"command": "true"}'}, "“Notify at the end” has an invalid address"),
        ({"command": "x", "notify": "env:NOT_SET"}, "a hook needs the environment variable NOT_SET"),
        ({"command": "x", "job_name": "a b"}, "name"),
    ],
)
def test_wrong_values_are_explained_and_the_form_is_kept(visitor, values, reason):
    page = visitor.post(FORM, {"draft": "wrong", "image": "kept:1", **values})
    shown = page.text.partition("<form id=")[0]
    assert page.status_code == 400 and reason in shown and "--" not in shown.partition('class="notice')[2]
    assert 'value="kept:1"' in page.text


@pytest.mark.parametrize("address", ["ftp://a", "{}", "env:NOT_SET"])
def test_a_wrong_address_to_notify_is_reported_at_its_field(visitor, address):
    values = {"draft": "wrong", "command": "true", "notify": address}
    found = visitor.post(f"{FORM}/check", values, headers=JSON).json()
    assert found["field"] == "notify" and found["problem"]


def test_the_server_notifies_of_a_job_of_the_form(cluster, visitor, serve):
    receiver = serve({"POST /secret-path": ""})
    address = f"{receiver.uri}/secret-path"
    values = {"draft": "told", "command": "exit 3", "job_name": "told", "notify": address}
    shown = visitor.post(f"{FORM}/preview", values, headers=JSON)
    assert "post to 127.0.0.1 on end" in shown.text and "secret-path" not in shown.text
    visitor.post(FORM, values)
    until(lambda: receiver.seen)
    body = json.loads(receiver.seen[0].body)
    assert (body["name"], body["state"]) == ("told", "FAILED")


def test_a_cluster_without_hooks_says_so_at_the_field(cluster, visitor):
    server = PaiServer()
    try:
        cluster.ok("cluster.add", "hookless", server.uri, "--user", USER, OPENPAI_PASSWORD=PASSWORD)
        values = {"draft": "hookless", "command": "true", "notify": "https://ntfy.sh/x"}
        found = visitor.post("/c/hookless/submit/check", values, headers=JSON).json()
        assert found["field"] == "notify" and "keeps no hooks" in found["problem"]
        assert "“Notify at the end”" in found["problem"] and "--" not in found["problem"]
        page = visitor.post("/c/hookless/submit", values)
        assert page.status_code == 404 and "keeps no hooks" in page.text
    finally:
        server.close()


def test_secrets_do_not_come_back_with_the_form(visitor):
    values = {"command": "x", "job_name": "a b", "secret_name": "KEY", "secret_value": "never-shown"}
    page = visitor.post(FORM, {"draft": "secret", **values})
    assert page.status_code == 400 and 'value="KEY"' in page.text and "never-shown" not in page.text


def test_other_users_get_nothing_of_the_project(cluster, visitor):
    (cluster.project / "mine.txt").write_text("mine")
    (cluster.project / "invoke.yaml").write_text("openpai:\n  sources: [mine.txt]\n")
    (cluster.project / "job_templates").mkdir()
    (cluster.project / "job_templates" / "mine.yaml").write_text(document("mine"))
    try:
        password = json.loads((cluster.home / "local" / "credentials.json").read_text())["password"]
        user = cluster.ok("cluster.credentials", "-o", "json").json()["user"]
        web = Web()
        login = {"cluster": "local", "user": user, "password": password}
        signed_in = web.post(f"{visitor.root}/sign-in?next={HERE}", data=login, timeout=60)
        token = re.search(r'name="csrf" content="([^"]+)"', signed_in.text)
        assert token and "template=hello" in signed_in.text and "template=mine" not in signed_in.text
        values = {"draft": "x", "command": "true", "csrf": token[1]}
        theirs = web.post(f"{visitor.root}{FORM}/preview", data=values, headers=JSON, timeout=60).json()
        ours = visitor.post(f"{FORM}/preview", values | {"csrf": visitor.token}, headers=JSON).json()
        assert "mine.txt" in dict(ours["files"]) and theirs["files"] == []
        values["notify"] = "env:HOME"
        page = web.post(f"{visitor.root}{FORM}/check", data=values, headers=JSON, timeout=60).json()
        assert page["field"] == "notify" and "for the portal's owner; enter the address" in page["problem"]
        assert "template=mine" in visitor.get(HERE).text
    finally:
        (cluster.project / "invoke.yaml").unlink()


def test_jobs_of_other_users_do_not_have_the_owners_hooks(tmp_path, monkeypatch):
    mine = Settings(notify=('{"post":"https://ntfy.sh/x"}',))
    monkeypatch.setattr(submit_form, "load_settings", lambda overrides: mine)
    for only, kept in (("", mine.notify), ("local", ())):
        request = PortalRequest(Session(lambda alias: pytest.fail("unused"), only), tmp_path, "", {}, {})
        assert submit_form._settings(request, JobOptions()).notify == kept


# Uploads


@pytest.fixture
def make_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    session = Session(lambda alias: pytest.fail("no cluster is asked"))

    def make(draft: str = "draft", session: Session = session) -> Upload:
        return Upload(PortalRequest(session, tmp_path, "", {}, {}, form={"draft": draft}))

    yield make
    uploads._new_root.cache_clear()


def test_uploads_are_private_and_each_session_has_its_own(make_upload):
    mine = make_upload()
    mine.add([("a/b/c", io.BytesIO(b"1"))])
    other = make_upload(session=Session(lambda alias: pytest.fail("no cluster is asked")))
    assert mine.names == ("a",) and other.names == () and make_upload("else").names == ()
    folders = [mine.folder.parent, mine.folder, mine.folder / "a", mine.folder / "a" / "b"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_uploads_are_limited_in_all(make_upload, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_BYTES", 3 << 20)
    monkeypatch.setattr(uploads, "MOST_FILES", 3)
    mine = make_upload()
    mine.add([("a", io.BytesIO(bytes(2 << 20)))])
    with pytest.raises(PaiError, match="at most 3 MB"):
        mine.add([("b", io.BytesIO(bytes(1 << 20))), ("c", io.BytesIO(b"1"))])
    assert sum(entry.size for entry in mine.entries()) == 3 << 20
    with pytest.raises(PaiError, match="at most 3 files"):
        mine.add([("d", io.BytesIO()), ("e", io.BytesIO())])


def test_a_file_is_replaced_and_a_folder_in_its_place_is_refused(make_upload):
    mine = make_upload()
    mine.add([("a", io.BytesIO(b"1")), ("a", io.BytesIO(b"22"))])
    assert (mine.folder / "a").read_bytes() == b"22"
    for name in ("a/b", "a/b/c"):
        with pytest.raises(PaiError, match=r"cannot keep '[bc]' beside the other files"):
            mine.add([(name, io.BytesIO(b"1"))])
    assert mine.names == ("a",)


def test_uploads_of_an_earlier_process_are_removed(make_upload):
    make_upload().add([("a", io.BytesIO(b"1"))])
    uploads._new_root.cache_clear()
    assert make_upload().names == ()


# In a browser


def wait_for(gate: Path) -> str:
    return f"until test -e {shlex.quote(str(gate))}; do sleep 0.05; done"


def test_a_newcomer_pastes_a_job_and_reads_its_log(cluster, tab, tmp_path):
    from playwright.sync_api import expect

    role = {**GUIDE["taskRoles"][0], "command": f"{wait_for(tmp_path / 'second')}; echo hello from the guide"}
    text = json.dumps({**GUIDE, "taskRoles": [role]}, indent=2)
    cluster.ok("job.sub", wait_for(tmp_path / "first"), "--cpu", "1000", "--job-name", "in-the-way")
    until(lambda: cluster.ok("job.status", "in-the-way", "-o", "json").json()["state"] == "RUNNING")
    tab.goto(f"{tab.root}/submit.html")
    tab.get_by_role("link", name="Job file").click()
    expect(tab.locator("#verdict")).to_have_text("Valid v2 job")
    area = tab.get_by_label("v2 YAML or v1 JSON")
    area.press("Control+a")
    tab.keyboard.insert_text(text.replace('"cpuNumber": 1', '"cpuNumber": "one"'))
    line = text.split("\n").index('      "cpuNumber": 1,') + 1
    expect(tab.locator("#verdict")).to_have_text("1 problem")
    expect(tab.locator("#announce")).to_contain_text("must be a number")
    expect(tab.locator(".editor-line.bad")).to_have_text(
        re.compile(r'^ *"cpuNumber": "one",must be a number$')
    )
    expect(tab.locator(".editor-gutter .bad")).to_have_text(str(line))
    tab.get_by_role("button", name=f"Line {line}: taskRoles[0].cpuNumber").click()
    tab.keyboard.insert_text('      "cpuNumber": 1,')
    expect(tab.locator("#verdict")).to_have_text("Valid v1 job")
    expect(tab.locator("#notes")).to_contain_text("This is a v1 job")
    assert area.input_value() == text
    tab.get_by_role("button", name="Submit").dblclick()
    tab.wait_for_url(re.compile("~hello-world$"))
    state = tab.locator(".heading .state")
    expect(state).to_have_text("Waiting")
    (tmp_path / "first").touch()
    expect(state).to_have_text("Running")
    (tmp_path / "second").touch()
    expect(state).to_have_text("Succeeded")
    tab.get_by_role("link", name="Logs").click()
    expect(tab.locator("#log")).to_contain_text("hello from the guide")


COMPLETE = """async ([text, at]) => {
  const folder = document.querySelector("script[type=module]").src.replace(/[^/]+$/, "");
  const { placeAt, suggestions } = await import(folder + "complete.js");
  const schemas = await (await fetch("/c/local/submit/file/schema")).json();
  const place = placeAt(text, at);
  const found = place && suggestions(text.includes("jobName") ? schemas.v1 : schemas.v2, place);
  return found?.map((one) => one.name);
}"""
ROLE = "taskRoles:\n  main:\n    "


def test_completions_fit_their_place(tab):
    tab.goto(f"{tab.root}{HERE}")

    def names(text: str) -> Any:
        return tab.evaluate(COMPLETE, [text.replace("^", ""), text.index("^")])

    of_role = names(f"{ROLE}^")
    assert {"instances", "dockerImage", "commands"} <= set(of_role) and "type" not in of_role
    left = set(names(f"{ROLE}instances: 1\n    ^\n    dockerImage: x\nextras:\n  y: 1"))
    assert left == set(of_role) - {"instances", "dockerImage"}
    assert names(f"{ROLE}re^") == ["resourcePerInstance"]
    assert "extras" in names(f"{ROLE}instances: 1\n^") and "type" in names("^")
    assert names("prerequisites:\n- name: x\n  ty^") == ["type"]
    assert names("prerequisites:\n  - ty^") == ["type"]
    assert names("prerequisites:\n- type: data\n  ur^") == ["uri"] and names("prerequisites:\n- ur^") == []
    assert names("prerequisites:\n- type: d^") == ["data", "dockerimage"]
    assert names('"type": j^') == ["job"] and names("type: job^") == []
    for text in (f"{ROLE}commands:\n      - |\n        ty^", "# ty^", "name: |\n  ty^", 'name: "a ty^"'):
        assert not names(text), text
    assert names('{"taskRoles": {"main": {"gpu": [{}], "res^"}}}') == ["resourcePerInstance"]
    assert names('{"type": "j^"') == ["job"]
    assert names('{"jobName": "x", "taskRoles": [{"name": "a", "cp^"') == ["cpuNumber"]
    assert "name" not in names('{"jobName": "x", "taskRoles": [{^, "name": "a"}]}')


def test_the_editor_completes_by_keyboard(tab):
    from playwright.sync_api import expect

    held = []
    tab.route("**/schema", lambda route: held.append(route))
    with tab.expect_request("**/schema"):
        tab.goto(f"{tab.root}{HERE}")
    expect(tab.locator("#verdict")).to_have_text("Valid v2 job")
    area, options = tab.locator("#text"), tab.get_by_role("option")
    area.press("Control+a")
    tab.keyboard.insert_text("protocolVersion: 2\n")
    tab.keyboard.type("prereq")
    held[0].continue_()  # the names may arrive after the first letters
    expect(options).to_have_text(re.compile("^prerequisitesWhat the job needs"))
    assert area.get_attribute("aria-activedescendant") == options.first.get_attribute("id")
    area.press("Enter")
    tab.keyboard.type("ty")
    area.press("Enter")
    expect(options).to_have_count(4)  # the kinds of prerequisites, without being asked for
    area.press("ArrowUp")
    assert options.last.get_attribute("aria-selected") == "true"
    area.press("Tab")
    area.press("Enter")
    area.press("Control+ ")
    names = [text.split("T")[0] for text in options.all_inner_texts()]
    assert "type" not in names and any(name.startswith("uri") for name in names)
    area.press("Escape")
    expect(options).to_have_count(0)
    tab.keyboard.type("name: image")
    area.press("Shift+Home")
    area.press("Shift+Tab")
    assert area.input_value() == ("protocolVersion: 2\nprerequisites:\n  - type: dockerimage\n  name: image")
    area.press("Tab")
    area.press("Control+z")
    assert area.input_value().endswith("\n  name: image")
    area.press("Escape")
    area.press("Tab")
    assert not area.evaluate("one => one === document.activeElement")
    area.press("Control+a")
    tab.keyboard.insert_text('{"jobName": "x", ')
    tab.keyboard.type('"task')
    expect(options).to_have_text("taskRoleswhat the job runs")
    area.press("Enter")
    assert area.input_value() == '{"jobName": "x", "taskRoles": '


def test_the_form_sends_chosen_files_and_copies_its_texts(cluster, tab, tmp_path):
    from playwright.sync_api import expect

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("print('from the form')\n")
    (tmp_path / "notes.txt").write_text("x")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.goto(f"{tab.root}{HERE}")
    tab.get_by_role("link", name="Form").click()
    tab.wait_for_url(re.compile("/submit$"))  # and until its script can see the files
    tab.locator("input[data-files]").nth(0).set_input_files(tmp_path / "notes.txt")
    tab.locator("input[data-files]").nth(1).set_input_files(tmp_path / "code")
    expect(tab.locator("[data-uploaded] li")).to_have_count(2)
    tab.get_by_role("button", name="Remove notes.txt").click()
    expect(tab.locator("[data-uploaded] li")).to_have_count(1)
    expect(tab.locator("[data-uploaded] li")).to_have_text(re.compile("^code/ 1 file"))
    tab.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["dropped"], "dropped.txt"));
          document.querySelector("#sources").dispatchEvent(
            new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }"""
    )
    expect(tab.locator("[data-uploaded] li")).to_have_count(2)
    tab.get_by_role("textbox", name="Command").fill("python3 code/main.py; cat dropped.txt")
    tab.get_by_label("Job name").fill("by-form")
    expected = (
        "pai job.sub 'python3 code/main.py; cat dropped.txt' \\\n"
        "  --job-name by-form \\\n  --sources code \\\n  --sources dropped.txt"
    )
    expect(tab.locator("#same-command")).to_have_text(expected)
    tab.get_by_role("button", name="Copy").first.click()
    expect(tab.locator("#announce")).to_have_text("Copied")
    assert tab.evaluate("navigator.clipboard.readText()") == expected
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("dialog")).to_contain_text("Nothing was sent")
    expect(tab.locator("[data-preview-plan]")).to_contain_text("code/main.py")
    tab.set_viewport_size({"width": 390, "height": 800})
    names = "nodes => nodes.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    assert tab.locator("[data-preview-plan] dt").evaluate_all(names) == []  # none reaches into the values
    tab.get_by_role("button", name="Close").click()
    tab.get_by_label("Memory per task").fill("much")
    expect(tab.locator("#form-problem")).to_contain_text("“Memory per task” needs megabytes")
    expect(tab.get_by_label("Memory per task")).to_have_attribute("aria-invalid", "true")
    with tab.expect_console_message(lambda line: "status of 400" in line.text):  # the browser's report
        tab.get_by_role("button", name="Submit").click()
    tab.problems.clear()
    expect(tab.locator("#trouble")).to_contain_text("Not submitted")
    assert tab.evaluate("document.activeElement.name") == "memoryMB"
    tab.get_by_label("Memory per task").fill("512")
    tab.get_by_text("More", exact=True).click()
    tab.get_by_label("Retries").fill("many")
    expect(tab.get_by_label("Retries")).to_have_attribute("aria-invalid", "true")
    tab.get_by_text("More", exact=True).click()
    with tab.expect_console_message(lambda line: "status of 400" in line.text):
        tab.get_by_role("button", name="Submit").click()
    tab.problems.clear()
    expect(tab.get_by_label("Retries")).to_be_focused()  # it is not hidden
    tab.get_by_label("Retries").fill("")
    tab.get_by_label("GPUs per task").fill("abc")  # answered by our own sentence, at the field
    problem = tab.locator(".field:has([name=gpu]) + #form-problem")
    expect(problem).to_contain_text("“GPUs per task” needs a whole number, got 'abc'")
    tab.get_by_label("GPUs per task").fill("9999")
    expect(tab.locator("#form-problem")).to_contain_text("the job asks for 9999")
    tab.get_by_label("GPUs per task").fill("")
    expect(tab.get_by_label("Memory per task")).not_to_have_attribute("aria-invalid", "true")
    tab.get_by_role("button", name="Submit").dblclick()
    tab.wait_for_url(re.compile("~by-form$"))
    expect(tab.locator(".heading .state")).to_have_text("Succeeded")
    assert cluster.ok("job.logs", "by-form").out == "from the form\ndropped"
