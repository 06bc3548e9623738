"""Places of PFS: which file of this machine a path such as ``/pfs/local/home/alice/x`` names.

The home of a user is the user's folder of the storage ``home``, so ``pai://local/home/x`` is the same file.
Any name of a datacenter leads to this one, as its users choose the name in their configuration.
"""

from __future__ import annotations

import posixpath
import re

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.paddlecloud.pfs.tree import Names, Tree
from openpai_tasks.settings import home

DATACENTER = "local"
HOME, PUBLIC = "home", "public"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}", re.ASCII)


@dataclass(frozen=True)
class PfsPlace:
    """A file or folder, which need not exist."""

    prefix: str  # the path of the area that contains it, as the user knows it
    names: Names  # below the area
    tree: Tree

    @property
    def path(self) -> str:
        """The path as the user knows it, without ``..`` and double slashes."""
        return "/".join([self.prefix, *self.names])

    def is_folder(self) -> bool:
        try:
            return self.tree.stat(self.names).is_folder
        except OSError:
            return False


def check_datacenter(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ApiError(f"invalid datacenter {name!r}: expected letters, digits, '.', '_' or '-'", 400)
    return name


def datacenter_of(path: str) -> str:
    """Return the datacenter that a path names; "" if it is not on PFS."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["", "pfs"] and len(parts) > 3 else ""


def home_path(datacenter: str, user: str, *parts: str) -> str:
    """Return the path in PFS of a place in a user's home."""
    return posixpath.join(f"/pfs/{datacenter}/{HOME}/{user}", *parts)


def locate(context: Context, user: str, path: str, writes: bool = False) -> PfsPlace:
    """Return the place that a path names; raise if the user may not read it, or write it with ``writes``.

    Neither ``..`` nor, in its tree, symbolic links lead out of the user's home and the public area.
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
    prefix = clean.split("/")[: -len(rest) or None]
    return PfsPlace("/".join(prefix), tuple(rest), Tree(root))
