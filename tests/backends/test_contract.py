"""What every kind of cluster does behind the Backend protocol, over real HTTP."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from openpai_tasks import protocol
from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Capabilities, ExitMeaning, require
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound, Unsupported
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.submission import check_job
from openpai_tasks.sdk.usage_report import report_usage
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.backends.contract import JOB, ROWS, Row, Served
from tests.ports import free_port

V1 = {"jobName": "old", "image": "busybox", "taskRoles": [{"name": "main", "command": "true"}]}
SECONDS = 60.0


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPAI_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        yield


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.product)
def row(request):
    return request.param


@pytest.fixture(scope="module")
def served(row, tmp_path_factory):
    with row.serve(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def driver(row):
    return kinds.driver(row.kind)


@pytest.fixture(scope="module")
def signed_in(row: Row, served: Served, driver):
    cluster = Cluster("lab", served.uri, served.user, kind=row.kind)
    known = Credentials(password=served.password)
    return driver.sign_in(cluster, known, no_question, silent, SECONDS)


@pytest.fixture(scope="module")
def backend(driver, signed_in):
    return driver.connect(*signed_in, timeout=SECONDS)


@pytest.fixture(scope="module")
def done(backend):
    """A job that has ended."""
    submit(backend, "done", "echo out; echo err >&2")
    return until(backend, "done", lambda job: job.final)


@pytest.fixture
def running(backend):
    """A job that runs until the end of the test."""
    name = f"running-{time.monotonic_ns()}"
    submit(backend, name, "echo begun; sleep 300")
    job = until(backend, name, lambda job: job.state == "RUNNING" and job.tasks[0].state == "RUNNING")
    yield job
    backend.stop_job(job.key)


def no_question(prompt: str) -> str:
    raise AssertionError(prompt)


def silent(line: str) -> None:
    pass


def submit(backend: Backend, name: str, command: str) -> None:
    backend.submit(JOB.format(name=name, command=json.dumps(command)))


def until(backend: Backend, name: str, fits: Callable[[JobInfo], bool]) -> JobInfo:
    limit = time.monotonic() + SECONDS
    while not fits(job := backend.job(f"{backend.user}~{name}")):
        assert time.monotonic() < limit, job
        time.sleep(0.1)
    return job


def read(log: Any) -> bytes:
    return b"".join(log.read())


# Finding a cluster and signing in


def test_address_without_a_scheme_has_https_and_http_candidates(driver, served):
    assert driver.candidates(served.uri) == (served.uri,)
    assert driver.candidates("pai.example.org") == ("https://pai.example.org", "http://pai.example.org")


def test_signing_in_completes_the_record_of_the_cluster(signed_in, row, served):
    cluster, known = signed_in
    assert (cluster.uri, cluster.user, cluster.kind) == (served.uri, served.user, row.kind)
    assert cluster.generation and served.virtual_cluster in cluster.virtual_clusters and cluster.storages
    assert known.token and known.password == served.password


def test_a_wrong_password_is_refused(driver, row, served):
    cluster = Cluster("lab", served.uri, served.user, kind=row.kind)
    with pytest.raises(Denied, match="password"):
        driver.sign_in(cluster, Credentials(password="wr0ng-secret"), no_question, silent, SECONDS)


def test_generation_of_an_unknown_cluster_is_detected_at_first_use(driver, row, served, signed_in):
    unknown = Cluster("lab", served.uri, served.user, kind=row.kind)
    fresh = driver.connect(unknown, signed_in[1], learn=partial(driver.learn, seconds=SECONDS))
    assert fresh.cluster.generation == ""
    assert (fresh.product, fresh.capabilities) == (row.product, row.capabilities)
    fresh.authenticate()
    assert fresh.cluster.generation == signed_in[0].generation


def test_login_is_reused_and_can_be_renewed(backend, driver, signed_in):
    assert backend.authenticate() == backend.token() == signed_in[1].token
    fresh = driver.connect(signed_in[0], dataclasses.replace(signed_in[1], token=""))
    first = fresh.token()
    assert fresh.renew(first) != "" and fresh.authenticate() == fresh.token()


def test_error_without_credentials_contains_the_hint(driver, signed_in):
    with pytest.raises(Denied, match="ask your admin"):
        driver.connect(signed_in[0], Credentials(), hint="ask your admin").token()


# The cluster


def test_backend_reports_its_product_capabilities_and_user(backend, row, served):
    assert (backend.product, backend.capabilities, backend.user) == (
        row.product,
        row.capabilities,
        served.user,
    )
    assert all(isinstance(value, str) for value in dataclasses.astuple(backend.describe()))


def test_backend_reports_whether_the_cluster_answers(backend, driver, signed_in):
    assert backend.answers()
    gone = dataclasses.replace(signed_in[0], uri=f"http://127.0.0.1:{free_port()}")
    assert not driver.connect(gone, signed_in[1], timeout=2).answers()


def test_messages_go_to_the_given_callback(driver, signed_in):
    lines = list[str]()
    backend = driver.connect(*signed_in, say=lines.append)
    backend.say("one")
    assert lines == ["one"] and backend.patience > 0


def test_virtual_clusters_have_capacities(backend, served):
    found = backend.virtual_clusters()[served.virtual_cluster]
    for resource in ("cpu", "memoryMB"):
        capacity = found.capacity(resource)
        assert 0 < capacity.usable <= capacity.total and capacity.used >= 0 and capacity.unavailable >= 0
    assert found.capacity("gpu").total is not None


def test_nodes_have_the_resources_of_the_virtual_clusters(backend, served):
    nodes = backend.nodes()
    total = backend.virtual_clusters()[served.virtual_cluster]
    assert all(node.name and node.is_ready for node in nodes)
    if nodes:  # not every cluster reports them
        assert sum(node.resources["cpu"] for node in nodes) >= total.capacity("cpu").total


def test_storages_are_listed_and_described(backend):
    listed = backend.storages()
    assert listed and {one.name for one in backend.storages(default=True)} <= {one.name for one in listed}
    for one in listed:
        detail = backend.storage(one.name)
        assert (detail.name, detail.share) == (one.name, one.share) and detail.type
    with pytest.raises(ApiError):
        backend.storage("no-such-storage")


# Jobs


def test_a_document_is_checked_before_it_is_sent(backend):
    assert backend.check_document(JOB.format(name="checked", command="'true'")) is None
    with pytest.raises(NotFound):
        backend.job(f"{backend.user}~checked")


def test_submit_url_is_an_address_of_the_cluster(backend):
    assert backend.submit_url("name: x").startswith(backend.cluster.uri)


def test_a_job_is_found_and_listed(backend, done):
    assert (done.state, done.exit_status, done.user) == ("SUCCEEDED", 0, backend.user)
    assert done.key == f"{backend.user}~done" and [task.label for task in done.tasks] == ["main-0"]
    mine = {"username": backend.user, "keyword": "done"}
    assert [job.key for job in backend.jobs(**mine)] == [done.key]
    assert [job.key for job in backend.jobs(**mine, state="SUCCEEDED,FAILED", limit=1)] == [done.key]
    assert backend.jobs(**mine, state="RUNNING") == backend.jobs(username="nobody-else") == []


def test_jobs_are_counted_by_state(backend, done, running):
    listed = Counter(job.state for job in backend.jobs())
    assert backend.count_jobs("SUCCEEDED") == {"SUCCEEDED": listed["SUCCEEDED"]}
    assert backend.count_jobs("RUNNING", "WAITING")["RUNNING"] >= 1


def test_document_of_a_job_can_be_read_back(backend, done):
    found = backend.job_document(done.key)
    assert (found["protocolVersion"], found["name"]) == (2, "done")


def test_duplicate_job_name_conflicts_and_an_unknown_job_is_not_found(backend, done):
    with pytest.raises(Conflict):
        submit(backend, "done", "true")
    with pytest.raises(NotFound):
        backend.job(f"{backend.user}~nothing")


def test_a_job_is_stopped_on_request(backend, running):
    backend.stop_job(running.key)
    stopped = until(backend, running.name, lambda job: job.final)
    assert (stopped.state, stopped.exit_status) == ("STOPPED", 143)


def test_job_has_a_web_page_and_its_exit_code_is_explained(backend, done):
    assert backend.job_page(done).startswith(backend.cluster.uri) and "done" in backend.job_page(done)
    assert isinstance(backend.explain_exit(255), ExitMeaning | None)
    assert backend.explain_exit(0) is None


# Tasks


@pytest.mark.parametrize("stream, text", [("stdout", b"out\n"), ("stderr", b"err\n"), ("all", None)])
def test_output_streams_of_a_task_can_be_read_and_rewound(backend, row, done, stream, text):
    if text is None:
        text = read(backend.open_log(done, done.tasks[0], "all"))
    elif not row.capabilities.separate_streams:
        with pytest.raises(Unsupported):
            backend.open_log(done, done.tasks[0], stream)
        return
    log = backend.open_log(done, done.tasks[0], stream)
    assert (read(log), read(log), log.is_absent) == (text, b"", False)
    log.rewind()
    assert read(log) == text


def test_combined_log_contains_both_streams(backend, done):
    assert sorted(read(backend.open_log(done, done.tasks[0], "all")).split()) == [b"err", b"out"]


def test_a_log_is_read_while_it_grows(backend, running):
    log = backend.open_log(running, running.tasks[0], "all", retries=False)
    seen, limit = b"", time.monotonic() + SECONDS
    while seen != b"begun\n":
        assert time.monotonic() < limit
        time.sleep(0.05)
        seen += read(log)
    assert read(log) == b""


def test_ssh_endpoints_of_containers_are_reported(backend, row, running):
    if not row.capabilities.ssh:
        with pytest.raises(Unsupported):
            backend.ssh_endpoints(running)
        return
    found = backend.ssh_endpoints(running)
    assert found.keys() <= {task.label for task in running.tasks}
    assert all(one.ip and 0 < one.port < 65536 for one in found.values())


# Optional capabilities


def tagged(backend: Backend, job: JobInfo) -> bool:
    backend.add_tag(job.key, "blue")
    return backend.job(job.key).tags == ("blue",) and len(backend.jobs(tagsContain="blue")) == 1


def opened_by_a_key(backend: Backend, job: JobInfo) -> bool:
    limit = time.monotonic() + SECONDS
    while backend.capabilities.job_keys and not backend.ssh_endpoints(job):  # its sshd is just starting
        assert time.monotonic() < limit
        time.sleep(0.1)
    return "PRIVATE KEY" in backend.job_private_key(job)


def submitted_as_v1(backend: Backend, job: JobInfo) -> bool:
    assert backend.submit_url(V1).startswith(backend.cluster.uri)
    backend.submit(V1)
    until(backend, "old", lambda one: one.final)
    return "jobName" in backend.job_document(f"{backend.user}~old")


USES: dict[str, Callable[[Backend, JobInfo], object]] = {
    "tags": tagged,
    "events": lambda backend, job: isinstance(backend.job_events(job.key), tuple),
    "attempts": lambda backend, job: backend.job_attempt(job.key, 0).key == job.key,
    "job_keys": opened_by_a_key,
    "v1_documents": submitted_as_v1,
    "separate_streams": lambda backend, job: backend.open_log(job, job.tasks[0], "stdout") is not None,
    "ssh": lambda backend, job: isinstance(backend.ssh_endpoints(job), dict),
}


def test_policy_that_a_cluster_cannot_keep_is_refused_before_anything_is_sent(backend, row):
    for policy, ability in ({"requeues": 2}, "requeues"), ({"idleStopSeconds": 60}, "idle_gpus"):
        job = protocol.read(JOB.format(name="policy", command="echo 1")).value
        document = protocol.dump({**job, "extras": {"jobPolicy": policy}})
        if getattr(row.capabilities, ability):
            [note] = check_job(backend, document)
            assert note.endswith("it may run fewer times than --requeue-on-timeout says")
        else:
            with pytest.raises(Unsupported, match="leave out --"):
                check_job(backend, document)


def test_capability_works_or_is_refused_with_a_one_line_error(backend, row, running):
    for ability in (one.name for one in dataclasses.fields(Capabilities)):
        uses = [partial(require, backend, ability)]
        if ability in USES:
            uses.append(partial(is_used, ability, backend, running))
        for use in uses:
            if getattr(row.capabilities, ability):
                use()
                continue
            with pytest.raises(Unsupported) as refused:
                use()
            where, _, advice = str(refused.value).partition(": ")
            assert where.startswith(f"cluster 'lab' ({row.product}) ") and advice and "\n" not in advice
            assert refused.value.exit_code == 120, ability


def test_usage_is_reported_from_the_job_list_with_what_is_not_known(backend, row, done, running):
    if not row.capabilities.usage_report:
        with pytest.raises(Unsupported, match="does not report the GPUs and the end of past jobs"):
            report_usage(backend)
        return
    report = report_usage(backend, since="1d", points=4)
    [found] = report.rows
    assert (found.name, found.cpu_hours, found.gpu_used) == (backend.user, None, None) and found.jobs >= 2
    assert found.waited is not None and any("only the latest attempt" in note for note in report.notes)
    assert (found.gpu_hours, len(report.gpu_series[backend.user])) == (0, 4)
    [without] = report_usage(backend, by="sweep", user="all").rows
    assert without.name == ""
    if not row.capabilities.tags:
        with pytest.raises(Unsupported, match="has no tags"):
            report_usage(backend, by="tag")


def is_used(ability: str, backend: Backend, job: JobInfo) -> None:
    assert USES[ability](backend, job), ability
