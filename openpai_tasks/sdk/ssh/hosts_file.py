"""Containers under names that OpenSSH, VS Code and Fabric know: a file of ours that theirs includes.

A job has a block in ``~/.openpai/ssh/config``; blocks of jobs that are over go when the next one comes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.ssh import host_blocks
from openpai_tasks.sdk.ssh.forgetting import forget_keys
from openpai_tasks.sdk.ssh.host_blocks import GATEWAY, config_path
from openpai_tasks.sdk.ssh.host_keys import gateways_file, users_file
from openpai_tasks.sdk.ssh.target import Gateway, Target
from openpai_tasks.settings.home import locked, make_private

_NO_WORD = re.compile(r"[\s\x00-\x1f\x7f\"'\\]|^-|^$")
_NO_PATH = re.compile(r"[\x00-\x1f\x7f\"]|^$")
_PATTERN = re.compile(r"[*?!,]")
# What a `Host *` of the user's says for hosts of theirs must not hold for a container that others share.
_OWN = (
    *(("IdentitiesOnly", "yes"), ("ForwardAgent", "no"), ("ForwardX11", "no"), ("ForwardX11Trusted", "no")),
    *(("ControlMaster", "no"), ("ControlPath", "none")),
    *(("StrictHostKeyChecking", "accept-new"), ("HashKnownHosts", "no")),
)
Options = list[tuple[str, str]]


@dataclass(frozen=True)
class Host:
    """One container under its names, the first of them the shortest."""

    names: tuple[str, ...]
    target: Target


@dataclass(frozen=True)
class Moved:
    """Names in the file that another job has had."""

    cluster: str
    job_key: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """The file, and what it cost other jobs."""

    path: Path
    moved: tuple[Moved, ...]


def job_host(client: Backend, job: JobInfo) -> str:
    """The name of the job's first container."""
    return job.name if job.user in ("", client.user) else job.key


def plan_hosts(
    client: Backend, job: JobInfo, targets: Sequence[tuple[str, Target]], taken: Collection[str] = ()
) -> tuple[Host, ...]:
    """``JOB`` is the first container, unless it is taken, ``JOB-ROLE-INDEX`` each, by its label."""
    name = job_host(client, job)
    return tuple(
        Host(((name,) if number == 0 and name not in taken else ()) + (f"{name}-{label}",), target)
        for number, (label, target) in enumerate(targets)
    )


def host_block(alias: str, job: JobInfo, found: Sequence[Host]) -> str:
    """The part of the file that is the job's."""
    ways = [(host.target.gateway, host.target.timeout) for host in found if host.target.gateway]
    parts = [
        f"# job {_word(alias)} {_word(job.key)}\n",
        *dict.fromkeys(_way(alias, *way) for way in ways),
        *(_host(alias, host) for host in found),
    ]
    return "".join(parts)


def ssh_command(goal: Target) -> list[str]:
    """The command that does the same without any file."""
    _make_folders(goal)
    words = ["ssh", *_identity(goal.key), "-p", str(goal.port), *_flags(_options(goal))]
    if goal.gateway:
        words += ["-o", f"ProxyCommand={_proxy_command(goal.gateway, goal.timeout)}"]
    return [*words, f"{_word(goal.user)}@{_word(goal.host)}"]


def write_hosts(client: Backend, job: JobInfo, found: Sequence[Host]) -> Written:
    """Put the job's block in, in place of an older one, and take those of jobs that are over out.

    A name that another job has too is this one's from now on; the other keeps its other names.
    """
    alias = client.cluster.shelf
    new = host_block(alias, job, found)
    for host in found:
        _make_folders(host.target)
    with locked(config_path()):
        going, over = _parted(client, but=job.key)
        others = [one for one in going if one[0] != (alias, job.key)]
        ours = host_blocks.names(new)
        host_blocks.write([*(host_blocks.without_names(text, ours) for _, text in others), new])
    _forget(over)
    lost = [Moved(*key, tuple(sorted(host_blocks.names(text) & ours))) for key, text in others]
    return Written(config_path(), tuple(one for one in lost if one.names))


def prune_hosts(client: Backend) -> None:
    """Take the blocks of jobs that are over out, and what was kept for them."""
    if not config_path().exists():
        return
    with locked(config_path()):
        going, over = _parted(client)
        host_blocks.write(text for _, text in going)
    _forget(over)


def escaped(path: os.PathLike[str] | str) -> str:
    """As OpenSSH reads it: in quotes where there are spaces, with no sign that it would replace."""
    text = str(path).replace("%", "%%")
    if _NO_PATH.search(text):
        raise ConfigError(f"a file of ssh cannot name {text!r}: it has a quote or a control character")
    return f'"{text}"' if re.search(r"[\s'#\\]", text) else text


def _host(alias: str, host: Host) -> str:
    goal = host.target
    lines = [
        f"Host {' '.join(map(_name, host.names))}",
        f"HostName {_word(goal.host)}",
        f"Port {goal.port}",
        f"User {_word(goal.user)}",
        f"IdentityFile {escaped(goal.key)}",
        *_lines(_options(goal)),
    ]
    lines += [f"ProxyJump {_way_name(alias, goal.gateway, goal.timeout)}"] if goal.gateway else []
    return "\n  ".join(lines) + "\n"


def _options(goal: Target) -> Options:
    """What holds for every login to a container, in a file and on a command line."""
    keys = [("HostKeyAlias", _word(goal.name)), ("UserKnownHostsFile", escaped(goal.known_hosts))]
    return [*keys, *_OWN, _limit(goal.timeout), ("ServerAliveInterval", "15")]


def _way_options(timeout: float) -> Options:
    """The same of a login to a gateway."""
    return [("UserKnownHostsFile", _gateways()), *_OWN, _limit(timeout)]


def _limit(timeout: float) -> tuple[str, str]:
    return "ConnectTimeout", str(max(1, round(timeout)))


def _lines(options: Options) -> list[str]:
    return [f"{name} {value}" for name, value in options]


def _flags(options: Options) -> list[str]:
    return [word for name, value in options for word in ("-o", f"{name}={value}")]


def _way(alias: str, way: Gateway, timeout: float) -> str:
    lines = [f"Host {_way_name(alias, way, timeout)}", *_way_lines(way, timeout)]
    return "\n  ".join(lines) + "\n"


def _way_lines(way: Gateway, timeout: float) -> list[str]:
    lines = [f"HostName {_word(way.host)}", f"Port {way.port}"]
    lines += [f"User {_word(way.user)}"] if way.user else []
    lines += [f"IdentityFile {escaped(way.key)}"] if way.key else []
    return lines + _lines(_way_options(timeout))


def _proxy_command(way: Gateway, timeout: float) -> str:
    """The inner ssh, whose own signs the outer one must leave as they are."""
    words = ["-p", str(way.port), *(_identity(way.key) if way.key else ()), *_flags(_way_options(timeout))]
    words += [f"{_word(way.user)}@{_word(way.host)}" if way.user else _word(way.host)]
    return f"ssh -W '[%h]:%p' {shlex.join(words).replace('%', '%%')}"


def _make_folders(goal: Target) -> None:
    """Of the files with host keys: OpenSSH makes the files alone."""
    make_private(goal.known_hosts.parent)
    make_private(gateways_file().parent)


def _gateways() -> str:
    """Both files that know gateways; OpenSSH adds to the first of them."""
    return f"{escaped(gateways_file())} {escaped(users_file())}"


def _identity(key: Path) -> list[str]:
    """As short as it can be: what follows -i must name the file both before and after signs are replaced."""
    return ["-o", f"IdentityFile={escaped(key)}"] if "%" in str(key) else ["-i", str(key)]


def _way_name(alias: str, way: Gateway, timeout: float) -> str:
    """Another one for each way: of two hosts with one name, ssh takes the first for both."""
    content = "\n".join(_way_lines(way, timeout)).encode("utf-8", "surrogateescape")
    return _name(f"{GATEWAY}{alias}-{hashlib.sha256(content).hexdigest()[:8]}")


def _word(text: str) -> str:
    """A value that cannot be taken for more than one; what a server tells comes here."""
    if _NO_WORD.search(text):
        raise ConfigError(f"a file of ssh cannot hold {text[:80]!r}")
    return text


def _name(text: str) -> str:
    if _PATTERN.search(_word(text)):
        raise ConfigError(f"{text[:80]!r} cannot be the name of a host: ssh takes it for a pattern")
    return text


def _parted(client: Backend, but: str = "") -> tuple[list[host_blocks.Block], list[host_blocks.Block]]:
    """The blocks of jobs that may go on, and those of jobs that are over."""
    found = host_blocks.kept()
    over = [one for one in found if one[0][1] != but and _is_over(client, *one[0])]
    return [one for one in found if one not in over], over


def _forget(over: list[host_blocks.Block]) -> None:
    """What was kept for jobs whose blocks are gone."""
    for (alias, key), text in over:
        forget_keys(alias, key, host_blocks.kept_under(text))


def _is_over(client: Backend, alias: str, key: str) -> bool:
    """Whether the job is known to be over; another cluster's jobs are let be."""
    if alias != client.cluster.shelf:
        return False
    try:
        return client.job(key).final
    except NotFound:
        return True
    except PaiError:
        return False
