"""Commands of a user whose embedded cluster runs jobs on a real Kubernetes."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.server.engines.kubernetes.capacity import quantity
from tests.conftest import Shell, make_shell
from tests.processes import kill
from tests.server.engines.kube_cluster import IMAGE, Kube, kube_namespace
from tests.server.workshop import until

SMALL = ("--image", IMAGE, "--cpu", "1", "--mem", "64")
TALK = """\
protocolVersion: 2
name: talk
type: job
prerequisites: [{{name: image, type: dockerimage, uri: {image}}}]
taskRoles:
  server:
    instances: 1
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: {memory}, gpu: 0, ports: {{talk: 1}}}}
    commands: ['echo the server says hello | nc -l -p $PAI_server_0_talk_PORT']
  client:
    instances: 1
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: {memory}, gpu: 0}}
    commands:
    - sleep 1
    - until nc $PAI_HOST_IP_server_0 $PAI_server_0_talk_PORT; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    with kube_namespace() as kube:
        yield kube


def start_cluster(kube: Kube, folder: Path) -> Shell:
    shell = make_shell(folder)
    shell.environment["KUBECONFIG"] = kube.kubeconfig
    shell.environment["INVOKE_OPENPAI_LOCAL_KUBERNETES_NAMESPACE"] = kube.namespace
    started = shell.ok("cluster.start", "--engine", "kubernetes", "-o", "json").json()
    assert started["engine"] == "kubernetes"
    return shell


@pytest.fixture(scope="module")
def shell(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = start_cluster(kube, tmp_path_factory.mktemp("user"))
    yield shell
    shell.ok("cluster.stop")


def test_a_job_has_its_sources_and_its_outputs_can_be_fetched(shell: Shell) -> None:
    (shell.project / "train.sh").write_text("echo trained >$PAI_OUTPUT_DIR/model; echo done; echo err >&2")
    ran = shell.ok("job.sub", "sh train.sh", "-j", "train", "--sources", "train.sh", "--follow", *SMALL)
    assert sorted(ran.out.split()) == ["done", "err"]
    shell.ok("job.outputs", "train", "--to", "fetched")
    assert (shell.project / "fetched" / "model").read_text() == "trained\n"


def test_a_large_file_goes_in_and_comes_out_as_it_was(shell: Shell) -> None:
    content = random.Random(1).randbytes(2_000_000)  # more than fits into a secret
    (shell.project / "data").write_bytes(content)
    ran = shell.ok(
        "job.sub", "cat data >$PAI_OUTPUT_DIR/copy", "-j", "large", "--sources", "data", "--follow", *SMALL
    )
    assert ran.out == ""
    shell.ok("job.outputs", "large", "--to", "large")
    assert (shell.project / "large" / "copy").read_bytes() == content


def test_metrics_arrive_while_the_job_runs(shell: Shell) -> None:
    file = "$PAI_OUTPUT_DIR/.pai/metrics/main-0-0.jsonl"  # written as runtime.log_metric does
    first, second = (
        f"""echo '{{"time": 1, "name": "loss", "value": {value}, "step": 1}}' >>{file}"""
        for value in (0.5, 0.25)
    )
    wait = "until [ -e /tmp/go ]; do sleep 0.1; done"
    command = f"mkdir -p ${{PAI_OUTPUT_DIR}}/.pai/metrics; {first}; {wait}; {second}"
    shell.ok("job.sub", command, "-j", "learns", "--ssh", *SMALL)

    def points() -> list[float]:
        return [row["value"] for row in shell.ok("job.metrics", "learns", "-o", "json").json()]

    until(lambda: points() == [0.5])
    assert shell.ok("job.status", "learns", "-o", "json").json()["state"] == "RUNNING"
    shell.ok("container.run", "learns", "touch /tmp/go")
    shell.ok("job.wait", "learns")
    assert points() == [0.5, 0.25]


def test_roles_on_two_nodes_talk_to_each_other(shell: Shell, kube: Kube) -> None:
    nodes = json.loads(kube.run("get", "nodes", "--output=json"))["items"]
    if len(nodes) < 2:
        pytest.skip("needs a cluster of two nodes, named by OPENPAI_TEST_KUBECONFIG")
    memory = max(int(quantity(node["status"]["allocatable"]["memory"])) >> 20 for node in nodes)
    (shell.project / "talk.yaml").write_text(TALK.format(image=IMAGE, memory=memory * 6 // 10))
    shell.ok("job.submit", "talk.yaml")
    until(lambda: len(set(_nodes(kube, "talk"))) == 2)
    shell.ok("job.wait", "talk")
    assert shell.ok("job.logs", "talk", "--role", "client").out == "the server says hello\n"


def _nodes(kube: Kube, job: str) -> list[str]:
    """The nodes of the pods of a job that have one."""
    pods = json.loads(kube.run("get", "pods", "--output=json"))["items"]
    ours = [pod for pod in pods if pod["metadata"]["annotations"]["openpai-tasks/job"].endswith(job)]
    return [pod["spec"]["nodeName"] for pod in ours if "nodeName" in pod["spec"]]


def test_points_of_a_sweep_have_their_own_results(shell: Shell) -> None:
    ran = shell.ok("job.sub", "echo point $x", "-j", "points", "--sweep", "x=1,2,3,4,5,6,7,8", *SMALL)
    assert ran.out.count("SUCCEEDED") == 8, ran
    assert shell.ok("job.logs", "points-x-7").out == "point 7\n"


def test_the_exit_code_is_that_of_the_command_and_a_failed_job_is_tried_again(shell: Shell) -> None:
    shell.ok("job.sub", "exit 3", "-j", "wrong", "--retries", "1", *SMALL)
    shell.ok("job.sub", "true", "-j", "next", "--after", "wrong", *SMALL)
    shell.ok("job.sub", "true", "-j", "cleanup", "--after-failed", "wrong", *SMALL)
    assert shell.inv("job.wait", "wrong").code == 3
    found = shell.ok("job.status", "wrong", "-o", "json").json()
    assert (found["state"], found["retries"]) == ("FAILED", 1), found
    assert "job 'wrong' had to succeed first, and is FAILED" in shell.ok("job.why", "next").out
    shell.ok("job.wait", "cleanup")


def test_a_job_that_no_node_can_run_is_explained_in_the_words_of_kubernetes(shell: Shell) -> None:
    shell.ok("job.sub", "true", "-j", "greedy", "--gpu", "999", *SMALL)
    why = until(lambda: "Insufficient" in (text := shell.ok("job.why", "greedy").out) and text)
    assert "Insufficient nvidia.com/gpu" in why
    shell.ok("job.stop", "greedy")
    assert shell.inv("job.wait", "greedy").code != 0


def test_a_secret_is_in_no_pod_and_goes_with_the_job(shell: Shell, kube: Kube) -> None:
    command = "echo ${#WORD} letters; sleep 300"
    shell.ok("job.sub", command, "-j", "secret", "--secret", "WORD", *SMALL, WORD="canary-51c2")
    until(lambda: shell.ok("job.logs", "secret").out == "11 letters\n")
    assert "canary-51c2" not in kube.run("get", "pods", "--output=yaml")
    assert len(kube.names("pods")) == 1
    assert "canary-51c2" in _decoded(kube.run("get", "secrets", "--output=json"))
    shell.ok("job.stop", "secret")
    assert shell.inv("job.wait", "secret").code != 0
    until(lambda: not kube.names("pods") and not kube.names("secrets"))


def _decoded(secrets: str) -> str:
    found = [one.get("data") or {} for one in json.loads(secrets)["items"]]
    return "".join(base64.b64decode(text).decode("latin-1") for one in found for text in one.values())


def test_nothing_is_left_after_the_cluster_was_stopped(shell: Shell, kube: Kube) -> None:
    shell.ok("job.sub", "sleep 300", "-j", "left", *SMALL)
    until(lambda: "RUNNING" in shell.ok("job.status", "left").out)
    assert kube.names("pods") and kube.names("secrets")
    shell.ok("cluster.stop")
    until(lambda: not kube.names("pods") and not kube.names("secrets"))


def test_pods_of_a_cluster_whose_folder_is_gone_are_removed_if_asked(
    shell: Shell, kube: Kube, tmp_path: Path
) -> None:
    lost = start_cluster(kube, tmp_path)
    lost.ok("job.sub", "sleep 600", "-j", "left", *SMALL)
    until(lambda: lost.ok("job.status", "left", "-o", "json").json()["state"] == "RUNNING")
    kill(lost.ok("cluster.status", "-o", "json").json()["pid"])
    shutil.rmtree(lost.home)
    (row,) = shell.ok("cluster.clean", "--orphans", "--preview", "-o", "json").json()
    assert row["job"].endswith("~left") and row["name"] in kube.names("pods")
    refused = shell.inv("cluster.clean", "--orphans")
    assert refused.code and "1 orphan not removed: add --yes" in refused.err
    shell.ok("cluster.clean", "--orphans", "--yes")
    until(lambda: row["name"] not in kube.names("pods"))
    assert shell.ok("cluster.clean", "--orphans", "--preview", "-o", "json").json() == []
