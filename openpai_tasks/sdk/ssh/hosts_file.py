"""Host names of containers for OpenSSH, VS Code and Fabric, in a file that ~/.ssh/config includes.

Each job has a block in ``~/.openpai/ssh/config``; blocks of ended jobs are removed when the next is added.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.ssh import host_blocks
from openpai_tasks.sdk.ssh.host_blocks import GATEWAY, config_path
from openpai_tasks.sdk.ssh.host_keys import gateways_file, users_file
from openpai_tasks.sdk.ssh.job_files import forget_job
from openpai_tasks.sdk.ssh.login_node_gateway import proxy_words
from openpai_tasks.sdk.ssh.target import Gateway, Target
from openpai_tasks.settings.home import locked, make_private

_INVALID_VALUE = re.compile(r"[\s\x00-\x1f\x7f\"'\\]|^-|^$")
_INVALID_PATH = re.compile(r"[\x00-\x1f\x7f\"]|^$")
_PATTERN = re.compile(r"[*?!,]")
# The user's `Host *` options for their own hosts must not apply to containers, which others share.
_SAFE_OPTIONS = (
    *(("IdentitiesOnly", "yes"), ("ForwardAgent", "no"), ("ForwardX11", "no"), ("ForwardX11Trusted", "no")),
    *(("ControlMaster", "no"), ("ControlPath", "none")),
    *(("StrictHostKeyChecking", "accept-new"), ("HashKnownHosts", "no")),
)
SshOptions = list[tuple[str, str]]


@dataclass(frozen=True)
class Host:
    """A container and its host names, shortest first."""

    names: tuple[str, ...]
    target: Target


@dataclass(frozen=True)
class MovedNames:
    """Host names taken over from another job."""

    cluster: str
    job_key: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class WrittenHosts:
    """The written file, and the names taken over from other jobs."""

    path: Path
    moved: tuple[MovedNames, ...]


def job_host(client: Backend, job: JobInfo) -> str:
    """Return the host name of the job's first container."""
    return job.name if job.user in ("", client.user) else job.key


def plan_hosts(
    client: Backend, job: JobInfo, targets: Sequence[tuple[str, Target]], taken: Collection[str] = ()
) -> tuple[Host, ...]:
    """Name each container ``JOB-ROLE-INDEX``, and the first also ``JOB`` unless that is taken."""
    name = job_host(client, job)
    return tuple(
        Host(((name,) if number == 0 and name not in taken else ()) + (f"{name}-{label}",), target)
        for number, (label, target) in enumerate(targets)
    )


def host_block(alias: str, job: JobInfo, found: Sequence[Host]) -> str:
    """Return the job's block."""
    gates = [(host.target.gateway, host.target.timeout) for host in found if host.target.gateway]
    ways = [(gateway, timeout) for gateway, timeout in gates if not gateway.is_login_node]
    parts = [
        f"# job {_word(alias)} {_word(job.key)}\n",
        *dict.fromkeys(_gateway_section(alias, *gateway) for gateway in ways),
        *(_host(alias, host) for host in found),
    ]
    return "".join(parts)


def ssh_command(target: Target) -> list[str]:
    """Return the ssh command that needs no file."""
    _make_folders(target)
    words = ["ssh", *_identity(target.key), "-p", str(target.port), *_flags(_options(target))]
    if target.gateway:
        words += ["-o", f"ProxyCommand={_proxy_command(target.gateway, target.timeout)}"]
    return [*words, f"{_word(target.user)}@{_word(target.host)}"]


def write_hosts(client: Backend, job: JobInfo, found: Sequence[Host]) -> WrittenHosts:
    """Add or replace the job's block, and remove those of ended jobs.

    A name that another job also has is taken over; the other job keeps its other names.
    """
    alias = client.cluster.unique_name
    new = host_block(alias, job, found)
    for host in found:
        _make_folders(host.target)
    prune_hosts(client, but=job.key)
    with locked(config_path()):
        others = [one for one in host_blocks.read_blocks() if one[0] != (alias, job.key)]
        ours = host_blocks.host_names(new)
        host_blocks.write_blocks([*(host_blocks.without_names(text, ours) for _, text in others), new])
    lost = [MovedNames(*key, tuple(sorted(host_blocks.host_names(text) & ours))) for key, text in others]
    return WrittenHosts(config_path(), tuple(one for one in lost if one.names))


def prune_hosts(client: Backend, but: str = "") -> None:
    """Remove the blocks of ended jobs, with their keys."""
    for (alias, key), _ in host_blocks.read_blocks():
        if key != but and _has_ended(client, alias, key):
            forget_job(alias, key)


def escape_path(path: os.PathLike[str] | str) -> str:
    """Quote and escape a path for OpenSSH's configuration."""
    text = str(path).replace("%", "%%")
    if _INVALID_PATH.search(text):
        raise ConfigError(
            f"an ssh configuration cannot contain the path {text!r}: it has a quote or a control character"
        )
    return f'"{text}"' if re.search(r"[\s'#\\]", text) else text


def _host(alias: str, host: Host) -> str:
    target = host.target
    lines = [
        f"Host {' '.join(map(_name, host.names))}",
        f"HostName {_word(target.host)}",
        f"Port {target.port}",
        f"User {_word(target.user)}",
        f"IdentityFile {escape_path(target.key)}",
        *_lines(_options(target)),
    ]
    if target.gateway and target.gateway.is_login_node:
        lines.append(f"ProxyCommand {_proxy_command(target.gateway, target.timeout)}")
    elif target.gateway:
        lines.append(f"ProxyJump {_gateway_name(alias, target.gateway, target.timeout)}")
    return "\n  ".join(lines) + "\n"


def _options(target: Target) -> SshOptions:
    """Return the options for every login to a container, for a file or a command line."""
    keys = [("HostKeyAlias", _word(target.name)), ("UserKnownHostsFile", escape_path(target.known_hosts))]
    return [*keys, *_SAFE_OPTIONS, _limit(target.timeout), ("ServerAliveInterval", "15")]


def _gateway_options(timeout: float) -> SshOptions:
    """Return the options for a login to a gateway; OpenSSH adds new host keys to the first file."""
    files = f"{escape_path(gateways_file())} {escape_path(users_file())}"
    return [("UserKnownHostsFile", files), *_SAFE_OPTIONS, _limit(timeout)]


def _limit(timeout: float) -> tuple[str, str]:
    return "ConnectTimeout", str(max(1, round(timeout)))


def _lines(options: SshOptions) -> list[str]:
    return [f"{name} {value}" for name, value in options]


def _flags(options: SshOptions) -> list[str]:
    return [word for name, value in options for word in ("-o", f"{name}={value}")]


def _gateway_section(alias: str, gateway: Gateway, timeout: float) -> str:
    lines = [f"Host {_gateway_name(alias, gateway, timeout)}", *_gateway_lines(gateway, timeout)]
    return "\n  ".join(lines) + "\n"


def _gateway_lines(gateway: Gateway, timeout: float) -> list[str]:
    lines = [f"HostName {_word(gateway.host)}", f"Port {gateway.port}"]
    lines += [f"User {_word(gateway.user)}"] if gateway.user else []
    lines += [f"IdentityFile {escape_path(gateway.key)}"] if gateway.key else []
    return lines + _lines(_gateway_options(timeout))


def _proxy_command(gateway: Gateway, timeout: float) -> str:
    """Return the inner ssh command, with percent signs escaped for the outer one."""
    if gateway.is_login_node:
        words = proxy_words(gateway)
    else:
        words = ["-p", str(gateway.port), *(_identity(gateway.key) if gateway.key else ())]
        words += _flags(_gateway_options(timeout))
        words += [f"{_word(gateway.user)}@{_word(gateway.host)}" if gateway.user else _word(gateway.host)]
    return f"ssh -W '[%h]:%p' {shlex.join(words).replace('%', '%%')}"


def _make_folders(target: Target) -> None:
    """Create the folders of the host key files, as OpenSSH creates only the files."""
    make_private(target.known_hosts.parent)
    make_private(gateways_file().parent)


def _identity(key: Path) -> list[str]:
    """Return the identity flags; -i is shorter, but fails for paths that percent expansion changes."""
    return ["-o", f"IdentityFile={escape_path(key)}"] if "%" in str(key) else ["-i", str(key)]


def _gateway_name(alias: str, gateway: Gateway, timeout: float) -> str:
    """Return a unique name for each gateway, as ssh uses the first of two hosts with one name."""
    content = "\n".join(_gateway_lines(gateway, timeout)).encode("utf-8", "surrogateescape")
    return _name(f"{GATEWAY}{alias}-{hashlib.sha256(content).hexdigest()[:8]}")


def _word(text: str) -> str:
    """Check a value, which may come from a server, so that it stays a single value."""
    if _INVALID_VALUE.search(text):
        raise ConfigError(f"invalid value for an ssh configuration: {text[:80]!r}")
    return text


def _name(text: str) -> str:
    if _PATTERN.search(_word(text)):
        raise ConfigError(f"invalid host name {text[:80]!r}: ssh would take it for a pattern")
    return text


def _has_ended(client: Backend, alias: str, key: str) -> bool:
    """Return whether the job is known to have ended; False for another cluster's jobs."""
    if alias != client.cluster.unique_name:
        return False
    try:
        return client.job(key).final
    except NotFound:
        return True
    except PaiError:
        return False
