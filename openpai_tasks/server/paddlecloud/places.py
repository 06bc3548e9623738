"""Places of PFS: which file of this machine a path such as ``/pfs/local/home/alice/x`` names.

The home of a user is the user's folder of the storage ``home``, so ``pai://local/home/x`` is the same file.
Any name of a datacenter leads to this one, as its users choose the name in their configuration.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.api.context import Context
from openpai_tasks.settings import home

DATACENTER = "local"
HOME, PUBLIC = "home", "public"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}", re.ASCII)


@dataclass(frozen=True)
class PfsPlace:
    """A file or folder, which need not exist."""

    path: str  # as the user knows it, without ``..`` and double slashes
    real: Path  # on this machine, without symbolic links
    root: Path  # the area that contains it
    is_public: bool  # anyone may read it, nobody may write it

    def below(self, real: str | Path) -> str:
        """Return the path in PFS of a file below this place."""
        return posixpath.join(self.path, os.path.relpath(real, self.real))


def check_datacenter(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ApiError(f"invalid datacenter {name!r}: expected letters, digits, '.', '_' or '-'", 400)
    return name


def home_path(datacenter: str, user: str, *parts: str) -> str:
    """Return the path in PFS of a place in a user's home."""
    return posixpath.join(f"/pfs/{datacenter}/{HOME}/{user}", *parts)


def locate(context: Context, user: str, path: str, writes: bool = False) -> PfsPlace:
    """Return the place that a path names; raise if the user may not read it, or write it with ``writes``.

    Neither ``..`` nor symbolic links lead out of the user's home and the public area.
    """
    clean = posixpath.normpath(path)
    if not path.startswith("/pfs/") or not f"{clean}/".startswith("/pfs/") or "\0" in path:
        raise ApiError(f"should be pfs path:{path!r}", 400)
    _, _, datacenter, area, *rest = [*clean.split("/"), "", ""]
    rest = [part for part in rest if part]
    if not datacenter or not area:
        raise ApiError("the path should be in format eg:/pfs/datacentername/home/username", 400)
    check_datacenter(datacenter)
    storage = context.storages[HOME].path.absolute()
    if area == PUBLIC:
        if writes:
            raise Denied("public data supports only ls or stat command", 403)
        root = home.make_private(storage.parent / PUBLIC)
    elif area == HOME and rest and rest[0] == user:
        root, rest = home.make_private(storage / user), rest[1:]
    else:
        raise Denied("what you request is unauthorized", 403)
    root = Path(os.path.realpath(root))
    real = Path(os.path.realpath(root.joinpath(*rest)))
    if real != root and root not in real.parents:
        raise Denied("what you request is unauthorized", 403)
    return PfsPlace(clean, real, root, area == PUBLIC)
