"""The keys that open containers: one of our own, that of the settings, or one a cluster made for a job.

Most clusters take a public key with each job, so that one pair does for all of them; some make a pair for
each job, whose private half is fetched once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, PathError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.ssh.forgetting import job_key_path
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.key_pairs import load_or_create_pair

COMMENT = "openpai-tasks"
LARGEST = 1 << 16  # characters of a private key
UNREADABLE = (OSError, ValueError, AttributeError)
_MARK = "PRIVATE KEY-----"


def public_key(settings: Settings) -> str:
    """The line that a job document takes, and that a container lets in."""
    path = private_key(settings)
    beside = path.with_name(f"{path.name}.pub")
    try:
        return _one_line(beside.read_text(encoding="utf-8"), beside)
    except FileNotFoundError:
        return _derived(path)
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read the public key {beside}: {err}") from err


def private_key(settings: Settings) -> Path:
    """The file with the private half: the one in the settings, else ours, which is made when first needed."""
    return _named("ssh.key", settings.ssh_key) if settings.ssh_key else _own()


def gateway_key(settings: Settings) -> Path:
    """The file with the private key that opens the gateway: its own, else the one of containers."""
    name = settings.ssh_gateway_key
    return _named("ssh.gateway-key", name) if name else private_key(settings)


def check(path: Path, setting: str) -> None:
    """An error if nobody can log in with the key, which is better known before there is a job."""
    try:
        _loaded(path)
    except TypeError as err:
        raise ConfigError(
            f"the key {path} has a passphrase: name one without in the setting {setting}"
        ) from err
    except UNREADABLE as err:
        raise ConfigError(f"{path} holds no private key that can be read: see the setting {setting}") from err


def fetched_key(client: Backend, job: JobInfo, target: Path | None = None, anew: bool = False) -> Path:
    """The private key that the cluster made for the job, fetched when it is not here yet."""
    path = target or job_key_path(client.cluster.shelf, job.key)
    if target is not None and target.exists():
        raise PathError(f"{target} is there already; nothing was written")
    if anew or target is not None or not path.exists():
        write_private(path, _fetched(client, job))
    return path


def _fetched(client: Backend, job: JobInfo) -> str:
    text = client.job_private_key(job)
    if _MARK not in text or len(text) > LARGEST:
        raise ApiError(
            f"what cluster {client.cluster.alias!r} gives as the key of {job.name!r} is no private key"
        )
    return text if text.endswith("\n") else f"{text}\n"


def _own() -> Path:
    path = home() / "ssh" / "id_ed25519"
    if not path.exists():
        with locked(path):
            if not path.exists():
                load_or_create_pair(path.parent, path.name, COMMENT)
    return path


def _named(setting: str, text: str) -> Path:
    """The whole path of a key: it goes into files and commands that are used in other folders, too."""
    path = Path(os.path.abspath(Path(text.removesuffix(".pub")).expanduser()))
    if not path.is_file():
        raise ConfigError(f"the setting {setting} names {path}, which is no file")
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
    """The public half, where there is no file with it."""
    from cryptography.hazmat.primitives import serialization as form

    wanted = f"write its public half into {path}.pub (ssh-keygen -y -f {path})"
    try:
        public = _loaded(path).public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    except TypeError as err:
        raise ConfigError(f"the key {path} has a passphrase: {wanted}") from err
    except UNREADABLE as err:
        raise ConfigError(f"{path} holds no private key that can be read: {wanted}") from err
    return f"{public.decode()} {COMMENT}"


def _one_line(text: str, path: Path) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != 1 or len(lines[0].split()) < 2:
        raise ConfigError(f"{path} must hold one public key, on one line")
    return lines[0]
