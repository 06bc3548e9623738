"""The files of a task's SSH service, in the folder ``ssh`` of the task's folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from openpai_tasks.server.ssh import FOLDER, SshLogin
from openpai_tasks.server.ssh.services import SSHD
from openpai_tasks.settings import home

HOST_KEY, AUTHORIZED, JOB_KEY = "host_key", "authorized_keys", "job_key"
CLIENT_CONFIG, KNOWN_HOSTS, SSHD_CONFIG = "config", "known_hosts", "sshd_config"
PROGRAMS = "bin"
ENVIRONMENT = "environment"  # commands add variables for sessions to it
CLIENTS = ("ssh", "scp", "sftp")
_ENTER = Path(__file__).with_name("enter.py")


def write_files(task_folder: Path, login: SshLogin, shell: str) -> tuple[str, ...]:
    """Write the files of a service on this machine, and return its command."""
    folder, command = write_keys(task_folder, login), login.service.command
    (folder / ENVIRONMENT).touch(mode=0o600)
    if login.job_key:
        _write_clients(folder)
    if login.service.name != SSHD:
        return (*command, shell)
    _write(folder / SSHD_CONFIG, sshd_config(task_folder, login, shell))
    return command


def write_keys(task_folder: Path, login: SshLogin) -> Path:
    """Write the keys, and the configuration with which tasks reach each other; return the folder."""
    folder = home.make_private(task_folder.absolute() / FOLDER)
    _write(folder / f"{HOST_KEY}.pub", f"{login.host_key.public}\n")
    _write(folder / HOST_KEY, login.host_key.private)
    _write(folder / AUTHORIZED, "".join(f"{key}\n" for key in login.authorized))
    if login.job_key:
        _write(folder / f"{JOB_KEY}.pub", f"{login.job_key.public}\n")
        _write(folder / JOB_KEY, login.job_key.private)
        _write(folder / KNOWN_HOSTS, _known_hosts(login))
        _write(folder / CLIENT_CONFIG, client_config(folder, login))
    return folder


def variables(task_folder: Path, login: SshLogin, path: str) -> dict[str, str]:
    """Return a PATH that begins with the SSH clients that know the job's other tasks."""
    if not login.job_key or not path:
        return {}
    return {"PATH": f"{task_folder.absolute() / FOLDER / PROGRAMS}{os.pathsep}{path}"}


def sshd_config(task_folder: Path, login: SshLogin, shell: str) -> str:
    """Return the configuration of sshd: keys only, one user, every session through ``enter.py``."""
    folder = task_folder.absolute() / FOLDER
    enter = shlex.join(["exec", sys.executable, "-I", "-S", str(_ENTER), str(task_folder.absolute()), shell])
    lines = [
        f"HostKey {_quote(folder / HOST_KEY)}",
        f"AuthorizedKeysFile {_quote(folder / AUTHORIZED).replace('%', '%%')}",
        f"AllowUsers {login.service.user}",
        f"Subsystem sftp {login.service.sftp}",
        f"ForceCommand {enter}",
        *_RULES,
    ]
    return "".join(f"{line}\n" for line in lines)


# The level keeps bash, which sshd runs first, from reading the user's .bashrc.
_RULES = """\
SetEnv SHLVL=2
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
UseDNS no
PidFile none
AllowTcpForwarding yes
GatewayPorts no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitUserEnvironment no
PermitUserRC no
PrintMotd no
PrintLastLog no
LoginGraceTime 30
MaxSessions 200""".splitlines()


def client_config(folder: Path, login: SshLogin) -> str:
    """Return the configuration of SSH clients in a task: the other tasks by name, then the user's own."""
    blocks = [
        f"Host {peer.name}\n"
        f"  HostName {peer.host}\n"
        f"  Port {peer.port}\n"
        f"  User {login.service.user}\n"
        f"  IdentityFile {_quote(folder / JOB_KEY).replace('%', '%%')}\n"
        f"  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {_quote(folder / KNOWN_HOSTS).replace('%', '%%')}\n"
        f"  StrictHostKeyChecking yes\n"
        for peer in login.peers
    ]
    return "\n".join([*blocks, "Match all\n  Include ~/.ssh/config\n"])


def _known_hosts(login: SshLogin) -> str:
    kind, key, *_ = login.host_key.public.split()
    return "".join(f"[{peer.host}]:{peer.port} {kind} {key}\n" for peer in login.peers)


def _write_clients(folder: Path) -> None:
    """Write wrappers of the SSH clients that read our configuration, without changing the user's."""
    programs = home.make_private(folder / PROGRAMS)
    for name in CLIENTS:
        found = shutil.which(name)
        if found:
            words = shlex.join(["exec", found, "-F", str(folder / CLIENT_CONFIG)])
            _write(programs / name, f'#!/bin/sh\n{words} "$@"\n', mode=0o700)


def _quote(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    """Write without syncing: tasks do not survive a power cut either."""
    home.write_private(path, text, mode, sync=False)
