"""The pages of one job: why it failed, its attempts, its document, running it again, comparing it."""

import contextlib
import json
import re
import sqlite3
from html import unescape

import pytest
import yaml

from openpai_tasks.portal.pages.job_document import as_text
from openpai_tasks.server.state.state import now
from tests.attacks import ALL
from tests.portal.conftest import Visitor
from tests.scripted import Reply
from tests.server.workshop import until

HOSTILE = "<img src=x onerror=alert(1)>\"'`"
TWO_TASKS = {
    "protocolVersion": 2,
    "name": "fails",
    "type": "job",
    "jobRetryCount": 1,
    "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "python:3"}],
    "taskRoles": {
        "main": {
            "instances": 2,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0, "ports": {"http": 1}},
            "commands": ["echo attempt $FC_FRAMEWORK_ATTEMPT_ID; exit 3"],
        }
    },
}


@pytest.fixture(scope="module")
def failed(cluster):
    """A job of two tasks that failed twice."""
    (cluster.project / "fails.json").write_text(json.dumps(TWO_TASKS))
    cluster.ok("job.submit", "fails.json")
    cluster.inv("job.wait", "fails")


def text(page):
    """Return what a page says, without its elements."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_a_waiting_job_is_moved_to_the_front(visitor, cluster):
    for name in ("greedy", "waits-1", "waits-2"):
        cluster.ok("job.sub", "sleep 600", "-j", name, "--cpu", "999", "--memoryMB", "64")
    until(lambda: cluster.ok("job.status", "greedy", "-o", "json").json()["state"] == "RUNNING")
    page = visitor.get("/c/local/jobs/waits-2").text
    assert "Move to the front" in page and "place 2 of 2 in virtual cluster default" in text(page)
    assert visitor.post("/c/local/jobs/waits-2/move").ok
    assert "place 1 of 2 in virtual cluster default" in text(visitor.get("/c/local/jobs/waits-2").text)
    assert "Move to the front" not in visitor.get("/c/local/jobs/greedy").text
    cluster.ok("job.stop", "-y", "greedy", "waits-1", "waits-2")


def test_a_failure_is_explained_by_the_exit_code_of_the_command(visitor, failed):
    page = visitor.get("/c/local/jobs/fails").text
    assert "the command of main-" in page and "ended with exit code 3" in page
    assert "<code>pai job.resubmit fails</code>" in page
    shown = text(page)
    platform = r"platform: 255 \(PAIRuntimeUnknownFailed\): the command failed"
    assert re.search(rf"Exit code 3 {platform}", shown)
    assert re.search(rf"main-\d Failed 127.0.0.1 [^.]*http \d+ [^.]*3 {platform}", shown)
    assert (
        shown.index("Submitted") < shown.index("Retrying attempt 0 failed") < shown.index("the job has ended")
    )
    assert "not retried: no retries are left (<code>" in page and "`" not in shown
    assert "<title>fails: logs ·" in visitor.get("/c/local/jobs/fails/logs").text
    assert shown.rindex("TaskFailed") < shown.index("the job has ended")


def test_the_page_names_the_port_of_a_program_and_its_environment(cluster, visitor):
    cluster.ok("job.sub", "true", "-j", "listens", "--ports", "web=8080", VIRTUAL_ENV="/opt/some-venv")
    cluster.ok("job.wait", "listens")
    shown = text(visitor.get("/c/local/jobs/listens").text)
    assert re.search(r"web \d+ listens on 8080", shown)
    assert "Python /opt/some-venv" in shown


def test_the_page_warns_of_idle_gpus_and_counts_runs_after_the_time_limit(cluster, visitor):
    """The server has recorded both."""
    cluster.ok("job.sub", "sleep 600", "-j", "idle")
    until(lambda: cluster.ok("job.status", "idle", "-o", "json").json()["state"] == "RUNNING")
    with contextlib.closing(sqlite3.connect(cluster.home / "local/cluster.db", timeout=60)) as database:
        change = "UPDATE jobs SET requeues = 2, gpus_idle_since = ? WHERE name = 'idle'"
        database.execute(change, [now() - 3660000])
        database.commit()
    shown = text(visitor.get("/c/local/jobs/idle").text)
    assert "Warning: its GPUs have been idle for 1h 01m" in shown and "2 after the time limit" in shown
    cluster.ok("job.stop", "idle", "--yes")


def test_earlier_attempts_can_be_seen(visitor, failed):
    latest = visitor.get("/c/local/jobs/fails").text
    assert 'href="/c/local/jobs/fails?attempt=0"' in latest
    first = visitor.get("/c/local/jobs/fails?attempt=0").text
    assert "This is attempt 0" in first and "data-live" not in first
    assert "/c/local/jobs/fails/logs?role=main&amp;index=0&amp;attempt=0" in first
    none = visitor.get("/c/local/jobs/fails?attempt=7")
    assert none.status_code == 400 and "has attempts 0 to 1" in none.text
    assert "“Attempt” 7: job" in none.text


def test_commands_to_copy_name_the_job(visitor, failed):
    page = visitor.get("/c/local/jobs/fails/logs").text
    assert 'data-copy="pai job.logs fails --follow"' in page and "container.ssh" not in page
    gone = visitor.get("/c/local/jobs/fails/ssh-command", headers={"accept": "application/json"})
    assert gone.status_code == 502 and "its containers are gone" in gone.json()["error"]


def test_documents_are_shown_without_secrets(cluster, visitor):
    cluster.ok("job.sub", "true", "-j", "secretive", "--secret", "TOKEN", TOKEN="s3cr3t-value")
    cluster.ok("job.wait", "secretive")
    page = visitor.get("/c/local/jobs/secretive/document")
    saved = visitor.get("/c/local/jobs/secretive/document.txt")
    assert "s3cr3t-value" not in page.text + saved.text and "******" in page.text
    assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''secretive.yaml"
    assert yaml.safe_load(saved.text)["name"] == "secretive"
    again = visitor.get("/c/local/jobs/secretive/resubmit/document").text
    assert 'type="password" name="secret.TOKEN"' in again and "s3cr3t-value" not in again
    document = yaml.safe_dump(yaml.safe_load(saved.text))
    path = "/c/local/jobs/secretive/resubmit/document"
    missing = visitor.post(path, {"document": document, "name": "again"})
    assert missing.status_code == 400 and "type the secret" in missing.text
    form = {"document": document, "name": "again", "secret.TOKEN": "s3cr3t-value"}
    preview = visitor.post(path, {**form, "preview": "1"}).text
    assert "nothing was sent yet" in preview and "s3cr3t-value" not in preview
    sent = visitor.post(path, form)
    assert sent.url.endswith("~again")
    cluster.ok("job.wait", "again")


def test_documents_of_version_1_stay_json():
    document = {"jobName": "old", "taskRoles": [{"name": "main", "command": "true"}]}
    text_of_v1, kind = as_text(document)
    assert json.loads(text_of_v1) == document and kind == "JSON"


def test_passwords_of_registries_are_masked_and_need_not_be_typed_again(cluster, visitor, failed):
    auth = {"username": "me", "password": "r3gistry", "registryuri": "docker.example"}
    image = {**TWO_TASKS["prerequisites"][0], "auth": auth}
    document = {**TWO_TASKS, "name": "private", "prerequisites": [image]}
    (cluster.project / "private.json").write_text(json.dumps(document))
    cluster.ok("job.submit", "private.json")
    pages = [
        visitor.get(f"/c/local/jobs/private/{tab}").text
        for tab in ("document", "resubmit/document", "provenance")
    ]
    assert not any("r3gistry" in page for page in pages) and 'type="password"' not in pages[1]
    yaml_text = visitor.get("/c/local/jobs/private/document.txt").text
    sent = visitor.post(
        "/c/local/jobs/private/resubmit/document", {"document": yaml_text, "name": "private-2"}
    )
    assert sent.url.endswith("~private-2")
    assert "r3gistry" in cluster.ok("job.config", "private-2").out
    assert "r3gistry" not in visitor.get("/c/local/jobs/private/compare?with=fails").text


def test_a_job_is_submitted_again_with_an_edited_document(cluster, visitor):
    (cluster.project / "say.py").write_text("import sys; print('hears', *sys.argv[1:])")
    cluster.ok("job.sub", "python3 say.py one", "--sources", "say.py", "-j", "talks")
    cluster.ok("job.wait", "talks")
    document = visitor.get("/c/local/jobs/talks/document.txt").text.replace("say.py one", "say.py two")
    document = document.replace("name: talks", "name: talks-again")
    sent = visitor.post("/c/local/jobs/talks/resubmit/document", {"document": document})
    assert sent.status_code == 200 and sent.url.endswith("~talks-again")
    cluster.ok("job.wait", "talks-again")
    assert "hears two" in cluster.ok("job.logs", "talks-again").out  # with its sources
    provenance = text(visitor.get("/c/local/jobs/talks-again/provenance").text)
    assert "Repeats talks" in provenance and "say.py" in provenance


def test_the_form_offers_to_resume_a_job_with_checkpoints_or_to_start_fresh(cluster, visitor, failed):
    (cluster.project / "saves.py").write_text(
        "from openpai_tasks import runtime; ckpt = runtime.checkpoint()\n"
        "print('resumed' if ckpt.latest() else 'fresh'); ckpt.save(lambda path: open(path, 'w').close())\n"
    )
    cluster.ok("job.sub", "python3 saves.py", "--sources", "saves.py", "-j", "saves", "-f")
    path = "/c/local/jobs/saves/resubmit/document"
    assert "Resume from checkpoint 1 (state) of job saves, saved just now" in text(visitor.get(path).text)
    document = visitor.get("/c/local/jobs/saves/document.txt").text
    for start, name in {"resume": "resumed", "fresh": "fresh"}.items():
        assert visitor.post(path, {"document": document, "name": f"saves-{name}", "start": start}).ok
        assert cluster.ok("job.logs", f"saves-{name}", "--follow").out == f"{name}\n"
    assert "Start from the beginning" not in visitor.get("/c/local/jobs/fails/resubmit/document").text


def test_jobs_that_wait_for_each_other_are_linked_and_submitted_again_together(cluster, visitor):
    gate = cluster.project / "gate"
    cluster.ok("job.sub", f"until test -e '{gate}'; do sleep 0.05; done; exit 1", "-j", "leads")
    form = {"command": "true", "job_name": "follows", "after": "leads", "draft": "draft-of-follows"}
    checked = visitor.post("/c/local/submit/check", form, headers={"accept": "application/json"}).json()
    assert "--after leads" in checked["command"] and "after=['leads']" in checked["python"]
    page = visitor.post("/c/local/submit", form).text
    assert re.search(r"After leads \((RUNNING|WAITING)\)", text(page)) and "waits for leads (" in page
    assert re.search(r'href="/c/local/jobs/[^"/]*~leads"', page)
    assert 'name="after" value="leads"' in visitor.get("/c/local/jobs/follows/resubmit").text
    gate.touch()
    assert cluster.inv("job.wait", "follows").code == 143
    assert "job 'leads' had to succeed first, and is FAILED" in text(
        visitor.get("/c/local/jobs/follows").text
    )
    assert "Before follows (STOPPED)" in text(visitor.get("/c/local/jobs/leads").text)
    for path in ("resubmit", "resubmit/document"):
        assert "to wait for the new job: follows" in text(visitor.get(f"/c/local/jobs/leads/{path}").text)
    again = {"command": "true", "job_name": "leads-2", "with_dependents": "1", "draft": "draft-of-leads-2"}
    assert visitor.post("/c/local/jobs/leads/resubmit", again).url.endswith("~leads-2")
    (second,) = cluster.ok("job.status", "leads-2", "-o", "json").json()["dependents"]
    cluster.ok("job.wait", second["job"])


def test_a_double_click_submits_a_job_again_once(cluster, visitor, failed):
    page = visitor.get("/c/local/jobs/fails/resubmit/document").text
    (draft,) = re.findall(r'name="draft" value="([^"]+)"', page)
    document = visitor.get("/c/local/jobs/fails/document.txt").text.replace(
        "name: fails", "name: clicked-$$$$"
    )

    def click(draft: str) -> str:
        return visitor.post(
            "/c/local/jobs/fails/resubmit/document", {"document": document, "draft": draft}
        ).url

    assert click(draft) == click(draft) != click("another page")
    assert cluster.ok("job.list", "-o", "json").out.count('"clicked-') == 2


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("name: [", "line 1"),
        ("[]", "mapping"),
        ("taskRoles: 7", "has the wrong type"),
        ("protocolVersion: 2\nname: x\ntaskRoles: {}", "taskRoles"),
    ],
)
def test_mistakes_in_an_edited_document_are_named(visitor, failed, document, problem):
    refused = visitor.post("/c/local/jobs/fails/resubmit/document", {"document": document})
    assert refused.status_code == 400 and problem in text(refused.text)
    assert unescape(refused.text).count(document)  # what was typed stays


def test_a_job_is_compared_with_another(cluster, visitor):
    for name in ("left", "right"):
        cluster.ok("job.sub", f"echo {name}", "-j", name)
    assert 'href="/c/local/compare?job=left&amp;job=right"' in visitor.get("/c/local/compare?job=left").text
    page = visitor.get("/c/local/jobs/left/compare?with=right").text
    assert (
        '<span class="removed">-    - echo left' in page and '<span class="added">+    - echo right' in page
    )
    assert visitor.get("/c/local/jobs/left/compare?with=nothing").status_code == 404


@pytest.fixture
def lab(shell, serve):
    """A visitor of a portal whose cluster `lab` sends the given answers about jobs."""

    def start(answers):
        api = "/rest-server/api/v2"
        known = {f"GET {api}/jobs": [], f"GET {api}/virtual-clusters": {}, f"GET {api}/info": {}}
        server = serve(known | {f"GET {api}{path}": answer for path, answer in answers.items()})
        record = {"cluster_alias": "lab", "pai_uri": server.uri, "user": "me", "generation": "1.8"}
        shell.home.mkdir(exist_ok=True)
        (shell.home / "clusters.yaml").write_text(yaml.safe_dump([record]))
        shell.environment |= {"OPENPAI_TOKEN": "t0ken", "INVOKE_OPENPAI_CLUSTER_ALIAS": "lab"}
        return Visitor(shell.pai("cluster.portal", "--no-browser").out.strip())

    yield start
    shell.pai("cluster.portal", "--stop")


def test_nothing_from_a_cluster_becomes_part_of_a_page(lab):
    """Each field of a job is hostile; the pages still show it, as text."""
    bad = HOSTILE + ALL
    status = {"username": bad, "state": "FAILED", "virtualCluster": bad, "appExitCode": 255, "retries": 2}
    status |= {"appExitDiagnostics": bad, "appExitTriggerMessage": bad, "submissionTime": 1, "attemptId": 2}
    task = {"taskState": bad, "containerIp": bad, "containerPorts": {bad: bad}, "containerExitCode": 255}
    roles = {bad: {"taskStatuses": [{**task, "containerExitDiagnostics": bad, "taskIndex": 0}]}}
    event = {"type": "Warning", "reason": bad, "message": bad, "lastTimestamp": bad, "count": 2}
    stamp = {"version": bad, "commit": bad, "sourceHash": bad, "clonedFrom": bad}
    extras = {"openpaiSweep": {"name": bad, "point": {bad: bad}}, "openpaiTasks": stamp}
    document = {**TWO_TASKS, "name": bad, "description": bad, "extras": extras}
    job = "/jobs/me~x"
    visitor = lab(
        {
            job: {"jobStatus": status, "taskRoles": roles, "tags": [bad]},
            f"{job}/events": {"data": [event]},
            f"{job}/config": Reply(json.dumps(document), headers=(("Content-Type", "text/yaml"),)),
        }
    )
    for tab in (
        "",
        "/logs",
        "/document",
        "/provenance",
        "/resubmit",
        "/resubmit/document",
        "/compare",
        "/records",
    ):
        page = visitor.get(f"/c/lab/jobs/me~x{tab}")
        assert page.status_code == 200, (tab, text(page.text))
        assert "<img src=x" not in page.text
        assert "&lt;img src=x" in page.text or tab in ("/compare", "/records")  # these show little of it


BOOM = """\
import sys


def main(rate):
    print("rate", rate)
    return 1 / rate


main(float(sys.argv[1]))
"""


def test_a_failure_is_fixed_by_the_form_of_its_page(cluster, tab):
    """The page and `job.why` name the cause; the job is submitted again by the form, with its files."""
    from playwright.sync_api import expect

    (cluster.project / "boom.py").write_text(BOOM)
    how = ("--sources", "boom.py", "--env", "NOTE=a b", "--max-time", "10m", "--tag", "first")
    how += ("--requeue-on-timeout", "2")
    cluster.ok("job.sub", "python3 boom.py 0", *how, "-j", "boom")
    cluster.inv("job.wait", "boom")
    cause = "ZeroDivisionError: float division by zero (boom.py, line 6)"
    why = cluster.ok("job.why", "boom").out
    assert why.startswith(f"boom failed: {cause}\n") and why.splitlines()[-1].startswith("exit code 1; ")
    tab.goto(f"{tab.root}/c/local/jobs/boom")
    assert tab.title().startswith("boom ")
    expect(tab.locator(".cause")).to_have_text(cause)
    expect(tab.locator(".command")).to_have_text("python3 boom.py 0")
    expect(tab.locator("#job-log")).to_contain_text("rate 0.0")
    tab.get_by_role("link", name="Resubmit").click()
    command = tab.get_by_role("textbox", name="Command")
    expect(command).to_have_value("python3 boom.py 0")
    expect(tab.locator("[name=env_value]")).to_have_value("a b")
    expect(tab.get_by_label("Time limit of a task")).to_have_value("600s")
    expect(tab.get_by_label("Runs after the time limit")).to_have_value("2")
    expect(tab.get_by_label("Tags")).to_have_value("first")
    tab.get_by_role("link", name="Document").click()
    expect(tab.get_by_label("Document")).to_have_value(
        re.compile("time limit of 600 s, requeued up to 2 times, 60 s grace\n *python3 boom.py 0\n")
    )
    tab.get_by_role("link", name="Form").click()
    command.fill("python3 boom.py 4; echo $NOTE > $PAI_OUTPUT_DIR/note.txt")
    tab.get_by_label("Job name").fill("fixed")
    tab.get_by_role("button", name="Submit").click()
    tab.wait_for_url(re.compile("~fixed$"))
    expect(tab.locator(".heading .state")).to_have_text("Succeeded")
    expect(tab.locator("#job-log")).to_contain_text("rate 4.0")
    expect(tab.locator("#job-outputs")).to_contain_text("note.txt 4 B")
    assert re.match(r"fixed succeeded in [\d.]+ s; 1 output file\n", cluster.ok("job.why", "fixed").out)
    tab.get_by_role("link", name="Provenance").click()
    expect(tab.locator(".facts").first).to_contain_text("Repeats")


def test_what_the_form_cannot_express_opens_the_document(visitor, cluster):
    parameters = {**TWO_TASKS, "name": "odd", "parameters": {"x": 1}, "jobRetryCount": 0}
    (cluster.project / "odd.json").write_text(json.dumps(parameters))
    cluster.ok("job.submit", "odd.json")
    page = visitor.get("/c/local/jobs/odd/resubmit")
    assert page.url.endswith("/resubmit/document") and "The form cannot express parameters:" in text(
        page.text
    )


def test_pages_are_used_by_keyboard_alone(cluster, tab, failed):
    from playwright.sync_api import expect

    cluster.ok("job.sub", "true", "-j", "keys-1")
    cluster.ok("job.wait", "keys-1")
    tab.goto(f"{tab.root}/c/local/jobs")
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog", name="Keys")).to_contain_text("Next row")
    tab.keyboard.press("j")  # not while the help is open
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("dialog")).to_have_count(0)
    tab.keyboard.press("/")
    tab.keyboard.type("fails j?k")
    assert tab.evaluate("document.activeElement.value") == "fails j?k"
    tab.keyboard.press("Control+a")
    tab.keyboard.type("keys-1")
    tab.keyboard.press("Enter")
    expect(tab.locator(".grid tbody th")).to_have_text(["keys-1"])  # not the one row of "fails"
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    tab.keyboard.press("j")
    assert tab.evaluate("document.activeElement.textContent") == "keys-1"
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("keys-1$"))
    expect(tab.locator(".command")).to_have_text("true")


def test_keys_work_at_once_after_the_help_is_closed(tab):
    tab.goto(f"{tab.root}/c/local/jobs")
    focused = """() => {
      const event = (key) => new KeyboardEvent("keydown", {key, bubbles: true});
      const press = (key) => document.activeElement.dispatchEvent(event(key));
      const dialog = document.getElementById("shortcuts");
      press("?");
      press("/");
      const during = document.activeElement.closest("dialog") === dialog;
      dialog.close();
      press("/");
      return [during, document.activeElement.type];
    }"""
    assert tab.evaluate(focused) == [True, "search"]


def test_a_job_without_metrics_and_a_job_of_the_editor_are_described_as_such(cluster, visitor, failed):
    assert "No metrics were recorded" in visitor.get("/c/local/jobs/fails/metrics").text
    edited = json.dumps({**TWO_TASKS, "name": "edited", "jobRetryCount": 0})
    assert visitor.post("/c/local/submit/file", {"text": edited, "draft": "edited"}).url.endswith("~edited")
    shown = text(visitor.get("/c/local/jobs/edited/provenance").text)
    assert "not submitted by" not in shown and "Recorded in this project" in shown


def test_errors_are_titled_by_what_went_wrong(visitor):
    titles = {
        "/c/local/jobs/nope": "No such job",
        "/c/local/nowhere": "No such page",
        "/c/nowhere/jobs": "No cluster named &#39;nowhere&#39;",
        "/c/local/sweeps/nope": "No such sweep",
    }
    for path, title in titles.items():
        page = visitor.get(path)
        assert page.status_code >= 400 and f"<h1>{title}</h1>" in page.text, (path, text(page.text))
        assert f"<title>{title} " in page.text


def test_a_page_changes_without_losing_what_is_open(cluster, tab, tmp_path):
    from playwright.sync_api import expect

    gate = tmp_path / "go"
    cluster.ok("job.sub", f"until test -e {gate}; do sleep 0.1; done", "-j", "waits")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.goto(f"{tab.root}/c/local/jobs/waits")
    tab.wait_for_selector(".heading .state-running")
    assert tab.locator("button.danger").count() == 1
    tab.click("summary:has-text('Commands')")
    copy = tab.locator("[data-copy='pai job.logs waits --follow']")
    copy.click()
    expect(tab.locator("#announce")).to_have_text("Copied")
    assert tab.evaluate("() => navigator.clipboard.readText()") == "pai job.logs waits --follow"
    plain = tab.locator("[data-key=ssh] code")
    expect(plain).to_contain_text("ssh ")  # without a click
    copy.focus()
    gate.touch()
    tab.wait_for_selector(".heading .state-succeeded")
    tab.wait_for_selector("#job-tasks :text('the job has ended')")
    assert tab.locator("details.menu[open]").count() == 1 and tab.locator("button.danger").count() == 0
    assert copy.evaluate("node => node === document.activeElement")
    tab.keyboard.press("Escape")
    assert tab.locator("details.menu[open]").count() == 0
    assert tab.evaluate("() => document.activeElement.textContent") == "Commands"
