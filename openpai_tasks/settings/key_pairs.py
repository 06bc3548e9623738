"""Pairs of ssh keys that are made once and kept: a user's own, and those of an embedded cluster's jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.settings.home import write_private


@dataclass(frozen=True)
class KeyPair:
    public: str  # one line, as in authorized_keys
    private: str = field(repr=False)


def kept_pair(folder: Path, name: str, comment: str) -> KeyPair:
    """The pair of that name in the folder, which is made when it is asked for first."""
    found = read_pair(folder, name)
    if found is None:
        found = new_pair(comment)
        write_private(folder / f"{name}.pub", f"{found.public}\n")
        write_private(folder / name, found.private)  # last: it is what says that there is a pair
    return found


def read_pair(folder: Path, name: str) -> KeyPair | None:
    try:
        private = (folder / name).read_text(encoding="ascii")
        return KeyPair((folder / f"{name}.pub").read_text(encoding="utf-8").strip(), private)
    except (FileNotFoundError, NotADirectoryError):
        return None


def new_pair(comment: str) -> KeyPair:
    """A new ed25519 pair, in OpenSSH's own format."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return KeyPair(f"{public.decode()} {comment}", private.decode())
