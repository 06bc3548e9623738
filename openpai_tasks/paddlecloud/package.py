"""The folder that is submitted: everything in it is uploaded, and nothing from elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.paddlecloud.request import InvalidArgument, PaddleRequest, check_request
from openpai_tasks.storage.job_files.sources import check_visit
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import is_below


@dataclass(frozen=True)
class Package:
    """A folder on this machine with its files, as paths in it and their sizes."""

    folder: Path
    files: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def location(self) -> Location:
        """The folder as a store that no link leads out of, not even one that is set meanwhile."""
        return Location(LocalStore(str(self.folder)), "/", str(self.folder))


def prepare(request: PaddleRequest) -> Package:
    """Check the options of a submission and collect its package; nothing is sent."""
    check_request(request)
    package = collect_package(request.package)
    if request.topology and not Path(package.folder, request.topology).is_file():
        raise InvalidArgument(f"-topology: no file {request.topology!r} in the package {request.package!r}")
    return package


def collect_package(text: str) -> Package:
    """Find the files of the package; raise for what cannot be uploaded, before anything is sent."""
    if not text or "\0" in text:
        raise InvalidArgument("the package must be a folder on this machine; the path is empty")
    folder = Path(text)
    if not folder.is_dir():
        problem = "it is not a folder" if folder.exists() else "no such folder"
        raise InvalidArgument(f"the package {text!r} cannot be submitted: {problem}")
    root = os.path.realpath(folder)
    try:
        files = tuple(sorted(_files(root, root, "", (root,), Counter())))
    except PathError:  # an OSError, too
        raise
    except OSError as err:
        raise PathError(f"cannot read {err.filename}: {err.strerror}") from err
    if not files:
        raise InvalidArgument(f"the package {text!r} is empty: there is nothing to run")
    return Package(Path(root), files)


def _files(
    root: str, folder: str, above: str, entered: tuple[str, ...], visits: Counter[str]
) -> Iterator[tuple[str, int]]:
    """Yield the files below the folder; ``entered`` holds the real paths of the folders on the way."""
    check_visit(folder, entered[-1], len(entered), visits)
    for entry in list(os.scandir(folder)):
        leads = (
            _real_path(root, entry, entered) if entry.is_symlink() else os.path.join(entered[-1], entry.name)
        )
        if entry.is_dir():
            yield from _files(root, entry.path, f"{above}{entry.name}/", (*entered, leads), visits)
        elif entry.is_file():
            yield above + entry.name, entry.stat().st_size
        else:
            raise PathError(f"{entry.path}: neither a file nor a folder; move it out of the package")


def _real_path(root: str, link: os.DirEntry[str], entered: tuple[str, ...]) -> str:
    """Return where a symlink leads; one out of the package could name any file of the user."""
    leads = os.path.realpath(link.path)
    if not os.path.exists(leads):
        raise PathError(f"{link.path}: a broken symlink; remove it from the package")
    if not is_below(leads, root):
        raise PathError(f"{link.path}: a symlink out of the package; replace it by what it points to")
    if any(is_below(folder, leads) for folder in entered):
        raise PathError(f"{link.path}: a symlink to a folder above it; remove it from the package")
    return leads
