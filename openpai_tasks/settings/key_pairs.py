"""SSH key pairs that are created once and kept: the user's, and those of an embedded cluster's jobs."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.home import write_private


@dataclass(frozen=True)
class KeyPair:
    public: str  # one line, as in authorized_keys
    private: str = field(repr=False)


def load_or_create_pair(folder: Path, name: str, comment: str) -> KeyPair:
    """Return the pair with this name in the folder; create it on first use."""
    found = read_pair(folder, name)
    if found is None:
        found = new_pair(comment)
        write_private(folder / f"{name}.pub", f"{found.public}\n")
        write_private(folder / name, found.private)  # last, as it marks the pair as complete
    return found


def read_pair(folder: Path, name: str) -> KeyPair | None:
    try:
        private = (folder / name).read_text(encoding="ascii")
        return KeyPair((folder / f"{name}.pub").read_text(encoding="utf-8").strip(), private)
    except (FileNotFoundError, NotADirectoryError):
        return None


def new_pair(comment: str) -> KeyPair:
    """Create an ed25519 pair in OpenSSH's format."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return KeyPair(f"{public.decode()} {comment}", private.decode())
