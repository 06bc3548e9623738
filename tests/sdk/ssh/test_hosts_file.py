"""The files that tell OpenSSH and Fabric about containers, read by the real programs."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, ConfigError, TimedOut, Unreachable
from openpai_tasks.protocol.models import event_from_body, job_from_detail
from openpai_tasks.sdk.containers import endpoints, interactive
from openpai_tasks.sdk.fabric_hosts import tasks_of
from openpai_tasks.sdk.ssh import hosts_file, user_config
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.host_keys import gateways_file
from openpai_tasks.sdk.ssh.login_errors import HostKeyChanged
from openpai_tasks.sdk.ssh.target import Gateway, gateway
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.conftest import BIN
from tests.scripted import Reply, Scripted
from tests.sdk import sshd_server
from tests.sdk.sshd_server import refusing_port

EVIL = "127.0.0.1\n  ProxyCommand touch owned"
PATH = "GET /rest-server/api/v2/jobs/ann~train"
LIST = "GET /rest-server/api/v2/jobs"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with sshd_server.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder of a user who has nothing in it yet."""
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("OPENPAI_HOME", str(user / ".openpai"))
    return user


@pytest.fixture
def server():
    server = Scripted({PATH: detail()})
    yield server
    server.close()


def detail(ip="127.0.0.1", role="main", state="RUNNING"):
    task = {"taskIndex": 0, "taskState": "RUNNING", "containerIp": ip, "containerId": "pod-2"}
    task["containerPorts"] = {"ssh": "22"}
    status = {"username": "ann", "state": state}
    return {"name": "train", "jobStatus": status, "taskRoles": {role: {"taskStatuses": [task]}}}


def client_of(server):
    return Client(Cluster("lab", server.uri, "ann"), Credentials("lab", token="t"), Settings(http_timeout=30))


def job():
    return job_from_detail(detail(), "ann~train")


def written(client, target, *names):
    return hosts_file.write_hosts(
        client, job(), [hosts_file.Host(names or ("train", "train-main-0"), target)]
    ).path


def opened(client, settings):
    found = endpoints.reach(client, "train", settings)
    return endpoints.open_remote(client, found, endpoints.first_running(found), settings)


def seen_by_ssh(path, host="train"):
    """The options that OpenSSH reads from the file."""
    done = subprocess.run(["ssh", "-G", "-F", str(path), host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def ssh(*words, **more):
    return subprocess.run(["ssh", *map(str, words)], capture_output=True, text=True, timeout=60, **more)


# Values from the server


@pytest.mark.parametrize("ip", [EVIL, "-oProxyCommand=x", "a b", "%h", "$(x)", "a;b"])
def test_an_invalid_address_from_a_server_is_refused(server, home, ip):
    server.answers[PATH] = detail(ip)
    with pytest.raises(ApiError, match="reports an invalid address") as caught:
        endpoints.reach(client_of(server), "train", Settings())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("user", [EVIL, "-oProxyCommand=x", "a b", ""])
def test_an_invalid_user_is_refused_in_one_line(server, home, user):
    with pytest.raises(ConfigError, match=r"ssh\.user"):
        endpoints.reach(client_of(server), "train", Settings(ssh_user=user))


@pytest.mark.parametrize("text", [f"ann@{EVIL}:22", "a b@host", "ann@ho st:22", "ann@%h", "-x@host"])
def test_gateway_that_could_inject_ssh_options_is_refused(text):
    with pytest.raises(ConfigError, match=r"ssh\.gateway"):
        gateway(Settings(ssh_gateway=text))


def test_gateway_may_be_an_ipv6_address():
    assert gateway(Settings(ssh_gateway="ann@[::1]:2222")).host == "::1"


@pytest.mark.parametrize("part", ["host", "user", "name", "role", "key", "pattern"])
def test_value_that_could_inject_ssh_options_is_not_written(home, sshd, tmp_path, part):
    target, names = sshd.target(tmp_path), ("train",)
    if part in ("role", "pattern"):
        names = (f"train-{EVIL if part == 'role' else '*'}-0",)
    else:
        target = dataclasses.replace(target, **{part: EVIL})
    with pytest.raises(ConfigError):
        hosts_file.host_block("lab", job(), [hosts_file.Host(names, target)])


# OpenSSH


def test_users_options_for_all_hosts_do_not_apply_to_containers(server, home, sshd, tmp_path):
    written(client_of(server), sshd.target(tmp_path))
    own = home / ".ssh" / "config"
    own.write_text(
        "Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  ControlMaster auto\n  ControlPath ~/c-%C\n"
    )
    user_config.include_hosts()
    seen = seen_by_ssh(own)
    assert [seen[key] for key in ("forwardagent", "forwardx11", "controlmaster")] == ["no", "no", "false"]
    assert "controlpath" not in seen and seen["identitiesonly"] == "yes"


@pytest.mark.parametrize("folder", ["plain", "50% of it"])
def test_openssh_connects_through_a_gateway_that_it_has_never_seen(server, home, sshd, tmp_path, folder):
    keys = tmp_path / folder
    keys.mkdir()
    for name in ("id", "id.pub"):
        (keys / name).write_bytes((sshd.folder / name).read_bytes())
    (keys / "id").chmod(0o600)
    way = Gateway("127.0.0.1", sshd.port, sshd.target(tmp_path).user, keys / "id")
    target = sshd.target(tmp_path, gateway=way, key=keys / "id", known_hosts=keys / "known")
    path = written(client_of(server), target)
    done = ssh("-F", path, "-o", "BatchMode=yes", "train", "echo in")
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
    assert f"[127.0.0.1]:{sshd.port} " in gateways_file().read_text()
    gateways_file().unlink()
    program, *rest = hosts_file.ssh_command(target)
    done = ssh("-F", "/dev/null", "-o", "BatchMode=yes", *rest, "echo in")
    assert (program, done.returncode, done.stdout) == ("ssh", 0, "in\n"), done.stderr
    Remote(target).open().close()  # and we accept the host key that OpenSSH stored
    assert len(gateways_file().read_text().splitlines()) == 1


def test_an_unreachable_gateway_is_reported_as_such(home, sshd, tmp_path):
    way = Gateway("127.0.0.1", refusing_port(), "ann", sshd.folder / "id")
    with pytest.raises(Unreachable, match=r"the gateway ann@.*ssh\.gateway") as caught:
        Remote(sshd.target(tmp_path, gateway=way)).open()
    assert type(caught.value) is Unreachable  # not an error that is explained by the container


@pytest.mark.parametrize("whose", ["ours", "users"])
def test_error_for_a_changed_gateway_key_names_its_file(home, sshd, tmp_path, whose):
    file = gateways_file() if whose == "ours" else home / ".ssh" / "known_hosts"
    file.parent.mkdir(parents=True, exist_ok=True)
    kind, key, *_ = (sshd.folder / "host2.pub").read_text().split()
    file.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    way = Gateway("127.0.0.1", sshd.port, sshd.target(tmp_path).user, sshd.folder / "id")
    with pytest.raises(HostKeyChanged) as caught:
        Remote(sshd.target(tmp_path, gateway=way)).open()
    advice = str(caught.value).split("`")[1]
    assert str(file) in advice
    subprocess.run(advice, shell=True, check=True, capture_output=True)
    Remote(sshd.target(tmp_path, gateway=way)).open().close()


@pytest.mark.parametrize("way", ["file", "command"])
def test_a_login_has_the_same_protections_by_the_file_and_by_the_command(server, home, sshd, tmp_path, way):
    target = sshd.target(tmp_path, timeout=7.0)
    own = home / ".ssh" / "config"
    path = written(client_of(server), target)
    own.write_text(f"Include {path}\nHost *\n  ForwardAgent yes\n  ForwardX11 yes\n  ControlMaster auto\n")
    words = ["train"] if way == "file" else hosts_file.ssh_command(target)[1:]
    done = ssh("-F", own, "-G", *words, check=True)
    seen = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    names = ("forwardagent", "forwardx11", "controlmaster", "connecttimeout", "serveraliveinterval")
    assert [seen[name] for name in names] == ["no", "no", "false", "7", "15"]
    assert (seen["hostname"], seen["hostkeyalias"], seen["identitiesonly"]) == (
        "127.0.0.1",
        target.name,
        "yes",
    )


# Names that two jobs have


def other_job(server, name):
    body = detail()
    server.answers[f"GET /rest-server/api/v2/jobs/ann~{name}"] = {**body, "name": name}
    return job_from_detail(body, f"ann~{name}")


def test_job_named_like_a_container_loses_only_that_host_name(server, home, sshd, tmp_path):
    client, target = client_of(server), sshd.target(tmp_path)
    other = other_job(server, "train-main-0")
    theirs = dataclasses.replace(target, port=1, name="theirs")
    hosts_file.write_hosts(client, other, [hosts_file.Host(("train-main-0", "train-main-0-main-0"), theirs)])
    done = hosts_file.write_hosts(client, job(), [hosts_file.Host(("train", "train-main-0"), target)])
    assert done.moved == (hosts_file.MovedNames("lab", "ann~train-main-0", ("train-main-0",)),)
    assert seen_by_ssh(done.path, "train-main-0-main-0")["port"] == "1"
    for name in ("train", "train-main-0"):
        assert seen_by_ssh(done.path, name)["port"] == str(target.port)
    assert hosts_file.write_hosts(client, job(), [hosts_file.Host(("train",), target)]).moved == ()


def test_ended_job_is_removed_even_if_it_lost_all_its_host_names(server, home, sshd, tmp_path):
    known = home / ".openpai/known_hosts/far"
    known.parent.mkdir(parents=True)
    known.write_text(line_of("ann~train-main-0-far") + line_of("other"))
    far = Client(Cluster("far", server.uri, "ann"), Credentials("far", token="t"), Settings(http_timeout=30))
    theirs = sshd.target(tmp_path, name="ann~train-main-0-far", known_hosts=known)
    written(far, theirs)
    path = written(client_of(server), sshd.target(tmp_path))
    assert path.read_text().count("Host train ") == 1 and known.read_text().count("\n") == 2
    assert seen_by_ssh(path)["userknownhostsfile"] != str(known)
    server.answers[PATH] = detail(state="SUCCEEDED")
    hosts_file.prune_hosts(far)
    assert known.read_text() == line_of("other")


# The user's own files


def test_host_in_the_users_config_keeps_its_name(server, home, sshd, tmp_path):
    (home / ".ssh" / "config").write_text("Host *.lab other\nhost=train\n  HostName 192.0.2.1\nHost t*\n")
    assert user_config.named_hosts() == {"other", "train"}
    targets = [("main-0", sshd.target(tmp_path))]
    [host] = hosts_file.plan_hosts(client_of(server), job(), targets, user_config.named_hosts())
    assert host.names == ("train-main-0",)


@pytest.mark.parametrize("before", [b"# caf\xe9\nHost a\n", b"# x\r\nHost a\r\n  User b\r\n", b"Host a", b""])
def test_users_ssh_config_keeps_every_byte(home, before):
    path = home / ".ssh" / "config"
    path.write_bytes(before)
    path.chmod(0o644)
    user_config.include_hosts()
    after = path.read_bytes()
    assert after.endswith(before) and after.startswith(b"Include ") and user_config.is_included()
    assert (b"\r\n" in before) == (
        after.count(b"\r\n") == after.count(b"\n")
    ) and path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["config"]


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("Include ~/.openpai/ssh/config", True),
        ('include "~/.openpai/ssh/config"', True),
        ("Include ~/.ssh/more ~/.openpai/ssh/config # both", True),
        ("Include=~/.openpai/ssh/*", True),
        ("Include ../.openpai/ssh/config", True),
        ("Include ~/.ssh/more", False),
        ("# Include ~/.openpai/ssh/config", False),
        ("Host x\nInclude ~/.openpai/ssh/config", False),
    ],
)
def test_include_of_our_file_is_detected(home, line, is_ours):
    (home / ".ssh" / "config").write_text(f"{line}\n")
    assert user_config.is_included() is is_ours


def test_our_and_the_users_fabric_settings_are_distinguished(home):
    assert not user_config.is_fabric_configured() and user_config.fabric_settings() is None
    path = user_config.configure_fabric()
    assert user_config.is_fabric_configured() and user_config.fabric_settings() is None
    path.write_text(path.read_text().splitlines()[0] + "\n# as an older version made it\n")
    assert not user_config.is_fabric_configured() and user_config.fabric_settings() is None
    path.write_text("user = 'me'\n")
    assert user_config.fabric_settings() == path and not user_config.is_fabric_configured()
    path.write_text(f"user = 'me'\n{user_config.FABRIC_LINE}\n")
    assert user_config.fabric_settings() == path and user_config.is_fabric_configured()
    other = home / ".fabric.yaml"
    other.write_text("{}")  # which Fabric reads instead
    assert user_config.fabric_settings() == other and not user_config.is_fabric_configured()
    assert "fab -S" in user_config.fabric_manual(other)


# Fabric


def fab(home, *words, cwd=None):
    environment = {**os.environ, "HOME": str(home), "OPENPAI_HOME": str(home / ".openpai")}
    argv = [str(BIN / "fab"), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, cwd=cwd or home)


@pytest.mark.parametrize("through", [False, True])
def test_fabric_refuses_a_changed_host_key_with_one_line(server, home, tmp_path, through):
    sshd = sshd_server.make(tmp_path / "sshd")
    try:
        sshd.start()
        known = home / ".openpai" / "known_hosts" / "lab"
        user = sshd.target(tmp_path).user
        way = Gateway("127.0.0.1", sshd.port, user, sshd.folder / "id") if through else None
        written(client_of(server), sshd.target(tmp_path, known_hosts=known, gateway=way))
        user_config.configure_fabric()
        done = fab(home, "-H", "train", "--", "echo in")
        assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
        assert known.read_text().split()[0] == "ann~train-main-0-1"
        assert gateways_file().exists() is through
        sshd.stop()
        sshd.start("host2")
        done = fab(home, "-H", "train", "--", "echo in")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (122, "", 1), done.stderr
        file = gateways_file() if through else known
        assert "the host key of" in done.stderr and f"-f {file}" in done.stderr
    finally:
        sshd.stop()


def test_suggested_line_makes_fabric_find_the_hosts(server, home, sshd, tmp_path):
    own, known = home / ".fabric.py", home / ".openpai/known_hosts/lab"
    written(client_of(server), sshd.target(tmp_path, known_hosts=known))
    own.write_text("run = {'echo': True}\n")
    assert fab(home, "-H", "train", "--", "echo in").returncode != 0
    line = user_config.fabric_manual(own).partition(f"{own}: ")[2]
    own.write_text(f"{own.read_text()}{line}\n")
    done = fab(home, "-H", "train", "--", "echo in")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["in"]), (
        done
    )  # after the echo that the user has set
    assert known.read_text().startswith("ann~train-main-0-1 ")


def test_host_unknown_to_fab_is_a_one_line_error(home):
    user_config.configure_fabric()
    done = fab(home, "-H", "gone.invalid", "--", "echo in")
    assert (done.returncode, done.stdout) == (121, "")
    assert done.stderr == (
        "error: unknown host 'gone.invalid'; "
        "if it is a job's, write its names with `pai container.ssh-config JOB`\n"
    )


def test_code_that_catches_gaierror_for_an_unknown_host_still_works(home, tmp_path):
    user_config.configure_fabric()
    (tmp_path / "fabfile.py").write_text(
        "import socket\nfrom fabric import Connection, task\n@task\ndef look(c):\n"
        "    try: Connection('gone.invalid').open()\n"
        "    except socket.gaierror as err: print('caught', err.errno == socket.EAI_NONAME or err.errno)\n"
    )
    done = fab(home, "look", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "caught"), done.stderr


def test_fab_knows_the_tasks_of_a_project_without_a_fabfile(home, tmp_path):
    project = tmp_path / "project"
    (project / "below").mkdir(parents=True)
    (project / "tasks.py").write_text("from invoke import task\n@task\ndef hello(c): pass\n")
    user_config.configure_fabric()
    assert "hello" in fab(home, "--list", cwd=project / "below").stdout
    assert tasks_of(tmp_path) == {}
    (project / "fabfile.py").write_text("from invoke import task\n@task\ndef other(c): pass\n")
    assert "other" in fab(home, "--list", cwd=project / "below").stdout and tasks_of(project) == {}


# Ended jobs


def test_stored_files_of_an_ended_job_are_removed(server, home, sshd, tmp_path):
    client = client_of(server)
    known, key = home / ".openpai/known_hosts/lab", home / ".openpai/keys/lab/ann~train"
    path = written(client, sshd.target(tmp_path, known_hosts=known))
    for file in (known, key):
        file.parent.mkdir(parents=True, exist_ok=True)
    known.write_text("ann~train-main-0-1 ssh-ed25519 AAAA\nann~train-main-0-10 ssh-ed25519 BBBB\n")
    key.write_text("k")
    hosts_file.prune_hosts(client)
    assert "Host train " in path.read_text() and key.exists()
    server.answers[PATH] = detail(state="SUCCEEDED")
    hosts_file.prune_hosts(client)
    assert "Host train " not in path.read_text() and not key.exists()
    assert known.read_text() == "ann~train-main-0-10 ssh-ed25519 BBBB\n"


def line_of(name):
    return f"{name} ssh-ed25519 AAAA\n"


def test_asking_for_an_ended_job_removes_its_host_keys(server, home):
    client, known = client_of(server), home / ".openpai/known_hosts/lab"
    known.parent.mkdir(parents=True)
    known.write_text(line_of("ann~train-main-0-pod-2") + line_of("ann~train-main-0-pod-20"))
    server.answers[PATH] = detail(state="STOPPED")
    with pytest.raises(Unreachable, match="its containers are gone"):
        endpoints.reach(client, "train", Settings())
    assert known.read_text() == line_of("ann~train-main-0-pod-20")


def test_first_connection_to_a_container_removes_keys_of_ended_jobs(server, home, sshd):
    known, keys = home / ".openpai/known_hosts/lab", home / ".openpai/keys/lab"
    for folder in (known.parent, keys):
        folder.mkdir(parents=True)
    stay = line_of("bob~other-main-0-1") + line_of("ann~next-main-0-1")
    known.write_text(line_of("ann~gone-main-0-1") + stay)
    for name in ("ann~gone", "ann~next", "bob~other"):
        (keys / name).write_text("k")
    body = detail()
    body["taskRoles"]["main"]["taskStatuses"][0]["containerPorts"]["ssh"] = str(sshd.port)
    rows = [{"name": name, "username": "ann", "state": "RUNNING"} for name in ("train", "next")]
    server.answers |= {PATH: body, LIST: {"totalCount": 2, "data": rows}}
    given = Settings(ssh_timeout=30, ssh_key=str(sshd.folder / "id"), ssh_user=sshd.target(home).user)
    for _ in range(2):
        opened(client_of(server), given).close()
    assert known.read_text().startswith(f"{stay}ann~train-main-0-pod-2 ssh-ed25519 ")
    assert sorted(path.name for path in keys.iterdir()) == ["ann~next", "bob~other"]
    assert [asked.query["username"] for asked in server.seen if asked.path == LIST[4:]] == ["ann"]


@pytest.mark.parametrize(("pod", "is_its"), [("pod-2", True), (None, True), ("pod-1", False)])
@pytest.mark.parametrize("port", ["silent", "none"])
def test_event_of_another_container_does_not_explain_this_one(server, home, pod, is_its, port):
    note = {"reason": "SshNotServed", "message": "no sshd there", "podUid": pod}
    assert event_from_body(note).container == (pod or "")
    server.answers[f"{PATH}/events"] = {"totalCount": 1, "data": [note]}
    server.answers[f"{PATH}/config"] = Reply("extras: {com.microsoft.pai.runtimeplugin: [{plugin: ssh}]}")
    body = detail()
    ports = {"ssh": str(refusing_port())} if port == "silent" else {}
    body["taskRoles"]["main"]["taskStatuses"][0]["containerPorts"] = ports
    server.answers[PATH] = body
    client, settings = client_of(server), Settings(ssh_timeout=30)
    with pytest.raises(Unreachable) as caught:
        opened(client, settings)
    assert ("no sshd there" in str(caught.value)) is is_its
    with pytest.raises(
        Unreachable if is_its else TimedOut, match="the job continues"
    ):  # with a reason, it does not wait
        interactive.wait_ready(client, "train", settings, 60 if is_its else 0.2, lambda line: None)
