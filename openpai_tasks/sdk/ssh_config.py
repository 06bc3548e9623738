"""Containers under names that OpenSSH, VS Code and Fabric know: a file of ours that theirs includes.

A job has a block in ``~/.openpai/ssh/config``; blocks of jobs that are over go when the next one comes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.home import home, locked, make_private
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.remote import Gateway, Target, gateways_file, users_file

HEAD = "# Hosts of jobs, written by `container.ssh-config`; changes made here are lost.\n"
GATEWAY = "openpai-gateway-"
"""What the names of hosts that others are reached through begin with."""
_BLOCK = re.compile(r"^# job (\S+) (\S+)\n", re.M)
_NO_WORD = re.compile(r"[\s\x00-\x1f\x7f\"'\\]|^-|^$")
_NO_PATH = re.compile(r"[\x00-\x1f\x7f\"]|^$")
_PATTERN = re.compile(r"[*?!,]")
# What a `Host *` of the user's says for hosts of theirs must not hold for a container that others share.
_OWN = (
    *("IdentitiesOnly yes", "ForwardAgent no", "ForwardX11 no", "ForwardX11Trusted no"),
    *("ControlMaster no", "ControlPath none", "StrictHostKeyChecking accept-new", "HashKnownHosts no"),
)


@dataclass(frozen=True)
class Host:
    """One container under its names, the first of them the shortest."""

    names: tuple[str, ...]
    target: Target


def config_path() -> Path:
    return home() / "ssh" / "config"


def job_host(client: Client, job: JobInfo) -> str:
    """The name of the job's first container."""
    return job.name if job.user in ("", client.user) else job.key


def hosts(
    client: Client, job: JobInfo, targets: Sequence[tuple[str, Target]], taken: Collection[str] = ()
) -> tuple[Host, ...]:
    """``JOB`` is the first container, unless it is taken, ``JOB-ROLE-INDEX`` each, by its label."""
    name = job_host(client, job)
    return tuple(
        Host(((name,) if number == 0 and name not in taken else ()) + (f"{name}-{label}",), target)
        for number, (label, target) in enumerate(targets)
    )


def block(alias: str, job: JobInfo, found: Sequence[Host]) -> str:
    """The part of the file that is the job's."""
    ways = {host.target.gateway: None for host in found if host.target.gateway}
    parts = [
        f"# job {_word(alias)} {_word(job.key)}\n",
        *(_way(alias, way) for way in ways),
        *(_host(alias, host) for host in found),
    ]
    return "".join(parts)


def argv(goal: Target) -> list[str]:
    """The command that does the same without any file."""
    _make_folders(goal)
    words = ["ssh", *_identity(goal.key), "-p", str(goal.port), "-o", "IdentitiesOnly=yes"]
    words += ["-o", f"HostKeyAlias={goal.name}", "-o", f"UserKnownHostsFile={escaped(goal.known_hosts)}"]
    words += ["-o", "StrictHostKeyChecking=accept-new"]
    if goal.gateway:
        words += ["-o", f"ProxyCommand={_proxy_command(goal.gateway, goal.timeout)}"]
    return [*words, f"{_word(goal.user)}@{_word(goal.host)}"]


def write(client: Client, job: JobInfo, found: Sequence[Host]) -> Path:
    """Put the job's block in, in place of an older one, and take those of jobs that are over out."""
    alias = client.cluster.alias
    new = block(alias, job, found)
    for host in found:
        _make_folders(host.target)
    with locked(config_path()):
        kept = [
            text
            for key, text in _without_over(client, but=job.key)
            if key != (alias, job.key) and not _names(text) & _names(new)
        ]
        replace(config_path(), "\n".join([HEAD, *kept, new]))
    return config_path()


def prune(client: Client) -> None:
    """Take the blocks of jobs that are over out, and what was kept for them."""
    if not config_path().exists():
        return
    with locked(config_path()):
        kept = [text for _, text in _without_over(client)]
        replace(config_path(), "\n".join([HEAD, *kept]))


def read(path: Path) -> str:
    """The text with every byte that is in the file, whatever its encoding and its ends of lines."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err


def replace(path: Path, text: str) -> None:
    """Write what ``read`` read, as a whole; the file keeps its rights, a new one is the user's alone."""
    make_private(path.parent)
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fchmod(handle, mode)
                os.fsync(handle)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as err:
        raise ConfigError(f"cannot write {path}: {err.strerror}") from err


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
        f"HostKeyAlias {_word(goal.name)}",
        f"UserKnownHostsFile {escaped(goal.known_hosts)}",
        *_OWN,
        f"ConnectTimeout {max(1, round(goal.timeout))}",
        "ServerAliveInterval 15",
    ]
    lines += [f"ProxyJump {_way_name(alias)}"] if goal.gateway else []
    return "\n  ".join(lines) + "\n"


def _way(alias: str, way: Gateway) -> str:
    lines = [f"Host {_way_name(alias)}", f"HostName {_word(way.host)}", f"Port {way.port}"]
    lines += [f"User {_word(way.user)}"] if way.user else []
    lines += [f"IdentityFile {escaped(way.key)}"] if way.key else []
    lines += [f"UserKnownHostsFile {_gateways()}", *_OWN, "ConnectTimeout 15"]
    return "\n  ".join(lines) + "\n"


def _proxy_command(way: Gateway, timeout: float) -> str:
    """The inner ssh, whose own signs the outer one must leave as they are."""
    words = ["-p", str(way.port), *(_identity(way.key) if way.key else ()), "-o", "IdentitiesOnly=yes"]
    words += ["-o", f"UserKnownHostsFile={_gateways()}", "-o", "StrictHostKeyChecking=accept-new"]
    words += ["-o", f"ConnectTimeout={max(1, round(timeout))}"]
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


def _way_name(alias: str) -> str:
    return _name(f"{GATEWAY}{alias}")


def _word(text: str) -> str:
    """A value that cannot be taken for more than one; what a server tells comes here."""
    if _NO_WORD.search(text):
        raise ConfigError(f"a file of ssh cannot hold {text[:80]!r}")
    return text


def _name(text: str) -> str:
    if _PATTERN.search(_word(text)):
        raise ConfigError(f"{text[:80]!r} cannot be the name of a host: ssh takes it for a pattern")
    return text


def _without_over(client: Client, but: str = "") -> list[tuple[tuple[str, str], str]]:
    """The blocks of jobs that may go on; what was kept for the others is removed."""
    kept = []
    for (alias, key), text in _blocks(read(config_path())):
        if key != but and _is_over(client, alias, key):
            _forget(alias, key, text)
        else:
            kept.append(((alias, key), text))
    return kept


def _forget(alias: str, key: str, text: str) -> None:
    """The host keys of its containers, and the key that a cluster had made for it."""
    gone = set(re.findall(r"^ *HostKeyAlias (\S+)$", text, re.M))
    known = home() / "known_hosts" / alias
    if known.exists():
        with locked(known):
            lines = read(known).splitlines(keepends=True)
            replace(known, "".join(line for line in lines if line.partition(" ")[0] not in gone))
    (home() / "keys" / alias / key.replace("/", "_")).unlink(missing_ok=True)


def _blocks(text: str) -> list[tuple[tuple[str, str], str]]:
    """The blocks of the file: whose each is, and its text."""
    pieces = _BLOCK.split(text)[1:]
    whole = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    return [((alias, key), f"# job {alias} {key}\n{rest.rstrip()}\n") for alias, key, rest in whole]


def _names(text: str) -> set[str]:
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("Host ")]
    return {name for names in lines for name in names if not name.startswith(GATEWAY)}


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
