"""Keys for containers: the generated one, the one in the settings, or one that a cluster made for a job.

Most clusters take a public key with each job, so that one pair is enough for all jobs; some make a pair for
each job, whose private key is fetched once.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, PathError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.ssh.forgetting import job_key_path
from openpai_tasks.sdk.ssh.login_errors import passphrase_error, unreadable_key_error
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.key_pairs import load_or_create_pair

COMMENT = "openpai-tasks"
LARGEST = 1 << 16  # characters of a private key
UNREADABLE = (OSError, ValueError, AttributeError)
_MARK = "PRIVATE KEY-----"


def public_key(settings: Settings) -> str:
    """Return the public key as one line, for a job document."""
    path = private_key(settings)
    beside = path.with_name(f"{path.name}.pub")
    try:
        return _one_line(beside.read_text(encoding="utf-8"), beside)
    except FileNotFoundError:
        return _derived(path)
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read the public key {beside}: {err}") from err


def private_key(settings: Settings) -> Path:
    """Return the file of the private key: from the settings, else the generated one."""
    return _named("ssh.key", settings.ssh_key) if settings.ssh_key else _own()


def gateway_key(settings: Settings) -> Path:
    """Return the file of the private key for the gateway; by default, the key for containers."""
    name = settings.ssh_gateway_key
    return _named("ssh.gateway-key", name) if name else private_key(settings)


def check(path: Path, setting: str) -> None:
    """Raise if the key cannot be used to log in, so that no job is submitted for nothing."""
    try:
        _loaded(path)
    except TypeError as err:
        raise passphrase_error(path, setting) from err
    except UNREADABLE as err:
        raise unreadable_key_error(path, setting) from err


def fetched_key(client: Backend, job: JobInfo, target: Path | None = None, refresh: bool = False) -> Path:
    """Return the private key that the cluster made for the job; fetch it if it is missing here."""
    path = target or job_key_path(client.cluster.shelf, job.key)
    if target is not None and target.exists():
        raise PathError(f"{target} exists already; nothing was written")
    if refresh or target is not None or not path.exists():
        write_private(path, _fetched(client, job))
    return path


def _fetched(client: Backend, job: JobInfo) -> str:
    text = client.job_private_key(job)
    if _MARK not in text or len(text) > LARGEST:
        raise ApiError(f"cluster {client.cluster.alias!r} returns no valid private key for job {job.name!r}")
    return text if text.endswith("\n") else f"{text}\n"


def _own() -> Path:
    path = home() / "ssh" / "id_ed25519"
    if not path.exists():
        with locked(path):
            if not path.exists():
                load_or_create_pair(path.parent, path.name, COMMENT)
    return path


def _named(setting: str, text: str) -> Path:
    """Return the absolute path of a key, as files and commands with it are used in other folders."""
    path = Path(os.path.abspath(Path(text.removesuffix(".pub")).expanduser()))
    if not path.is_file():
        raise ConfigError(f"the setting {setting} names {path}, which is not a file")
    return path


def _loaded(path: Path) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    data = path.read_bytes()
    load = form.load_ssh_private_key if b"OPENSSH" in data[:64] else form.load_pem_private_key
    try:
        return load(data, None)  # TypeError is its word for a passphrase that is missing
    except UnsupportedAlgorithm as err:
        raise ValueError(str(err)) from err


def _derived(path: Path) -> str:
    """Derive the public key from the private one."""
    from cryptography.hazmat.primitives import serialization as form

    quoted = shlex.quote(str(path))
    hint = f"create its public key with `ssh-keygen -y -f {quoted} > {quoted}.pub`"
    try:
        public = _loaded(path).public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    except TypeError as err:
        raise ConfigError(f"key {path} has a passphrase; {hint}") from err
    except UNREADABLE as err:
        raise ConfigError(f"cannot read {path} as a private key; {hint}") from err
    return f"{public.decode()} {COMMENT}"


def _one_line(text: str, path: Path) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != 1 or len(lines[0].split()) < 2:
        raise ConfigError(f"{path} must contain exactly one public key, on one line")
    return lines[0]
