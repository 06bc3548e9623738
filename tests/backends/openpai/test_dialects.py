"""The requests sent to each generation of server, and how its responses are parsed."""

import json
from urllib.parse import quote

import pytest

from openpai_tasks import protocol
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, NotFound, Unsupported
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.models import SshInfo
from openpai_tasks.sdk.clusters.resources import cluster_resources
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply, Scripted

API = "/rest-server/api"
GENERATIONS = ("0.14", "0.18", "1.8")


@pytest.fixture
def serve():
    started = []

    def start(answers):
        started.append(
            Scripted({key.replace(" /", f" {API}/", 1): answer for key, answer in answers.items()})
        )
        return started[-1]

    yield start
    for server in started:
        server.close()


def client_of(server, generation, token="t0ken"):
    return Client(
        Cluster("lab", server.uri, "alice", generation=generation), Credentials(token=token), timeout=30
    )


def row(number, **more):
    standing = {"state": "RUNNING", "virtualCluster": "default", "createdTime": number, "retries": 0}
    return {"name": f"job{number}", "username": "alice", **standing, **more}


def rows(count):
    return [row(number) for number in reversed(range(count))]


def detail(tasks=(), **status):
    standing = {"username": "alice", "state": "FAILED", "retries": 2, "virtualCluster": "default"}
    role = {"taskRoleStatus": {"name": "psserver"}, "taskStatuses": list(tasks)}
    return {"name": "job1", "jobStatus": {**standing, **status}, "taskRoles": {"psserver": role}}


def names(jobs):
    return [job.name for job in jobs]


# Lists


@pytest.mark.parametrize("generation, path", [("0.14", "/v1/jobs"), ("0.18", "/v2/jobs")])
def test_jobs_of_older_servers_are_filtered_by_the_client(serve, generation, path):
    listed = [row(4, state="FAILED"), row(3, virtualCluster="vc1"), row(2), row(1, tags=["x"])]
    server = serve({f"GET {path}": listed})
    client = client_of(server, generation)
    assert names(client.jobs(username="alice", state="RUNNING,WAITING", limit=2)) == ["job3", "job2"]
    assert server.seen[-1].query == {"username": "alice"}
    assert names(client.jobs(username="alice,bob", offset=3)) == ["job1"]
    assert server.seen[-1].query == {}
    assert names(client.jobs(vc="vc1")) == names(client.jobs(keyword="vc1")) == ["job3"]
    assert names(client.jobs(tagsContain="x,y")) == ["job1"]
    assert names(client.jobs(tagsNotContain="x", order="jobName,ASC")) == ["job2", "job3", "job4"]
    assert names(client.jobs(username="bob")) == []


def test_long_job_list_is_fetched_page_by_page(serve):
    everything = rows(12_000)

    def page(asked):
        start, size = int(asked.query["offset"]), int(asked.query["limit"])
        return {"totalCount": len(everything), "data": everything[start : start + size]}

    server = serve({"GET /v2/jobs": page})
    client = client_of(server, "1.8")
    assert names(client.jobs()) == [one["name"] for one in everything]
    assert len(server.seen) == 3
    assert len(client.jobs(limit=7000, state="RUNNING")) == 7000
    assert [one.query["limit"] for one in server.seen[3:]] == ["5000", "2000"]
    assert {one.query["state"] for one in server.seen[3:]} == {"RUNNING"}
    assert names(client.jobs(limit=2, offset=10)) == ["job11989", "job11988"]


def test_counting_jobs_transfers_one_row_for_each_state(serve):
    everything = rows(60_000)

    def page(asked):
        size = int(asked.query["limit"])
        return {"totalCount": len(everything), "data": everything[:size]}

    server = serve({"GET /v2/jobs": page})
    assert client_of(server, "1.8").count_jobs("RUNNING", "FAILED") == {"RUNNING": 60_000, "FAILED": 60_000}
    asked = [(one.query["state"], one.query["limit"]) for one in server.seen]
    assert asked == [("RUNNING", "1"), ("FAILED", "1")]


@pytest.mark.parametrize("generation", ["0.18", "1.8"])
def test_servers_without_a_total_have_their_jobs_counted_here(serve, generation):
    server = serve({"GET /v2/jobs": lambda asked: rows(3)})
    assert client_of(server, generation).count_jobs("RUNNING", "FAILED") == {"RUNNING": 3, "FAILED": 0}


def test_pages_may_be_shorter_than_requested(serve):
    everything = rows(250)

    def page(asked):
        start = int(asked.query["offset"])
        return {"totalCount": 250, "data": everything[start : start + 100]}

    assert len(client_of(serve({"GET /v2/jobs": page}), "1.8").jobs()) == 250


def test_job_list_without_a_total_ends_with_the_first_partial_page(serve):
    everything = rows(5001)

    def page(asked):
        start, size = int(asked.query["offset"]), int(asked.query["limit"])
        return everything[start : start + size]

    server = serve({"GET /v2/jobs": page})
    assert len(client_of(server, "1.8").jobs()) == 5001
    assert len(server.seen) == 2
    assert names(client_of(server, "1.8").jobs(limit=1)) == ["job5000"]


def test_paging_ends_when_the_server_ignores_the_offset(serve):
    server = serve({"GET /v2/jobs": rows(5000)})
    assert len(client_of(server, "1.8").jobs()) == 5000
    assert len(server.seen) == 2


def test_jobs_that_move_to_the_next_page_are_listed_once(serve):
    everything = rows(5002)

    def page(asked):
        start, size = int(asked.query["offset"]), int(asked.query["limit"])
        found = {"totalCount": len(everything), "data": everything[start : start + size]}
        everything.insert(0, row(len(everything)))
        return found

    found = client_of(serve({"GET /v2/jobs": page}), "1.8").jobs()
    assert len(found) == len(set(names(found))) == 5002


@pytest.mark.parametrize("body", [{"message": "hello"}, "<html>a portal</html>", 3])
def test_response_that_is_not_a_job_list_is_an_error(serve, body):
    with pytest.raises(ApiError, match="is it OpenPAI"):
        client_of(serve({"GET /v2/jobs": body}), "1.8").jobs()


# Types of GPUs


@pytest.mark.parametrize(
    "skus, types, free",
    [
        ({"V100": {"gpu": 1}, "CPU": {"gpu": 0}}, "8 V100", "6 of 8 V100"),
        ({"V100": {"gpu": 1}, "K80": {"gpu": 4}}, "V100, K80", "6 of 8 (V100, K80)"),
        ({}, "", "6 of 8"),
        ({"V100": 3}, "", "6 of 8"),
        (Reply({"code": "NoVirtualClusterError"}, 404), "", "6 of 8"),
    ],
)
def test_free_gpus_have_the_types_that_the_cluster_reports(serve, skus, types, free):
    amounts = {"resourcesUsed": {"gpu": 2}, "resourcesTotal": {"gpu": 8}}
    server = serve({"GET /v2/virtual-clusters": {"default": amounts}, "GET /v2/cluster/sku-types": skus})
    client = client_of(server, "1.8")
    [found] = cluster_resources(client)
    assert (found.gpu_types, found.free_gpus) == (types, free)
    cluster_resources(client)
    asked = [one.query for one in server.seen if one.path.endswith("sku-types")]
    assert asked == [{"vc": "default"}]  # once
    [older] = cluster_resources(client_of(server, "0.18"))
    assert (older.gpu_types, older.free_gpus) == ("", "6 of 8")


# Tokens


def test_read_requests_to_the_oldest_servers_need_no_token(serve):
    answers = {
        "/jobs": [],
        "/jobs/alice~job1": detail(),
        "/jobs/alice~job1/config": {},
        "/virtual-clusters": {},
    }
    server = serve({f"GET /v1{path}": answer for path, answer in answers.items()})
    client = client_of(server, "0.14", token="")
    client.jobs()
    client.job("alice~job1")
    client.job_config("alice~job1")
    client.virtual_clusters()
    assert [one.token for one in server.seen] == [""] * 4


@pytest.mark.parametrize("generation", ("0.18", "1.8"))
def test_every_request_to_newer_servers_sends_the_token(serve, generation):
    server = serve({"GET /v2/jobs": [], "GET /v2/jobs/alice~job1": detail(), "GET /v2/virtual-clusters": {}})
    client = client_of(server, generation)
    client.jobs()
    client.job("alice~job1")
    client.virtual_clusters()
    assert {one.token for one in server.seen} == {"Bearer t0ken"}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_stop_request_sends_the_token_to_every_generation(serve, generation):
    version = "v1" if generation == "0.14" else "v2"
    server = serve({f"PUT /{version}/jobs/alice~job1/executionType": Reply({"message": "ok"}, 202)})
    client_of(server, generation).stop_job("alice~job1")
    assert (server.seen[0].token, json.loads(server.seen[0].body)) == ("Bearer t0ken", {"value": "STOP"})


# Submitting


@pytest.mark.parametrize("generation", GENERATIONS)
def test_v2_document_is_sent_unchanged_to_every_generation(serve, generation):
    server = serve({"POST /v2/jobs": Reply({"status": 202}, 202)})
    client_of(server, generation).submit("name: ä\n")
    sent = server.seen[0]
    assert (sent.headers["Content-Type"], sent.body, sent.token) == ("text/yaml", "name: ä\n", "Bearer t0ken")


@pytest.mark.parametrize("status", (201, 202))
def test_v1_document_is_sent_unchanged_to_the_oldest_servers(serve, status):
    server = serve({"POST /v1/user/alice/jobs": Reply({"message": "ok"}, status)})
    client = client_of(server, "0.14")
    assert client.capabilities.v1_documents
    client.submit({"jobName": "x"})
    assert (json.loads(server.seen[0].body), server.seen[0].token) == ({"jobName": "x"}, "Bearer t0ken")


@pytest.mark.parametrize("generation", ("0.18", "1.8"))
def test_v1_document_is_refused_for_newer_servers_without_a_request(serve, generation):
    server = serve({})
    client = client_of(server, generation)
    assert not client.capabilities.v1_documents
    with pytest.raises(Unsupported, match=rf"\(OpenPAI {generation}\) accepts no .* version 1"):
        client.submit({"jobName": "x"})
    assert server.seen == []


# One job


@pytest.mark.parametrize(
    "generation, ports",
    [
        ("0.14", {"ssh": "3001", "x": "1,2"}),
        ("0.18", {"ssh": 3001, "x": 1}),
        ("1.8", {"ssh": "3001"}),
        ("1.8", {}),
    ],
)
def test_ports_are_always_converted_to_text(serve, generation, ports):
    version = "v1" if generation == "0.14" else "v2"
    task = {"taskIndex": 0, "taskState": "RUNNING", "containerPorts": ports}
    server = serve({f"GET /{version}/jobs/alice~job1": detail([task])})
    (found,) = client_of(server, generation).job("alice~job1").tasks
    assert found.ports == {label: str(value) for label, value in ports.items()}


def test_job_keeps_the_key_it_was_requested_by(serve):
    server = serve({f"GET /v1/jobs/{key}": detail() for key in ("alice~job1", "group~job1", "job1")})
    client = client_of(server, "0.14")
    for key in ("alice~job1", "group~job1", "job1"):
        job = client.job(key)
        assert (job.key, job.name, job.user) == (key, "job1", "alice")


def test_listed_jobs_of_the_oldest_servers_have_their_keys(serve):
    listed = [row(3), row(2, namespace="group"), row(1, legacy=True)]
    jobs = client_of(serve({"GET /v1/jobs": listed}), "0.14").jobs()
    assert [job.key for job in jobs] == ["alice~job3", "group~job2", "job1"]


def test_special_characters_in_a_job_name_are_percent_encoded(serve):
    server = serve({})
    with pytest.raises(NotFound):
        client_of(server, "1.8").job("alice~a/../b?c")
    assert server.seen[0].path == f"{API}/v2/jobs/" + quote("alice~a/../b?c", safe="~")


@pytest.mark.parametrize(
    "generation, runtime, code",
    [
        ("0.14", {"exitcode": 255, "originalUserExitCode": 3, "reason": "user failed"}, 3),
        ("0.14", {"exitcode": 255, "originalUserExitCode": "3"}, 3),
        ("0.14", {"originalUserExitCode": "unknown"}, 255),
        ("0.18", {"exitCode": 255, "originUserExitCode": 3}, 3),
        ("1.8", {"exitCode": 255, "originUserExitCode": 3}, 3),
        ("1.8", "exit code 3", 255),
        ("1.8", None, 255),
    ],
)
def test_exit_status_is_the_exit_code_of_the_command_if_known(serve, generation, runtime, code):
    version = "v1" if generation == "0.14" else "v2"
    body = detail(appExitCode=255, appExitMessages={"runtime": runtime}, appExitDiagnostics="…")
    job = client_of(serve({f"GET /{version}/jobs/alice~job1": body}), generation).job("alice~job1")
    assert (job.exit_status, job.platform_exit_code) == (code, 255)


def test_stop_code_of_the_oldest_servers_gives_exit_status_143(serve):
    body = detail(state="STOPPED", appExitCode=-7351, appExitMessages=None)
    assert client_of(serve({"GET /v1/jobs/alice~job1": body}), "0.14").job("alice~job1").exit_status == 143


def test_attempt_defaults_to_the_number_of_retries(serve):
    server = serve({"GET /v2/jobs/alice~job1": detail(), "GET /v2/jobs/alice~job2": detail(attemptId=1)})
    client = client_of(server, "0.18")
    assert [client.job("alice~job1").attempt, client.job("alice~job2").attempt] == [2, 1]


CONFIG = {"protocolVersion": 2, "name": "x", "commands": ["echo \U0001f600 \x7f", "1e3"], "big": 1e21}


@pytest.mark.parametrize(
    "generation, path, body",
    [
        ("0.14", "/v1/jobs/alice~x/config", {"jobName": "x", "image": "i", "taskRoles": []}),
        ("0.14", "/v1/jobs/alice~x/config", "protocolVersion: 2\nname: x\nsecrets: '******'\n"),
        ("0.18", "/v2/jobs/alice~x/config", CONFIG),
        ("1.8", "/v2/jobs/alice~x/config", CONFIG),
    ],
)
def test_job_config_is_parsed_whatever_its_content_type(serve, generation, path, body):
    server = serve({f"GET {path}": Reply(body, headers=(("Content-Type", "text/yaml; charset=utf-8"),))})
    expected = {"protocolVersion": 2, "name": "x", "secrets": "******"} if isinstance(body, str) else body
    assert client_of(server, generation).job_document("alice~x") == expected


def test_ssh_endpoints_come_from_the_ssh_api_or_from_the_task_ports(serve):
    link = "http://nn:5070/webhdfs/v1/key?op=OPEN"
    ssh_answer = {
        "containers": [{"id": "c0", "sshIp": "10.0.0.1", "sshPort": "3001"}, {"id": "c1", "sshIp": ""}],
        "keyPair": {"privateKeyDirectDownloadLink": link},
    }
    place = {"taskIndex": 0, "containerId": "c0", "containerIp": "10.0.0.1"}
    tasks = [{**place, "containerPorts": {"ssh": 3001}}, {"taskIndex": 1, "containerPorts": {}}]
    server = serve({"GET /v1/jobs/alice~job1/ssh": ssh_answer, "GET /v2/jobs/alice~job1": detail(tasks)})
    job = client_of(server, "1.8").job("alice~job1")
    found = {"psserver-0": SshInfo("c0", "10.0.0.1", 3001, link)}
    assert client_of(server, "0.14").ssh_endpoints(job) == found
    for generation in ("0.18", "1.8"):
        found = {"psserver-0": SshInfo("c0", "10.0.0.1", 3001)}
        assert client_of(server, generation).ssh_endpoints(job) == found


@pytest.mark.parametrize("generation", ("0.14", "0.18"))
def test_unsupported_operations_are_refused_without_a_request(serve, generation):
    server = serve({})
    client = client_of(server, generation)
    for call in (
        lambda: client.job_events("alice~x"),
        lambda: client.add_tag("alice~x", "t"),
    ):
        with pytest.raises(Unsupported, match=rf"cluster 'lab' \(OpenPAI {generation}\) .*: "):
            call()
    assert server.seen == []


@pytest.mark.parametrize("skus", [{}, {"V100": {"cpu": 4, "memory": 9, "gpu": 1}}])
def test_a_priority_without_hived_is_reported(serve, skus):
    server = serve({"POST /v2/jobs": Reply({"message": "x"}, 202), "GET /v2/cluster/sku-types": skus})
    job = JobRequest("true", name="a", image="i", priority="prod")
    notices = client_of(server, "1.8").submit(protocol.dump(protocol.build_document(job)))
    hived = "the priority probably has no effect: only the HiveD scheduler of OpenPAI has priorities"
    assert notices == (() if skus else (hived,))


def test_the_server_of_a_project_gets_no_hooks():
    for is_own in (True, False):
        cluster = Cluster("lab", "http://127.0.0.1:1", "alice", info={"engine": "process"}, is_own=is_own)
        assert Client(cluster, Credentials(token="t")).capabilities.hooks is is_own


def test_an_older_server_that_ignores_hooks_is_reported(serve):
    server = serve({"POST /v2/jobs": Reply({"status": 202, "message": "ok"}, 202)})
    (notice,) = client_of(server, "1.8").submit("name: x\n", hooks='{"hooks":[]}')
    assert notice.startswith("the server is older than this client and keeps no hooks")
    assert server.seen[0].headers["x-openpai-hooks"] == '{"hooks":[]}'
