"""A cluster that fails after it accepted a job, or limits its calls: one job, never two."""

import re
import time

import pytest

from tests.e2e.test_request_counts import Relay
from tests.faults import switch
from tests.server.conftest import own_server  # noqa: F401


@pytest.fixture
def lab(cluster):
    """The embedded cluster, added like a remote one."""
    own = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    login = ("--user", own["user"])
    cluster.ok("cluster.add", "lab", own["uri"], *login, OPENPAI_TOKEN=own["token"])
    yield cluster
    switch(cluster.home / "local")
    cluster.ok("cluster.delete", "lab")


def named(shell, keyword):
    return [job["name"] for job in shell.ok("job.list", "--keyword", keyword, "-o", "json").json()]


@pytest.mark.parametrize("status", [500, 502])
def test_accepted_job_is_found_after_a_lost_response(lab, status):
    switch(lab.home / "local", lost_submit=status)
    ran = lab.inv("job.sub", "echo done", "-j", f"lost-{status}", "-a", "lab", "--follow")
    assert (ran.code, ran.out) == (0, "done\n"), ran
    assert named(lab, f"lost-{status}") == [f"lost-{status}"]


class Forgetful(Relay):
    """A relay that closes the connection instead of sending the response to the first submission."""

    dropped = 0

    def respond(self, request):
        response = super().respond(request)
        if request.method == "POST" and request.path.endswith("/jobs") and not self.dropped:
            self.dropped += 1
            raise ConnectionError
        return response


def test_lost_connection_does_not_create_a_second_job(cluster):
    known = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    relay = Forgetful(cluster.ok("cluster.status", "-o", "json").json()["port"], known["user"])
    login = ("--user", known["user"])
    cluster.ok("cluster.add", "far", relay.uri, *login, OPENPAI_PASSWORD=known["password"])
    ran = cluster.ok("job.sub", "true", "-j", "once-only", "-a", "far", "-o", "json")
    relay.close()
    assert relay.dropped == 1 and ran.json()[0]["name"] == "once-only"
    assert named(cluster, "once-only") == ["once-only"]


@pytest.mark.parametrize("status", [500, 502])
def test_each_job_of_a_sweep_exists_once_after_lost_responses(lab, status):
    switch(lab.home / "local", lost_submit=status)
    name = f"grid-{status}"
    ran = lab.ok("job.sub", "true", "-j", name, "--sweep", "n=1..3", "-a", "lab", "-o", "json")
    assert [job["state"] for job in ran.json()] == ["SUCCEEDED"] * 3
    assert sorted(named(lab, name)) == [f"{name}-n-{number}" for number in (1, 2, 3)]


def test_job_that_a_broken_database_rejected_is_not_submitted(lab):
    switch(lab.home / "local", database=True)
    ran = lab.inv("job.sub", "true", "-j", "untaken", "-a", "lab")
    assert ran.code == 122 and "ECONNREFUSED" in ran.err and len(ran.err.splitlines()) == 1
    switch(lab.home / "local")
    assert named(lab, "untaken") == []


def test_retry_waits_for_the_end_of_the_window_and_not_its_length(own_server, shell):  # noqa: F811
    """On a slow machine, a command ends before the window only if the window is longer."""
    for window in (8, 32, 96):
        own_server.start("--rate-limit", f"list=1/{window}s")
        switch(own_server.folder, full_retry_after=True)
        admin = own_server.admin()
        login = ("--user", own_server.owner["user"], "--force")
        shell.ok("cluster.add", "lab", admin.uri, *login, OPENPAI_TOKEN=admin.token)
        assert admin.get("/api/v2/jobs").status_code == 200
        time.sleep(window / 2)
        ran = shell.pai("job.list", "-a", "lab", timeout=2 * window + 60)
        own_server.end()
        assert ran.code == 0, ran
        if ran.err:
            break
    [line] = ran.err.splitlines()
    seconds = int(re.search(r"waiting (\d+) s$", line)[1])
    assert 2 <= seconds <= window / 2 + 2 < window
