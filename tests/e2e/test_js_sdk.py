"""A third-party client works: Microsoft's JavaScript SDK, from login to logs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Shell
from tests.notices import image_not_used, without_memory
from tests.storage import object_servers

FOLDER = Path(__file__).parents[1] / "js"
MISSING = object_servers.missing(object_servers.JS_SDK)

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(300)]


def run(shell: Shell, script: str) -> Any:
    """Run a script as the first user of the embedded cluster, and return its output."""
    known = shell.ok("cluster.credentials", "local", "-o", "json").json()
    person = known[0] if isinstance(known, list) else known
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["NODE_PATH"] = str(object_servers.home() / "node_modules")
    environment |= {"PAI_URI": person["uri"], "PAI_USER": person["user"], "PAI_PASSWORD": person["password"]}
    done = subprocess.run(
        ["node", script], cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def seen(cluster: Shell) -> Any:
    """The results of all calls of the newer client."""
    return run(cluster, "paiv2.js")


def test_js_client_logs_in_and_out(seen: Any) -> None:
    assert (seen["wrong"]["code"], seen["login"]["admin"]) == ("IncorrectPasswordError", True)
    assert "message" in seen["logout"]
    assert seen["after"]["code"] == "UnauthorizedUserError"


def test_js_application_token_works_until_it_is_revoked(seen: Any) -> None:
    assert seen["applied"] and seen["tokens"]
    assert seen["revoked"]["code"] == "UnauthorizedUserError"


def test_js_client_reads_the_resources_of_the_cluster(seen: Any) -> None:
    assert (seen["info"]["launcherType"], seen["info"]["authnMethod"]) == ("k8s", "basic")
    assert seen["virtualClusters"]["default"].keys() == seen["virtualCluster"].keys()
    assert seen["skuTypes"] == {}
    assert [one["name"] for one in seen["storages"]["storages"]] == ["home"] == [seen["storage"]["name"]]
    assert (seen["nodes"]["kind"], seen["pods"]["kind"]) == ("NodeList", "PodList")


def test_js_client_runs_a_job_and_reads_its_log(seen: Any) -> None:
    assert seen["created"]["status"] == 202
    assert seen["twice"]["code"] == "ConflictJobError"
    assert seen["job"]["jobStatus"]["state"] == "SUCCEEDED"
    assert seen["attempt"]["jobStatus"]["attemptId"] == 0
    assert {one["name"] for one in seen["logs"]["locations"]} == {"stdout", "stderr", "all", "times"}
    assert seen["output"] == "said hush\n"


def test_js_client_gets_the_document_without_secrets(seen: Any) -> None:
    assert (seen["config"]["name"], seen["config"]["secrets"]) == ("from-js", "******")


def test_js_client_lists_tags_events_and_attempts_of_a_job(seen: Any) -> None:
    assert (seen["listed"]["totalCount"], len(seen["listed"]["data"])) == (1, 1)
    assert (seen["tagged"], seen["untagged"]) == (["red"], [])
    assert seen["events"]["totalCount"] == len(seen["events"]["data"]) > 0
    assert len(seen["task"]["attempts"]) == 1
    assert len(seen["attempts"]) == 1 and seen["first"]["jobName"] == "from-js"


def test_js_client_stops_a_job(seen: Any) -> None:
    assert (seen["stop"]["status"], seen["stopped"]) == (202, "STOPPED")


def test_js_client_manages_users_and_groups(seen: Any) -> None:
    assert seen["group"]["description"] == "after"
    assert [one["username"] for one in seen["members"]] == ["bob"]
    assert (seen["bob"]["email"], seen["bob"]["grouplist"]) == ("bob@example.com", ["default"])
    assert {one["username"]: one["email"] for one in seen["users"]}["bob"] == "bob@example.com"
    assert "team" not in seen["groups"]


def test_older_js_client_works_with_the_oldest_server(shell: Shell) -> None:
    shell.ok("cluster.start", INVOKE_OPENPAI_LOCAL_PROFILE="0.14")
    seen = run(shell, "paiv1.js")
    told = {"message": "update job old-js successfully", **image_not_used("node:18")}
    assert without_memory(seen["submitted"]) == told
    assert list(seen["job"]["taskRoles"]) == ["Main_role"]
    assert (seen["framework"], seen["listed"], seen["over"]) == ("old-js", ["old-js"], -7351)
    assert seen["left"] == []
