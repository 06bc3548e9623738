"""Logins to a cluster that stores its tokens late, by one command and by several at once."""

import fcntl

import pytest
import requests

from tests.faults import switch

TOKENS = "/rest-server/api/v2/tokens"


class Lab:
    """The embedded cluster, added like a remote one under the alias ``lab``."""

    def __init__(self, shell):
        self.shell = shell
        self.own = shell.ok("cluster.credentials", "local", "-o", "json").json()
        self.add("lab")

    def add(self, alias):
        login = ("--user", self.own["user"])
        return self.shell.ok(
            "cluster.add", alias, self.own["uri"], *login, OPENPAI_PASSWORD=self.own["password"]
        )

    def call(self, method, path):
        headers = {"Authorization": f"Bearer {self.own['token']}"}
        answer = requests.request(method, self.own["uri"] + path, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def tokens(self):
        return set(self.call("GET", TOKENS)["tokens"])

    def revoke(self):
        """Revoke the token that is saved for the alias."""
        token = self.shell.ok("cluster.credentials", "lab", "-o", "json").json()["token"]
        self.call("DELETE", f"{TOKENS}/{token}")
        assert token not in self.tokens()

    def switch(self, **faults):
        switch(self.shell.home / "local", **faults)


@pytest.fixture
def lab(cluster):
    lab = Lab(cluster)
    yield lab
    lab.switch()
    cluster.ok("cluster.delete", "lab")


@pytest.mark.parametrize("seconds", [0.05, 0.4, 0.8])
def test_login_waits_for_a_token_that_is_stored_late(lab, seconds):
    lab.revoke()
    lab.switch(late_tokens=seconds)
    assert lab.shell.ok("job.list", "-a", "lab", "-o", "json").json() == []
    lab.add("late")
    lab.switch()
    before = lab.tokens()
    lab.shell.ok("job.list", "-a", "late")
    assert lab.tokens() == before  # the token that cluster.add saved is valid
    lab.shell.ok("cluster.delete", "late")


@pytest.mark.parametrize("faults", [{}, {"late_tokens": 0.2}])
def test_simultaneous_commands_log_in_once(lab, faults):
    lab.revoke()
    before = lab.tokens()
    lab.switch(**faults)
    started = [lab.shell.start("pai", "job.list", "-a", "lab", "-o", "json") for _ in range(4)]
    for process in started:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "[]\n"), err
    if not faults:
        assert len(lab.tokens() - before) == 1
    lab.switch()
    before = lab.tokens()
    lab.shell.ok("job.list", "-a", "lab")
    assert lab.tokens() == before


def test_command_reports_that_it_waits_for_the_login_of_another(lab):
    lab.revoke()
    [lock] = (lab.shell.home / "logins").iterdir()  # one lock per user and server, whatever the alias
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = lab.shell.start("pai", "job.list", "-a", "lab", "-o", "json")
        assert process.stderr.readline() == "waiting for another command that logs in to cluster 'lab'\n"
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (0, "[]\n", "")


def test_login_works_without_a_lock_file(lab):
    lab.revoke()
    folder = lab.shell.home / "logins"
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("")
    try:
        assert lab.shell.ok("job.list", "-a", "lab", "-o", "json").json() == []
    finally:
        folder.unlink()
        aside.rename(folder)


def test_refused_token_without_a_password_gives_a_hint_with_the_alias(lab):
    token = lab.shell.ok("cluster.credentials", "lab", "-o", "json").json()["token"]
    where = ("--user", lab.own["user"])
    lab.shell.ok("cluster.add", "ci", lab.own["uri"], *where, OPENPAI_TOKEN=token)
    lab.revoke()
    ran = lab.shell.pai("job.list", "-a", "ci")
    assert ran.code == 122 and "`pai cluster.update ci --login`" in ran.err
    assert len(ran.err.splitlines()) == 1 and token not in ran.err
    lab.shell.ok("cluster.delete", "ci")
