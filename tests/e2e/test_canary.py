"""Planted secrets: run every command, then search its output, all files and the process list."""

from __future__ import annotations

import copy
import json
import os
import pty
import re
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
import yaml

from tests import starts
from tests.conftest import Ran, Shell, end_portals, make_shell
from tests.forkserver import FRESH
from tests.leaks import files_with
from tests.server.conftest import Api
from tests.starts import Start

pytestmark = pytest.mark.timeout(600)  # runs every command

PASSWORD = "canary-password-3f9a"
SECRET = "canary-job-secret-77c1"
STORAGE = "canary-storage-key-1d2e"
VARIABLE = "canary-variable-b804"
LOGIN = "canary-login-5e0d"
HOOK = "canary-hook-0a1b"

GIVEN = {"T": SECRET, "AWS_SECRET_ACCESS_KEY": VARIABLE, "OPENPAI_STORAGE_PASSWORD": LOGIN}
GIVEN |= {"HOOK": f"http://127.0.0.1:9/{HOOK}"}  # nothing listens there
"""The variables of the user who runs the commands."""

RUNS = {
    "cluster.add": ["again {uri} --user ann --password-file {project}/password", "broken {uri} --user ann"],
    "cluster.delete": ["again", "nothing"],
    "cluster.edit": ["--editor true"],
    "cluster.info": ["lab"],
    "cluster.list": [""],
    "cluster.portal": ["--no-browser", "--stop"],
    "cluster.resources": ["--fits --gpu 1", ""],
    "cluster.report": ["--by sweep", "lab"],
    "cluster.select": ["lab"],
    "cluster.start": [""],
    "cluster.clean": ["--preview"],
    "cluster.status": [""],
    "cluster.restart": [""],
    "cluster.stop": [""],
    "cluster.update": ["lab", "lab --user ann --password-file {project}/wrong"],
    "config.completion": ["bash"],
    "config.doctor": ["", "-v"],
    "config.init": ["{project}/new"],
    "config.notify": ["env:HOOK --test", "env:HOOK", ""],
    "config.set": ["cpu=1"],
    "config.show": [""],
    "config.trust": [""],
    "config.unset": ["cpu"],
    "config.untrust": [""],
    "container.build": ["--tag nothing:1 {project}/no-folder"],
    "container.check": ["no-such-image:1"],
    "container.dockerfile": ["--file -"],
    "container.extend": ["secretive --timeout 1h"],
    "container.forward": ["nothing 80 -R 9000", "-R 0"],
    "container.get": ["nothing a b"],
    "container.images": [""],
    "container.key": ["nothing"],
    "container.list": ["secretive", ""],
    "container.push": ["no-such-image:1"],
    "container.put": ["nothing a b"],
    "container.run": ["nothing true"],
    "container.ssh": ["nothing"],
    "container.ssh-config": ["nothing"],
    "container.start": ["--cpu 0"],
    "container.stop": ["nothing"],
    "container.top": ["secretive"],
    "job.config": ["secretive", "nothing"],
    "job.connect": ["secretive"],
    "job.compare": ["secretive wrong"],
    "job.diff": ["secretive wrong", "local:shown local:shown --code"],
    "job.list": ["", "--idle"],
    "job.logs": ["secretive", "secretive --structured"],
    "job.metrics": ["secretive"],
    "job.move": ["secretive --first"],
    "job.new": ["no-such-template {project}/new.yaml"],
    "job.open": ["secretive --no-browser"],
    "job.outputs": ["secretive"],
    "job.sources": ["shown --to {project}/sent -a local", "shown --diff -a local", "secretive"],
    "job.tensorboard": ["secretive --no-browser"],
    "job.resubmit": [
        "secretive --preview",
        "secretive --job-name secretive-2 --max-time 9m",
        "first --job-name first-2 --with-dependents -a local",
    ],
    "job.results": ["secretive"],
    "job.schema": [""],
    "job.status": ["secretive", "wrong"],
    "job.stop": ["secretive"],
    "job.sub": [
        "true --secret T --keep-failed 1h --preview",
        "true --secret T --gpu 9999 --preview --job-name bad/name",
        "true --secret T --sources {project}/missing",
        "true --notify env:HOOK --preview -a local",
        "true --notify env:HOOK",  # refused, as ann does not own the server
    ],
    "job.submit": ["{project}/document.yaml --preview", "{project}/password"],
    "job.templates": [""],
    "job.validate": ["{project}/document.yaml", "{project}/password"],
    "job.wait": ["secretive", "wrong"],
    "job.why": ["secretive", "wrong"],
    "notebook.fetch": ["nothing"],
    "notebook.local": ["{project}/missing.ipynb"],
    "notebook.pull": ["nothing"],
    "notebook.resubmit": ["nothing"],
    "notebook.run": [
        "{project}/book.ipynb --secret T -a local --to ipynb",
        "{project}/book.ipynb --secret T -a local --preview",
    ],
    "notebook.serve": ["{project}/missing.ipynb"],
    "paddle.get": ["jobs", "quota", "workers -a"],
    "paddle.jobs": ["--all"],
    "paddle.kill": ["nothing"],
    "paddle.logs": ["", "nothing"],
    "paddle.pfs-cp": ["{project}/few/one.txt /pfs/local/home/nobody/x", "{project}/few nowhere"],
    "paddle.pfs-ls": ["/pfs/local/home/nobody"],
    "paddle.pfs-mkdir": ["/pfs/local/home/nobody/made"],
    "paddle.pfs-rm": ["/pfs/local/home/nobody/made --recursive --yes"],
    "paddle.submit": [
        "{project}/few -e true --preview",
        "{project}/few -e true --jobname packaged",
        "nowhere -e x",
    ],
    "storage.add": [
        "share --type samba --address //127.0.0.1:1/data --user ann --password-file {project}/key",
        "share --type s3 --address http://127.0.0.1:1 --path bucket --user ann --password-file {project}/key",
    ],
    "storage.cat": ["pai://local/home/a.txt", "pai://lab/share/a"],
    "storage.clean": ["--yes -a local", "pai://local/home --preview"],
    "storage.copy": ["{project}/few/one.txt pai://local/home/a.txt", "pai://lab/share/a {project}/got"],
    "storage.du": ["pai://local/home"],
    "storage.find": ["pai://local/home"],
    "storage.forget": ["share", "nothing"],
    "storage.getinfo": ["pai://local/home/a.txt"],
    "storage.head": ["pai://local/home/a.txt"],
    "storage.list": [""],
    "storage.listdir": ["pai://local/home", "pai://lab/share"],
    "storage.makedir": ["pai://local/home/made"],
    "storage.mount": ["pai://lab/share {project}/few"],  # which is not empty
    "storage.pack": ["{project}/few pai://local/home/packed"],
    "storage.remove": ["pai://local/home/made --recursive --yes"],
    "storage.select": ["home -a local"],
    "storage.sync": ["pai://local/home/made {project}/synced"],
    "storage.tree": ["pai://local/home"],
    "storage.unmount": ["{project}/few"],
    "storage.unpack": ["pai://local/home/packed {project}/unpacked"],
    "storage.usage": ["-a local"],
}
"""How each task is run, with good and bad arguments; a new task needs a row."""

PRINTS_SECRETS = {"cluster.credentials": "it prints a token on purpose"}


SETTLED = 20
"""Looks at a process after which its command line hardly changes: then only every twentieth look is taken."""


@dataclass
class World:
    """A cluster run by somebody else, a user of it, and the recorded outputs and processes."""

    server: Shell
    user: Shell
    uri: str
    token: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)
    variables: set[bytes] = field(default_factory=set)
    environments: dict[str, bytes] = field(default_factory=dict)

    @property
    def canaries(self) -> tuple[str, ...]:
        return (PASSWORD, SECRET, STORAGE, VARIABLE, LOGIN, HOOK, self.token)

    @property
    def links(self) -> set[str]:
        """The secret parts of the links that sign in once."""
        pages = [page.read_text() for page in (self.user.home / "browser").iterdir()]
        return set(re.findall(r"/open/([\w-]+)", "\n".join((*pages, *self.outputs.values()))))

    @property
    def starts(self) -> list[Start]:
        """What the commands, the user's embedded cluster and the portal have started."""
        return starts.recorded(self.user.home.with_name("starts"))

    def run(self, name: str, *argv: str, **environment: str) -> Ran:
        ran = self.user.run("pai", *argv, **GIVEN, **environment)
        key = " ".join(argv)
        self.outputs[f"{name}: {key}"] = ran.out + ran.err
        return ran


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server, user = (make_shell(tmp_path_factory.mktemp(name)) for name in ("server", "user"))
    server.environment["LOGNAME"] = "operator"  # whoever runs the tests, ann is another user
    try:
        started = server.pai("cluster.start", AWS_SECRET_ACCESS_KEY=VARIABLE, **FRESH)
        assert started.code == 0, started
        made = World(server, user, _with_user(server))
        _write_project(user.project)
        user.environment[starts.VARIABLE] = str(user.home.with_name("starts"))
        with _watched_processes(made):
            _use_everything(made)
            yield made
    finally:
        user.pai("cluster.stop")
        end_portals(user.home)
        server.pai("cluster.stop")


def _with_user(server: Shell) -> str:
    """Create the user ann there, and return the address of the cluster."""
    access = server.pai("cluster.credentials", "local", "-o", "json").json()
    admin = Api(access["rest_server_uri"], access["token"], checked=False)
    created = admin.call(
        "POST", "/api/v2/users", json={"username": "ann", "password": PASSWORD, "virtualCluster": ["default"]}
    )
    assert created.status_code == 201, created.text
    return str(access["uri"])


def _write_project(folder: Path) -> None:
    for name, text in {"password": PASSWORD, "wrong": f"{PASSWORD}-but-wrong", "key": STORAGE}.items():
        (folder / name).write_text(text)
    document = {
        "protocolVersion": 2,
        "name": "from-a-file",
        "type": "job",
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "busybox"}],
        "taskRoles": {
            "main": {
                "dockerImage": "image",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
                "commands": ["test <% $secrets.word %>"],
            }
        },
        "secrets": {"word": SECRET},
    }
    (folder / "document.yaml").write_text(yaml.safe_dump(document))
    (folder / "few").mkdir()
    (folder / "few" / "one.txt").write_text("one")
    cells = ['import os\nprint(len(os.environ["T"]))', "1 / 0"]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbformat.write(notebook, folder / "book.ipynb")


def _use_everything(world: World) -> None:
    """Log in, run a job that uses its secret and one that fails, then run each command of the table."""
    password = str(world.user.project / "password")
    added = world.run(
        "cluster.add", "cluster.add", "lab", world.uri, "--user", "ann", "--password-file", password
    )
    assert added.code == 0, added
    world.token = yaml.safe_load((world.user.home / "credentials.yaml").read_text())[0]["token"]
    assert world.run("cluster.select", "cluster.select", "lab").code == 0
    for name, command in {"secretive": "test -n $T", "wrong": "test -z $T"}.items():
        line = ("job.sub", command, "--secret", "T", "--job-name", name, "--cpu", "1", "--follow")
        ran = world.run("job.sub", *line)
        assert ran.code == (0 if name == "secretive" else 1), ran
    _run_a_chain(world)
    shown = ("job.sub", "true", "-j", "shown", "-a", "local", "--sources", "few", "--follow")
    assert world.run("job.sub", *shown, "--notify", "env:HOOK").code == 0
    for words in (["cluster.portal"], ["job.open", "shown", "-a", "local"], ["job.open", "secretive"]):
        _open_browser(world, *words)
    for name, lines in RUNS.items():
        for line in lines:
            words = line.format(uri=world.uri, project=world.user.project).split()
            world.run(name, "-d", name, *words, INVOKE_OPENPAI_OUTPUT="json")


def _run_a_chain(world: World) -> None:
    """Run a job that fails once another one waits for its success."""
    go = world.user.project / "go"
    jobs = {"first": f"until test -e {go}; do sleep 0.1; done; test -z $T", "next": "true"}
    for name, command in jobs.items():
        after = ("--after", "first") if name == "next" else ()
        line = ("job.sub", command, "--secret", "T", "-j", name, "-a", "local", "--cpu", "1")
        ran = world.run("job.sub", *line, *after)
        assert ran.code == 0, ran
    go.touch()
    world.run("job.wait", "job.wait", "next", "-a", "local")


def _open_browser(world: World, *words: str) -> None:
    """Run a command that opens the browser, which it does only for somebody at a terminal."""
    shell, (screen, terminal) = copy.copy(world.user), pty.openpty()
    shell.environment = {**shell.environment, **GIVEN, "DISPLAY": ":99", "BROWSER": "test %s"}
    with shell.start("pai", *words, stderr=terminal) as process:
        os.close(terminal)
        world.outputs[f"browser: {' '.join(words)}"] = process.stdout.read() if process.stdout else ""
    os.close(screen)
    assert process.returncode == 0


class _watched_processes:
    """Record every command line on this machine, and the variables of the processes that we start."""

    def __init__(self, world: World) -> None:
        self._world, self._over = world, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        looks: dict[str, int] = {}
        ours = [os.fsencode(shell.home) for shell in (self._world.server, self._world.user)]
        while not self._over.wait(0.05):
            looks = {pid: looks.get(pid, -1) + 1 for pid in filter(str.isdigit, os.listdir("/proc"))}
            for pid in (pid for pid, number in looks.items() if number < SETTLED or number % SETTLED == 0):
                with suppress(OSError):  # it has ended
                    words = _read(f"/proc/{pid}/cmdline")
                    line = words.replace(b"\0", b" ").decode("utf-8", "replace")
                    is_new = line not in self._world.processes
                    self._world.processes.add(line)
                    if is_new and any(home in (held := _read(f"/proc/{pid}/environ")) for home in ours):
                        self._world.variables.update(held.split(b"\0"))
                    is_server = "openpai_tasks.server" in line or "runner.py" in line
                    if is_server and any(home in words for home in ours):  # not that of another test
                        # The last sample counts: a server restarts itself without forbidden variables.
                        self._world.environments[pid] = _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    with open(path, "rb", 0) as file:
        return file.read()


def _holders(folder: Path, word: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in files_with(word, folder)}


def test_every_task_is_run(world: World) -> None:
    listed = json.loads(world.user.pai("--list", "-F", "json").out)["collections"]
    tasks = {f"{group['name']}.{task['name']}" for group in listed for task in group["tasks"]}
    assert tasks == RUNS.keys() | PRINTS_SECRETS.keys()


def test_no_command_shows_a_secret(world: World) -> None:
    assert world.token
    words = (*world.canaries, "token=ey")  # "token=ey" is how a token in the URL of a log begins
    assert [(line, word) for line, text in world.outputs.items() for word in words if word in text] == []


def test_no_command_prints_an_internal_traceback(world: World) -> None:
    assert [
        line for line, text in world.outputs.items() if "Traceback" in text and "task failed" not in text
    ] == []


def test_no_command_line_shows_a_secret(world: World) -> None:
    assert any("openpai_tasks.server" in line for line in world.processes)
    assert len(world.links) == 3  # two for the browser, one printed
    lines = world.processes.union(start.line for start in world.starts)
    secrets = (*world.canaries, *world.links)
    assert [(line, word) for line in lines for word in secrets if word in line] == []


def test_browser_gets_pages_and_no_links_that_sign_in(world: World) -> None:
    started = [shlex.split(start.line) for start in world.starts]
    opened = [words[1] for words in started if words[0] == "test"]
    assert [urlsplit(address).scheme for address in opened] == ["file", "file", "http"], opened


def test_only_our_own_programs_get_the_variables_with_logins(world: World) -> None:
    given = f"OPENPAI_STORAGE_PASSWORD={LOGIN}"
    others = [start for start in world.starts if "-m openpai_tasks.portal" not in start.line]
    assert {Path(start.line.split()[0]).name for start in others} >= {"git", "test", "true"}
    assert [start.line for start in others if given in start.variables] == []
    assert given.encode() not in world.variables


def test_no_variable_holds_what_was_typed_or_received(world: World) -> None:
    found = world.variables.union(os.fsencode(text) for start in world.starts for text in start.variables)
    secrets = (PASSWORD, STORAGE, world.token, *world.links)
    assert [(text, word) for text in found for word in secrets if word.encode() in text] == []


def test_server_processes_do_not_inherit_secret_variables(world: World) -> None:
    held = [text for text in world.environments.values() if text]
    assert held
    assert not [text for text in held if VARIABLE.encode() in text or SECRET.encode() in text]


def test_the_users_home_holds_secrets_only_in_the_credentials_file(world: World) -> None:
    for word in (PASSWORD, world.token):
        assert _holders(world.user.home, word) == {"credentials.yaml"}
    assert os.stat(world.user.home / "credentials.yaml").st_mode & 0o777 == 0o600
    assert _holders(world.user.home, VARIABLE) == set()


def test_project_holds_only_the_secrets_that_the_user_put_there(world: World) -> None:
    planted = {"password", "wrong", "key", "document.yaml"}
    for word in world.canaries:
        assert _holders(world.user.project, word) <= planted


def test_server_keeps_only_the_secrets_it_needs(world: World) -> None:
    """It keeps the tokens it issued, to revoke them, and the documents of jobs, to run them again."""
    for word in (PASSWORD, STORAGE, VARIABLE):
        assert _holders(world.server.home, word) == set()
    for word in (SECRET, world.token):
        assert {Path(name).name.partition("-")[0] for name in _holders(world.server.home, word)} <= {
            "cluster.db"
        }
    assert _tables_with(world.server.home / "local" / "cluster.db", SECRET) == {"jobs.source"}
    assert _tables_with(world.user.home / "local" / "cluster.db", HOOK) == {"hooks.hook"}
    assert _tables_with(world.server.home / "local" / "cluster.db", world.token) == {"account_tokens.token"}


def _tables_with(database: Path, word: str) -> set[str]:
    """Return the columns, as ``table.column``, with a value that contains the word."""
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows: list[tuple[str, Any]] = [
            (table, row) for table in tables for row in connection.execute(f"SELECT * FROM {table}")
        ]
    return {f"{table}.{name}" for table, row in rows for name in dict(row) if word in str(row[name])}
