"""Keys: pairs that are made once and kept, and public ones that people hand in."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openpai_tasks import home
from openpai_tasks.server.ssh import KeyPair

HOST_KEY, JOB_KEY = "host", "job"
_LINE = re.compile(
    r"(?P<type>[a-z][a-z0-9@.-]{2,60})[ \t]+(?P<key>[A-Za-z0-9+/]{20,16000}={0,2})([ \t].*)?", re.ASCII
)


def kept_pair(folder: Path, name: str, comment: str) -> KeyPair:
    """The pair of that name in the folder, which is made when it is asked for first."""
    found = read_pair(folder, name)
    if found is None:
        found = new_pair(comment)
        home.write_private(folder / f"{name}.pub", f"{found.public}\n")
        home.write_private(folder / name, found.private)  # last: it is what says that there is a pair
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


def public_keys(text: str) -> Iterator[str]:
    """The public keys in a text of one or more lines; what is none is passed over."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and _type(match["key"]) == match["type"]:
            yield f"{match['type']} {match['key']}"


def listed_keys(items: Any) -> Iterator[str]:
    """Those in a list of items, each with its key as ``value``."""
    for item in items if isinstance(items, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, str):
            yield from public_keys(value)


def _type(key: str) -> str:
    """The type that the key itself says it is."""
    try:
        data = base64.b64decode(key, validate=True)
    except binascii.Error:
        return ""
    length = int.from_bytes(data[:4], "big")
    return data[4 : 4 + length].decode("ascii", "replace")
