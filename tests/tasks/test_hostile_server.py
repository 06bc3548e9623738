"""A server whose texts all attack the terminal, queried by real commands in every format."""

from __future__ import annotations

import json
import os
import pty

import pytest
import yaml

from tests.attacks import ALL, ATTACKS, forbidden
from tests.forkserver import BIN, start
from tests.scripted import Reply, Scripted

API = "/rest-server/api"
JOB = "alice~x"
TEXT = ALL.replace("\udcff\ud800", "")  # what a server can send as UTF-8
ROLE = f"role{TEXT}"
FORMATS = ("table", "json", "yaml", "csv")
DOCUMENT = {
    "protocolVersion": 2,
    "name": "x",
    "type": "job",
    "taskRoles": {ROLE: {"commands": [TEXT, f"echo {TEXT}"]}},
}


def status(state="FAILED"):
    task = {
        "taskIndex": 0,
        "taskState": TEXT,
        "containerIp": TEXT,
        "containerPorts": {f"http{TEXT}": TEXT},
        "containerExitDiagnostics": TEXT,
        "containerLog": "/logs",
    }
    detail = {
        "username": "alice",
        "state": state,
        "virtualCluster": f"vc{TEXT}",
        "appExitCode": 255,
        "appExitDiagnostics": TEXT,
        "submissionTime": 1e300,
    }
    other = {**task, "taskState": "FAILED"}
    roles = {ROLE: {"taskStatuses": [task, {**other, "taskIndex": 1}]}}
    return {"name": "x", "jobStatus": detail, "taskRoles": roles, "tags": [TEXT]}


def row():
    return {
        "name": f"job{TEXT}",
        "username": f"user{TEXT}",
        "state": f"state{TEXT}",
        "virtualCluster": TEXT,
        "submissionTime": 1700000000000,
        "tags": [TEXT],
    }


@pytest.fixture
def server():
    info = {"name": "PAI RESTful API", "version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic"}
    event = {"type": TEXT, "reason": TEXT, "message": TEXT}
    part = {"resourcesUsed": {}, "resourcesTotal": {}, "capacity": TEXT, "status": TEXT}
    answers = {
        f"GET {API}/v2/info": {**info, "extra": TEXT},
        f"GET {API}/v2/jobs": [row()],
        f"GET {API}/v2/jobs/{JOB}": status(),
        f"GET {API}/v2/jobs/{JOB}/config": json.dumps(DOCUMENT),
        f"GET {API}/v2/jobs/alice~y/config": json.dumps({**DOCUMENT, "name": TEXT}),
        f"GET {API}/v2/jobs/{JOB}/events": {"data": [event]},
        f"GET {API}/v2/jobs/alice~y": status(),
        f"GET {API}/v2/jobs/alice~z": Reply({"code": TEXT, "message": TEXT}, 403),
        f"GET {API}/v2/virtual-clusters": {f"vc{TEXT}": part},
        f"GET {API}/v2/storages": {"storages": [{"name": f"store{TEXT}", "share": True, "volumeName": TEXT}]},
        f"GET {API}/v1/user/alice": {
            "username": "alice",
            "virtualCluster": [TEXT],
            "extension": {TEXT: TEXT},
        },
    }
    server = Scripted(answers)
    yield server
    server.close()


@pytest.fixture
def evil(project, server):
    added = project.pai("cluster.add", "evil", server.uri, "--user", "alice", "--token", "t", "--no-check")
    assert added.code == 0, added
    project.pai("cluster.select", "evil")
    return project


COMMANDS = {
    "job.list": ("job.list", "--user", "all"),
    "job.status": ("job.status", "x"),
    "job.config": ("job.config", "x"),
    "job.diff": ("job.diff", "x", "y"),
    "job.why": ("job.why", "x"),
    "job.stop": ("job.stop", "z"),
    "job.wait": ("job.wait", "x"),
    "job.results": ("job.results", "x"),
    "job.metrics": ("job.metrics", "x"),
    "cluster.list": ("cluster.list",),
    "cluster.info": ("cluster.info",),
    "cluster.update": ("cluster.update",),
    "cluster.resources": ("cluster.resources",),
    "storage.list": ("storage.list",),
    "container.list": ("container.list", "x"),
    "storage.select": ("storage.select", f"no{TEXT}"),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_text_from_the_server_cannot_control_the_terminal(evil, command, form):
    ran = evil.pai(*command, "--output", form)
    assert ran.out or ran.err
    assert not forbidden(ran.out + ran.err)
    assert "Traceback" not in ran.err


FAILING = ("job.status z", "job.connect x", "job.logs z", "job.open x --no-browser")


@pytest.mark.parametrize("command", FAILING)
def test_text_quoted_in_an_error_cannot_control_the_terminal(evil, command):
    ran = evil.pai(*command.split())
    assert ran.code or ran.out
    assert not forbidden(ran.out + ran.err) and "Traceback" not in ran.err


def test_server_cannot_add_lines_to_an_error(evil):
    ran = evil.pai("job.status", "z")
    assert ran.err.count("\n") == 1 and ran.err.startswith("error: ")


def test_debug_output_cannot_control_the_terminal(evil):
    ran = evil.pai("--debug", "job.status", "z")
    assert "error: " in ran.err and not forbidden(ran.err)


def test_json_and_yaml_contain_the_exact_text_from_the_server(evil):
    name = f"job{TEXT}"
    assert evil.pai("job.list", "--user", "all", "-o", "json").json()[0]["name"] == name
    listed = yaml.safe_load(evil.pai("job.list", "--user", "all", "-o", "yaml").out)
    assert listed[0]["name"] == name and listed[0]["tags"] == [TEXT]
    assert yaml.safe_load(evil.pai("job.config", "x").out) == DOCUMENT


def test_cached_completion_names_are_plain_text(evil, tmp_path):
    evil.pai("job.list", "--user", "all")
    evil.pai("storage.list")
    kept = [file.read_text() for file in (tmp_path / "home/cache/names").rglob("*") if file.is_file()]
    assert kept and not forbidden("".join(kept))


# Output of tasks


@pytest.fixture
def logging(server):
    """Two tasks that wrote the attacks to their logs."""
    logs = {"all": "/log", "stdout": "/log"}
    for at in (0, 1):
        path = f"{API}/v2/jobs/{JOB}/attempts/0/taskRoles/{role_path()}/taskIndex/{at}/attempts/0/logs"
        server.answers[f"GET {path}"] = {
            "locations": [{"name": name, "uri": uri} for name, uri in logs.items()]
        }
    server.answers["GET /log"] = Reply("größe\x1b[31mred\x1b[0m\x9b2J\u202e\n10%\r20%\n", 206)


def role_path():
    from urllib.parse import quote

    return quote(ROLE, safe="")


def test_logs_are_raw_except_for_their_labels(evil, logging):
    raw = evil.pai("job.logs", "x")
    assert raw.code == 0, raw
    line = raw.out.split("\n")[0]
    label, _, text = line.partition("] ")
    assert label.startswith("[role") and not forbidden(label)
    assert text == "größe\x1b[31mred\x1b[0m\x9b2J\u202e"


def test_plain_logs_contain_no_control_characters(evil, logging):
    ran = evil.pai("job.logs", "x", "--plain")
    assert not forbidden(ran.out)
    lines = [line.rpartition("] ")[2] for line in ran.out.split("\n")[:3]]
    assert lines == [r"größered\x9b2J\u202e", "10%", "20%"]


# Names of files


@pytest.fixture
def folder(project):
    attacks = [attack for name, attack in ATTACKS.items() if name not in ("nul", "surrogate")]
    names = [f"a{attack}.txt".replace("/", "") for attack in attacks]
    for name in [*names, "b\udcff.txt"]:
        (project.folder / name).write_bytes(b"x")
    return project


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "command", ["storage.ls .", "storage.find .", "storage.tree .", "storage.du .", "storage.copy . ../there"]
)
def test_file_names_cannot_control_the_terminal(folder, command, form):
    ran = folder.pai(*command.split(), "--output", form)
    assert ran.code == 0 and not forbidden(ran.out + ran.err)


def test_file_names_are_exact_in_json(folder):
    listed = folder.pai("storage.ls", ".", "-o", "json").json()
    assert sorted(row["name"] for row in listed) == sorted(os.listdir(folder.folder))


def test_previews_and_errors_show_file_names_as_plain_text(folder):
    for command in ("storage.copy . ../there --preview", f"storage.rm missing{ATTACKS['clear']}"):
        ran = folder.pai(*command.split(" "))
        assert not forbidden(ran.out + ran.err)


def test_confirmation_prompt_shows_file_names_as_plain_text(tmp_path):
    """Uses a real terminal, because prompts appear nowhere else."""
    folder = tmp_path / f"full{ATTACKS['clear']}{ATTACKS['bidi']}"
    folder.mkdir()
    (folder / "x").touch()
    main, side = pty.openpty()
    words = [str(BIN / "pai"), "storage.rm", "-r", folder.name]
    environment = {**os.environ, "OPENPAI_HOME": str(tmp_path / "home")}
    with start(words, tmp_path, environment, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(main, 4096)
        os.write(main, b"n\n")
        process.wait()
    os.close(main)
    assert b"remove " in shown and not forbidden(shown.decode().replace("\r", ""))
    assert (folder / "x").exists()
