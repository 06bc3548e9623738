"""Containers under names that OpenSSH, VS Code and Fabric know: a file of ours that theirs includes.

A job has a block in ``~/.openpai/ssh/config``; blocks of jobs that are over go when the next one comes.
Paramiko, and so Fabric, knows no ``Include``: a small ``~/.fabric.py`` has it read our file too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.home import home, locked, write_private
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.remote import Gateway, Target

HEAD = "# Hosts of jobs, written by `container.ssh-config`; changes made here are lost.\n"
_BLOCK = re.compile(r"^# job (\S+) (\S+)\n", re.M)
_FABRIC = """\
# Made by `container.ssh-config`: Fabric's parser of ~/.ssh/config knows no Include, so this has it read the
# hosts of jobs as well. Remove this file to undo it.
try:
    from openpai_tasks.sdk.fabric_hosts import include
except ImportError:
    pass
else:
    include()
    del include
"""


@dataclass(frozen=True)
class Host:
    """One container under its names, the first of them the shortest."""

    names: tuple[str, ...]
    target: Target


def config_path() -> Path:
    return home() / "ssh" / "config"


def hosts(client: Client, job: JobInfo, targets: Sequence[tuple[str, Target]]) -> tuple[Host, ...]:
    """``JOB`` is the first container, ``JOB-ROLE-INDEX`` each of them; ``targets`` are by label."""
    name = job.name if job.user in ("", client.user) else job.key
    return tuple(
        Host(((name,) if number == 0 else ()) + (f"{name}-{label}",), target)
        for number, (label, target) in enumerate(targets)
    )


def block(alias: str, job: JobInfo, found: Sequence[Host]) -> str:
    """The part of the file that is the job's."""
    ways = {host.target.gateway: None for host in found if host.target.gateway}
    parts = [
        f"# job {alias} {job.key}\n",
        *(_way(alias, way) for way in ways),
        *(_host(alias, host) for host in found),
    ]
    return "".join(parts)


def argv(goal: Target) -> list[str]:
    """The command that does the same without any file."""
    words = ["ssh", "-i", str(goal.key), "-p", str(goal.port), "-o", "IdentitiesOnly=yes"]
    words += ["-o", f"HostKeyAlias={goal.name}", "-o", f"UserKnownHostsFile={_escaped(goal.known_hosts)}"]
    words += ["-o", "StrictHostKeyChecking=accept-new"]
    if goal.gateway:
        way = ["ssh", "-W", "%h:%p", "-p", str(goal.gateway.port)]
        way += ["-i", str(goal.gateway.key)] if goal.gateway.key else []
        way += [f"{goal.gateway.user}@{goal.gateway.host}" if goal.gateway.user else goal.gateway.host]
        words += ["-o", f"ProxyCommand={shlex.join(way)}"]
    return [*words, f"{goal.user}@{goal.host}"]


def write(client: Client, job: JobInfo, found: Sequence[Host]) -> Path:
    """Put the job's block in, in place of an older one, and take those of jobs that are over out."""
    path, alias = config_path(), client.cluster.alias
    new = block(alias, job, found)
    with locked(path):
        kept = [
            (text, names)
            for key, text, names in _blocks(path)
            if key != (alias, job.key) and not names & _names(new) and not _is_over(client, *key)
        ]
        write_private(path, "\n".join([HEAD, *(text for text, _ in kept), new]))
    return path


def is_included() -> bool:
    """Whether ~/.ssh/config includes our file, where it counts: before any host."""
    for line in _text(_users()).splitlines():
        words = line.split(None, 1)
        if words and words[0].lower() in ("host", "match"):
            return False
        if line.strip() == _include():
            return True
    return False


def include() -> Path:
    """Have ~/.ssh/config include our file; it must come first, as of two values the first one counts."""
    path = _users().resolve()  # it may be a link into somebody's collection of such files
    with contextlib.suppress(FileExistsError):
        _users().parent.mkdir(mode=0o700)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_private(path, f"{_include()}\n\n{_text(path)}".rstrip("\n") + "\n")
    path.chmod(mode)
    return _users()


def manual() -> str:
    """What a person can do instead."""
    return f"put this line at the top of {_users()}: {_include()}"


def fabric_file() -> Path | None:
    """Make the file for Fabric; None where the person has a file of settings for it already."""
    path = Path.home() / ".fabric.py"
    others = [path.with_suffix(end) for end in (".yaml", ".yml", ".json", ".py")]
    if any(other.exists() for other in others):
        return path if _text(path) == _FABRIC else None
    write_private(path, _FABRIC)
    return path


def _host(alias: str, host: Host) -> str:
    goal = host.target
    lines = [
        f"Host {' '.join(host.names)}",
        f"  HostName {goal.host}",
        f"  Port {goal.port}",
        f"  User {goal.user}",
        f"  IdentityFile {_escaped(goal.key)}",
        "  IdentitiesOnly yes",
        f"  HostKeyAlias {goal.name}",
        f"  UserKnownHostsFile {_escaped(goal.known_hosts)}",
        "  StrictHostKeyChecking accept-new",
        "  HashKnownHosts no",
        f"  ConnectTimeout {max(1, round(goal.timeout))}",
        "  ServerAliveInterval 15",
    ]
    lines += [f"  ProxyJump {_way_name(alias)}"] if goal.gateway else []
    return "".join(f"{line}\n" for line in lines)


def _way(alias: str, way: Gateway) -> str:
    lines = [f"Host {_way_name(alias)}", f"  HostName {way.host}", f"  Port {way.port}"]
    lines += [f"  User {way.user}"] if way.user else []
    lines += [f"  IdentityFile {_escaped(way.key)}"] if way.key else []
    return "".join(f"{line}\n" for line in lines)


def _way_name(alias: str) -> str:
    return f"openpai-gateway-{alias}"


def _blocks(path: Path) -> list[tuple[tuple[str, str], str, set[str]]]:
    """The blocks of the file: whose each is, its text and the names of hosts in it."""
    pieces = _BLOCK.split(_text(path))[1:]
    found = []
    for alias, key, rest in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        text = f"# job {alias} {key}\n{rest.rstrip()}\n"
        found.append(((alias, key), text, _names(text)))
    return found


def _names(text: str) -> set[str]:
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("Host ")]
    return {name for names in lines for name in names if not name.startswith("openpai-gateway-")}


def _is_over(client: Client, alias: str, key: str) -> bool:
    """Whether the job is known to be over; another cluster's jobs are let be."""
    if alias != client.cluster.alias:
        return False
    try:
        return client.job(key).final
    except NotFound:
        return True
    except PaiError:
        return False


def _users() -> Path:
    return Path.home() / ".ssh" / "config"


def _include() -> str:
    return f"Include {_escaped(config_path())}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err


def _escaped(path: os.PathLike[str] | str | None) -> str:
    """As OpenSSH reads it: in quotes where there are spaces, with no sign that it would replace."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s\"']", text) else text
