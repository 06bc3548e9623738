"""Jobs on PaddleCloud, over the embedded server: killed and refused ones, lost answers, parameter servers."""

import json
import threading

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.backends.paddlecloud import packages
from openpai_tasks.backends.paddlecloud.client import TrainingRequest
from openpai_tasks.backends.paddlecloud.job_records import RECORDS
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.backends.contract import JOB, embedded_paddlecloud
from tests.server.conftest import wait_for


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    with (
        embedded_paddlecloud(tmp_path_factory.mktemp("server")) as served,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OPENPAI_HOME", str(tmp_path_factory.mktemp("home")))
        driver = kinds.driver("paddlecloud")
        cluster = Cluster("lab", served.uri, served.user, kind="paddlecloud")
        known = Credentials(password=served.password)
        yield driver.connect(*driver.sign_in(cluster, known, str, str, 60.0), timeout=60.0)


def submit(backend, name, command, **changes):
    text = JOB.format(name=name, command=json.dumps(command))
    for old, new in changes.get("replace", {}).items():
        text = text.replace(old, new)
    backend.submit(text + changes.get("more", ""))
    return f"{backend.user}~{name}"


def ended(backend, key):
    return wait_for(lambda: (job := backend.job(key)).final and job)


def output(backend, job, index=0):
    return b"".join(backend.open_log(job, job.tasks[index], "all").read()).decode()


def records(backend, name):
    return [file for file in backend.files(f"{backend.home}/{RECORDS}") if file.startswith(f"{name}~")]


def test_a_killed_job_is_stopped_and_keeps_its_output(backend):
    key = submit(backend, "killed", "echo begun; sleep 300")
    wait_for(lambda: backend.job(key).state == "RUNNING" and output(backend, backend.job(key)))
    backend.stop_job(key)
    job = ended(backend, key)
    assert (job.state, job.exit_status, [task.label for task in job.tasks]) == ("STOPPED", 143, ["main-0"])
    assert output(backend, job) == "begun\n"
    assert [one.state for one in backend.jobs(keyword="killed")] == ["STOPPED"]
    with pytest.raises(Conflict):
        submit(backend, "killed", "true")


def test_a_killed_job_is_forgotten_with_its_package(backend):
    key = submit(backend, "removed", "sleep 300")
    backend.stop_job(key)
    ended(backend, key)
    body = {"method": "rm", "r": True, "path": [f"{backend.home}/jobs/removed"]}
    backend._object("DELETE", "/api/v1/pfs/files", json=body)
    with pytest.raises(NotFound):
        backend.job(key)
    assert backend.jobs(keyword="removed") == []
    assert ended(backend, submit(backend, "removed", "true")).state == "SUCCEEDED"


def test_an_ended_job_is_not_killed(backend):
    key = submit(backend, "ended", "true")
    ended(backend, key)
    backend.stop_job(key)
    assert backend.job(key).state == "SUCCEEDED"


def test_a_job_whose_submission_got_no_answer_is_found_with_its_document(backend):
    document = packages.check(JOB.format(name="unanswered", command="sleep 300"), "", backend.namespace)
    made = packages.package(document, backend.user, "m1")
    backend._records.upload(made, "m1")
    backend.submit_training(made.request)
    key = f"{backend.user}~unanswered"
    wait_for(lambda: [task.label for task in backend.job(key).tasks] == ["main-0"])
    backend.stop_job(key)
    assert ended(backend, key).state == "STOPPED"


def test_a_refused_job_leaves_no_files(backend):
    with pytest.raises(Denied, match="quota"):
        submit(backend, "huge", "true", replace={"cpu: 1": "cpu: 4000"})
    assert records(backend, "huge") == []
    with pytest.raises(NotFound):
        backend.job(f"{backend.user}~huge")


def test_one_of_two_submissions_of_a_name_wins_with_its_own_commands(backend):
    failures = []

    def send(word):
        try:
            submit(backend, "twice", f"echo {word}; echo {word} >$PAI_OUTPUT_DIR/x || :")
            failures.append("")
        except ApiError as err:
            failures.append(type(err).__name__)

    threads = [threading.Thread(target=send, args=(word,)) for word in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(failures) == ["", "Conflict"]
    key = f"{backend.user}~twice"
    word = output(backend, ended(backend, key)).split()[0]
    assert f"echo {word};" in str(backend.job_document(key))


def test_a_job_of_another_client_is_shown_without_a_document(backend):
    backend.upload(f"{backend.home}/jobs/classic/train.py", b"print('hello')\n")
    backend.submit_training(TrainingRequest("classic", entry="python3 train.py"))
    key = f"{backend.user}~classic"
    job = ended(backend, key)
    assert (job.state, [task.label for task in job.tasks]) == ("SUCCEEDED", ["trainer-0"])
    assert output(backend, job) == "hello\n"
    with pytest.raises(NotFound, match="no document"):
        backend.job_document(key)


def test_pservers_run_their_own_commands_until_the_trainers_end(backend):
    served = "$PAI_MOUNT_ROOT/mnt/pfs/home/$PAI_USER_NAME/served"
    role = JOB.format(name="x", command=f"echo server; touch {served}; sleep 300").partition("  main:\n")[2]
    report = "echo trainer $PAI_TASK_INDEX of $PAI_TASKS_NUM in $PAI_CURRENT_TASK_ROLE_NAME"
    command = f"{report}; until [ -e {served} ]; do sleep 0.05; done"
    smaller = {"cpu: 1": "cpu: 0", "instances: 1": "instances: 2"}
    key = submit(backend, "servers", command, replace=smaller, more=f"  pserver:\n{role}")
    job = ended(backend, key)
    assert job.state == "SUCCEEDED"
    assert [task.label for task in job.tasks] == ["main-0", "main-1", "pserver-0"]
    found = [output(backend, job, index) for index in range(3)]
    assert found == ["trainer 0 of 3 in main\n", "trainer 1 of 3 in main\n", "server\n"]


def test_a_waiting_job_has_a_reason_and_a_killed_one_is_stopping(backend):
    capacity = backend.virtual_clusters()[backend.namespace].capacity("memoryMB")
    big = {"memoryMB: 64": f"memoryMB: {int(capacity.usable) // 2 - 64}"}
    stubborn = "trap '' TERM; echo begun; while [ ! -f $TRAINER_PACKAGE/stop ]; do sleep 0.05; done"
    first = submit(backend, "first", stubborn, replace=big)
    wait_for(lambda: backend.job(first).state == "RUNNING" and output(backend, backend.job(first)))
    second = submit(backend, "second", "true", replace=big)
    job = wait_for(lambda: (one := backend.job(second)).events and one.events[0].message and one)
    assert job.state == "WAITING" and "MB" in job.events[0].message
    assert [one.state for one in backend.jobs(keyword="second")] == ["WAITING"]
    backend.stop_job(first)
    assert backend.job(first).state == "STOPPING"
    assert [one.state for one in backend.jobs(keyword="first")] == ["STOPPING"]
    backend.stop_job(second)
    backend.upload(f"{backend.home}/jobs/first/stop", b"")
    assert {ended(backend, key).state for key in (first, second)} == {"STOPPED"}


def test_secrets_are_only_in_the_script(backend):
    text = JOB.format(name="secret", command='"echo <% $secrets.KEY %> | cut -c 2-"')
    backend.submit(f"{text}secrets: {{KEY: s3cret-word}}\n")
    key = f"{backend.user}~secret"
    job = ended(backend, key)
    assert output(backend, job) == "3cret-word\n"
    assert "s3cret-word" not in str(backend.job_document(key)) + repr(job)
    assert backend.job_document(key)["secrets"] == "******"


def test_jobs_of_other_users_are_not_shown(backend):
    with pytest.raises(NotFound, match="only your own jobs"):
        backend.job("somebody~job")
