"""The lines of PaddleCloud's client design, typed as printed apart from the host and the paths of the key."""

import os
import re
import shlex
from pathlib import Path

import pytest
import requests

from tests.certificates import make_certificate
from tests.conftest import make_shell
from tests.gateway import Gateway
from tests.server.paddlecloud.test_jobs import DESIGNED
from tests.server.workshop import until

CONFIG = """\
datacenter1:
  username: user1
  usercert: {folder}/user.pem
  userkey:  {folder}/user-key.pem
  endpoint: {host}
"""
LISTED_CONFIG = """\
datacenters:
- name: datacenter1
  username: user1
  password: {password}
  usercert: {folder}/user.pem
  userkey: user-key.pem
  endpoint: https://{host}
current-datacenter: datacenter1
"""
WALK = """\
paddlecloud pfs cp -r ./job_word_emb/data /pfs/datacenter1/home/user1/job_word_emb
paddlecloud submit ./job_word_emb -p 4 -c 2 -m 10Gi -t modules/train.py
paddlecloud jobs
paddlecloud logs
paddlecloud pfs cp /pfs/datacenter1/home/user1/job_word_emb/output ./output
"""
TRAIN = """\
import os, time
os.makedirs("output", exist_ok=True)
trainer = os.environ["PADDLE_INIT_TRAINER_ID"]
print("trainer", trainer, flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
open(f"output/model-{trainer}", "w").write("trained")
"""
PADDLE = """\
#!/bin/sh
for word; do case $word in --config=*) exec python3 "${word#--config=}" ;; esac; done
echo "ran: paddle $*"
"""
"""The program that PaddlePaddle installs."""
PASSWORD = "a s3cret"
HOME = "/pfs/datacenter1/home/user1"


class Laptop:
    """A user's machine with ~/.paddle/config, a key, and the package of the design."""

    def __init__(self, folder: Path) -> None:
        self.shell = make_shell(folder)
        self.folder, self.keys = self.shell.project, folder / ".paddle"
        (folder / "bin").mkdir()
        (folder / "bin" / "paddle").write_text(PADDLE)
        (folder / "bin" / "paddle").chmod(0o755)
        self.keys.mkdir()
        pem = make_certificate(self.keys / "both.pem", "user1").read_text()
        key, begin, certificate = pem.partition("-----BEGIN CERTIFICATE")
        (self.keys / "user.pem").write_text(begin + certificate)
        (self.keys / "user-key.pem").write_text(key)
        (self.keys / "user-key.pem").chmod(0o600)
        self.trusted = make_certificate(folder / "server.pem")
        path = f"{folder / 'bin'}{os.pathsep}{self.shell.environment['PATH']}"
        self.shell.environment |= {"HOME": str(folder), "PATH": path, "REQUESTS_CA_BUNDLE": str(self.trusted)}
        for name in ("data/train/train.txt-00000", "data/test/test.txt-00000", "modules/train.py"):
            file = self.folder / "job_word_emb" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(TRAIN if file.suffix else "the quick brown fox\n")

    def configure(self, text: str) -> None:
        (self.keys / "config").write_text(text)

    def type(self, line: str):
        return self.shell.run(*shlex.split(line))

    def ok(self, line: str):
        ran = self.type(line)
        assert ran.code == 0, (line, ran)
        return ran


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """The laptop, and an embedded cluster behind a server that demands the user's certificate."""
    made = Laptop(tmp_path_factory.mktemp("laptop"))
    owner = made.ok("pai cluster.credentials local -o json").json()
    user = {"username": "user1", "password": PASSWORD}
    headers = {"Authorization": f"Bearer {owner['token']}"}
    created = requests.post(
        f"{owner['uri']}/rest-server/api/v2/users", json=user, headers=headers, timeout=60
    )
    assert created.status_code in (200, 201), created.text
    uri = f"{owner['uri']}/paddlecloud"
    made.storage = made.shell.home / "local" / "storage" / "home" / "user1"
    made.gateway = Gateway(uri, made.trusted, made.keys / "user.pem")
    token = requests.post(f"{uri}/api-token-auth/", json=user, timeout=60).json()["token"]
    made.gateway.tokens["user1"] = token
    made.config = CONFIG.format(folder=made.keys, host=made.gateway.address)
    made.configure(made.config)
    yield made
    made.gateway.close()
    made.shell.pai("cluster.stop")


@pytest.fixture(scope="module")
def walked(laptop):
    """What each line of the example printed; the job may end only after it was listed."""
    shown = {}
    for line in WALK.splitlines():
        if line == "paddlecloud logs":
            until(lambda: laptop.ok("paddlecloud logs").out.count("trainer ") == 4)
            shown["running"] = laptop.ok("paddlecloud get jobs")
            (laptop.storage / "jobs" / "paddle-cluster-job" / "go").touch()
            laptop.ok("paddlecloud logs -f")
        shown[" ".join(line.split()[1:3])] = laptop.ok(line)
    return shown


def test_the_example_runs_as_printed(laptop, walked):
    done = "Collecting package ... Done\nUploading package ... Done\nStarting kubernetes job ... Done\n"
    assert walked["submit ./job_word_emb"].out.startswith(done)
    header, row = (line.split() for line in walked["jobs"].out.splitlines())
    assert header == ["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"]
    assert row[:4] == ["user1", "paddle-cluster-job", "4", "0"]
    pods = r"running pod list:  \[(\('Succeeded', '127\.[\d.]+'\)(, )?){4}\]\n"
    assert re.match(pods, walked["logs"].out) and walked["logs"].out.count("trainer ") == 4
    assert {path.name for path in (laptop.folder / "output").iterdir()} == {f"model-{i}" for i in range(4)}
    place = f"{HOME}/job_word_emb/output is {HOME}/jobs/paddle-cluster-job/output"
    assert place in walked["pfs cp"].err
    assert set(laptop.gateway.users) == {"user1"}  # every connection presented the certificate


def test_get_jobs_lists_running_ones_and_all_with_a(laptop, walked):
    assert [row.split()[:2] for row in walked["running"].out.splitlines()[1:]] == [
        ["paddle-cluster-job", "4"]
    ]
    ended = laptop.ok("paddlecloud get jobs")
    assert ended.out.count("\n") == 1 and "not listed: 1 ended job (`paddlecloud jobs -a`" in ended.err
    assert laptop.ok("paddlecloud get -a jobs").out.splitlines()[1].split()[:3] == [
        "paddle-cluster-job",
        "0",
        "4",
    ]
    assert laptop.ok("paddlecloud get workers paddle-cluster-job").out.count("Succeeded") == 4
    assert "Memory" in laptop.ok("paddlecloud get quota").out


def test_entry_defaults_to_paddle_train(laptop, walked):
    ran = laptop.ok("paddlecloud submit -jobname plain -pservers 0 ./job_word_emb")
    assert "without -entry and -topology, the trainers run `paddle train`\n" in ran.err
    laptop.ok("paddlecloud logs -f plain")
    assert laptop.ok("paddlecloud logs -n 1 plain").out.endswith("ran: paddle train\n")
    assert laptop.ok(f"paddlecloud pfs ls {HOME}/plain").out.count(f" {HOME}/jobs/plain/") == 2
    laptop.ok("paddlecloud kill -rm plain")
    assert laptop.type(f"paddlecloud pfs ls {HOME}/plain").code == 1


def test_files_are_copied_listed_and_removed(laptop):
    for name in ("a.txt", "b.txt"):
        (laptop.folder / name).write_text(name)
    laptop.ok(f"paddlecloud pfs cp a.txt b.txt {HOME}/several")
    assert laptop.ok(f"paddlecloud pfs ls {HOME}/several").out.count(".txt") == 2
    laptop.ok(f"paddlecloud pfs cp {HOME}/several/a.txt {HOME}/several/b.txt ./back")
    assert (laptop.folder / "back" / "b.txt").read_text() == "b.txt"
    laptop.ok(f"paddlecloud pfs rm {HOME}/several/a.txt {HOME}/several/b.txt")
    assert ".txt" not in laptop.ok(f"paddlecloud pfs ls {HOME}/several").out


def test_both_programs_have_one_name_for_the_datacenter(laptop, walked):
    assert "datacenter1" in laptop.ok("pai cluster.list").out
    assert "paddle-cluster-job" in laptop.ok("pai job.list -a datacenter1").out
    assert "train/" in laptop.ok(f"inv storage.ls {HOME}/job_word_emb").out
    assert "train" in laptop.ok(f"pai paddle.pfs-ls {HOME}/job_word_emb").out


def test_the_api_answers_as_printed(laptop, walked):
    trust = {"cert": str(laptop.keys / "both.pem"), "verify": str(laptop.trusted), "timeout": 60}
    address = f"https://{laptop.gateway.address}/api/v1/jobs"
    (laptop.storage / "job_word_emb" / "train.py").write_text("print('trained')")
    answer = requests.post(address, json=DESIGNED, **trust)
    assert answer.json() == {"code": 200, "msg": "OK"}
    listed = requests.get(address, **trust).json()
    assert listed["code"] == 200 and DESIGNED in listed["msg"] and len(listed["items"]) == len(listed["msg"])
    laptop.ok("paddlecloud logs paddle-job -f")
    assert laptop.ok("paddlecloud logs paddle-job").out.count("trained\n") == 3


def test_a_certificate_works_with_a_password_and_alone_only_where_it_is_enough(laptop, walked):
    token = laptop.gateway.tokens.pop("user1")
    try:
        ran = laptop.type("paddlecloud get quota")
        assert ran.code == 1 and ran.err.count("\n") == 1
        assert "does not accept the certificate alone; give a password, too" in ran.err
        listed = LISTED_CONFIG.format(password=PASSWORD, folder=laptop.keys, host=laptop.gateway.address)
        laptop.configure(listed)
        assert "Memory" in laptop.ok("paddlecloud get quota").out
        assert "train" in laptop.ok(f"paddlecloud pfs ls {HOME}/job_word_emb").out
    finally:
        laptop.gateway.tokens["user1"] = token
        laptop.configure(laptop.config)


def test_a_missing_certificate_or_a_public_key_file_is_reported_in_one_line(laptop):
    without = re.sub("user(cert|key):.*", "", laptop.config) + "  password: x\n"
    laptop.configure(without.replace("endpoint: ", "endpoint: https://"))
    refused = laptop.type("paddlecloud get quota")
    assert refused.code == 1 and "demands a client certificate; name yours in ~/.paddle/config" in refused.err
    laptop.configure(laptop.config.replace("user-key.pem", "none.pem"))
    missing = laptop.type("paddlecloud get quota")
    assert missing.code == 1 and f"cannot read {laptop.keys}/none.pem: No such file" in missing.err
    laptop.configure(laptop.config)
    (laptop.keys / "user-key.pem").chmod(0o644)
    warned = laptop.ok("paddlecloud get quota")
    assert f"warning: other users can read the private key {laptop.keys}/user-key.pem" in warned.err
    (laptop.keys / "user-key.pem").chmod(0o600)
    for ran in (refused, missing, warned):
        assert ran.err.count("\n") == 1 and "PRIVATE KEY" not in ran.err
