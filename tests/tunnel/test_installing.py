"""`cluster.add --install` on a machine that has nothing but sshd and Python, with a real sshd."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest

from openpai_tasks import __version__
from openpai_tasks.errors import ConfigError, Unreachable
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.server.state.schema import SCHEMA
from openpai_tasks.tunnel import remote_installer
from openpai_tasks.tunnel.installing import install
from openpai_tasks.tunnel.openssh import SharedConnection
from openpai_tasks.tunnel.wheels import Pip
from tests.sdk import sshd_server
from tests.sdk.sshd_server import refusing_port
from tests.tunnel import small_wheels

SSH_CONFIG = """\
Host box
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""


@dataclass
class Box:
    """Another machine, with a home folder of the same user."""

    home: Path
    programs: Path
    said: list[str] = field(default_factory=list)

    @property
    def link(self) -> Path:
        return self.home / ".openpai" / "venv"

    def environments(self) -> set[str]:
        return {path.name for path in self.link.with_name("venvs").glob("[!.]*")}

    def use(self, **settings: str) -> None:
        """Write the profile, with settings of pip."""
        variables = {"PATH": self.programs, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_COMPILE": "1"}
        variables |= {f"PIP_{name.upper()}": value for name, value in settings.items()}
        lines = ["echo Welcome", *(f"export {name}={value}" for name, value in variables.items()), ""]
        (self.home / ".bash_profile").write_text("\n".join(lines))

    def install(self) -> list[str]:
        """Install, and return the lines that were shown."""
        self.said.clear()
        install(parse_ssh("box"), self.said.append)
        return self.said

    def version(self) -> str:
        done = SharedConnection(parse_ssh("box")).run(f"{self.link}/bin/pai --version", 60)
        return done.out.strip() or done.err


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd_server.Sshd]:
    found = sshd_server.make(tmp_path_factory.mktemp("sshd"))
    (found.folder / "home").mkdir()
    found.start(variables=f"HOME={found.folder}/home OPENPAI_HOME=")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages that the program needs to show its version, and pip."""
    folder = tmp_path_factory.mktemp("index")
    for name in ("invoke", "lazy_loader"):
        small_wheels.add_installed(folder, name)
    version = metadata.version("pip")
    (folder / f"pip-{version}-py3-none-any.whl").write_bytes(Pip(folder).pack())
    return folder


@pytest.fixture
def box(sshd: sshd_server.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    python = small_wheels.python_without_ensurepip(tmp_path / "python")
    old = python.with_name("python3")
    old.write_text("#!/bin/sh\necho 9\n")  # as Python 3.9 answers the question which one it is
    old.chmod(0o755)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {sshd.folder}/config "$@"\n')
    (programs / "ssh").chmod(0o755)
    (sshd.folder / "config").write_text(SSH_CONFIG.format(port=sshd.port, folder=sshd.folder))
    public = (sshd.folder / "host.pub").read_text()
    (sshd.folder / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {public}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "openpai"))
    found = Box(sshd.folder / "home", python.parent)
    yield found
    SharedConnection(parse_ssh("box")).remove()
    shutil.rmtree(found.home / ".openpai", ignore_errors=True)


def require(monkeypatch: pytest.MonkeyPatch, folder: Path, *requirements: str) -> None:
    about = small_wheels.require_only(folder, *requirements)
    monkeypatch.setattr(sys, "path", [about, *(path for path in sys.path if path != about)])


def unreachable(login: str = "") -> str:
    return f"http://{login}127.0.0.1:{refusing_port()}/simple"


def test_packages_are_sent_to_a_machine_without_ensurepip_and_index_and_stay_until_an_update_works(
    box: Box, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(monkeypatch, tmp_path, "invoke", "lazy_loader")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", unreachable("ann:secret@"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    box.use(index_url=unreachable())
    small_wheels.add_old_pip(tmp_path / "old")  # which does not run with the Python there
    earlier = box.link / "bin" / "pai"  # earlier versions had a folder in place of the link
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path / "old"), *sys.path])
        installing, sending = box.install()
    assert installing == f"installing openpai-tasks {__version__} on box, in ~/.openpai/venv"
    expected = r"box cannot reach a package index: sending 3 packages \(\d\.\d MB\) from here"
    assert re.fullmatch(expected, sending)
    first = box.link.resolve()
    assert box.version() == f"pai {__version__}" and box.environments() == {first.name}
    assert first.stat().st_mode & 0o777 == 0o700
    files = [path for path in box.home.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secret@" in path.read_bytes()]

    box.use(no_index="1", find_links=str(index))
    require(monkeypatch, tmp_path, "invoke", "lazy_loader", "absent>=2")
    with pytest.raises(Unreachable) as caught:
        box.install()
    problem = "box does not find absent>=2 in its package index, and this machine cannot reach one either; "
    assert str(caught.value).startswith(problem) and "secret" not in str(caught.value)
    assert box.version() == f"pai {__version__}" and box.environments() == {first.name}

    require(monkeypatch, tmp_path, "invoke", "lazy_loader")
    assert box.install() == [installing]  # from the index there
    assert box.link.resolve() != first and box.environments() == {box.link.resolve().name}
    assert box.version() == f"pai {__version__}"


def test_a_machine_without_a_suitable_python_is_explained_in_one_line(box: Box) -> None:
    for program in box.programs.glob("python3.*"):
        program.unlink()
    box.use()
    with pytest.raises(ConfigError, match=r"^box: no Python 3\.10 or newer .* tried python3, python3\.14, "):
        box.install()
    assert not box.link.parent.exists()


def test_a_transfer_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, remote_installer.__file__, "1.0", remote_installer.SENT],
        input=b"half of an archive",
        env={"HOME": str(tmp_path)},
        capture_output=True,
    )
    assert done.returncode == 1 and not [*tmp_path.glob(".openpai/venvs/[!.]*")]


@pytest.mark.parametrize("user", ["nobody", "process", "job", "server elsewhere", "unknown job"])
def test_an_environment_stays_while_something_may_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.delenv("OPENPAI_HOME")
    new, old, state = (tmp_path / name for name in ("venvs/2.0-new", "venvs/1.0-old", "local"))
    for path in (new, old / "bin", state):
        path.mkdir(parents=True)
    (old / "bin" / "python").symlink_to(sys.executable)
    host = "other" if user == "server elsewhere" else socket.gethostname()
    (state / "server.json").write_text(f'{{"host": "{host}"}}')
    with closing(sqlite3.connect(state / "cluster.db")) as database, database:
        database.executescript("" if user == "unknown job" else SCHEMA)
        if user == "job":
            columns = [row for row in database.execute("PRAGMA table_info(jobs)") if row[3] or row[5]]
            names, marks = ", ".join(row[1] for row in columns), ", ".join("?" * len(columns))
            database.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", ["0"] * len(columns))
    argv = [old / "bin" / "python", "-c", "print(flush=True); input()"]
    running = (
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) if user == "process" else None
    )
    try:
        if running and running.stdout:
            running.stdout.readline()
        remote_installer.remove_unused(new.parent, new)
    finally:
        if running:
            running.communicate(b"\n")
    assert new.exists() and old.exists() == (user != "nobody")
