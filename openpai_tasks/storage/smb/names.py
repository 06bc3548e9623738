"""Names that SMB cannot hold, written as other clients write them, so that all see the same name.

A name on a share has no control characters, none of ``"*:<>?\\|``, and no space or dot at its end.
Linux's and Apple's clients put private letters (U+F001 to U+F029) in their places, and read them back; so do
we, and what a job sees in a mounted share is the name that was sent. A name with such a private letter of its
own would come back as another one, so it is refused.
"""

from __future__ import annotations

from openpai_tasks.errors import PathError
from openpai_tasks.storage.store import check_name, require_utf8

RESERVED = '"*:<>?\\|'
AT_END = " ."
_FIRST = 0xF020  # the private character of the first reserved one
_WRITTEN = {number: 0xF000 + number for number in range(1, 32)}
_WRITTEN |= {ord(letter): _FIRST + place for place, letter in enumerate(RESERVED)}
_READ = {private: plain for plain, private in _WRITTEN.items()}
_END_WRITTEN = {letter: chr(_FIRST + len(RESERVED) + place) for place, letter in enumerate(AT_END)}
_END_READ = {private: plain for plain, private in _END_WRITTEN.items()}

DEVICES = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10)),
}
"""Names that Windows reserves for devices, with any extension; servers show them under another name."""


def encode(name: str) -> str:
    """Return the name as it is sent to the server."""
    _check(name)
    plain = name.translate(_WRITTEN)
    return plain[:-1] + _END_WRITTEN.get(plain[-1:], plain[-1:])


def decode(name: bytes, folder: str) -> str:
    """Decode a name from a listing of the folder."""
    try:
        text = name.decode("utf-16-le")
    except UnicodeDecodeError as err:
        raise PathError(f"{folder} lists a name that is not valid UTF-8: {name.hex()}") from err
    text = text[:-1] + _END_READ.get(text[-1:], text[-1:])
    return check_name(text.translate(_READ), folder)


def encode_path(names: str) -> str:
    """``/a/b`` as SMB writes it, from the share on: ``a\\b``."""
    parts = [name for name in names.split("/") if name]
    if "." in parts or ".." in parts:
        raise PathError(f"{names!r} cannot be a path on a share")
    return "\\".join(map(encode, parts))


def check_not_device(names: str) -> None:
    """Refuse a new name that the server would show under another name."""
    name = names.rpartition("/")[2]
    if name.partition(".")[0].rstrip(" ").lower() in DEVICES:
        raise PathError(
            f"{names}: Windows reserves {name!r} for a device, so no share can hold it; choose another name"
        )


def _check(name: str) -> None:
    if "\0" in name:
        raise PathError(f"{name!r} cannot be a name on a share")
    if any(ord(letter) in _READ for letter in name) or name[-1:] in _END_READ:
        raise PathError(f"{name!r}: a character in it is reserved on shares; choose another name")
    require_utf8(name, "a share")
