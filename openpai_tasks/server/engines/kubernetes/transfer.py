"""Files into and out of a pod through ``kubectl exec``, in pieces, so that a broken transfer continues."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.files.tar_headers import LimitedHeaders, iter_members, open_tar
from openpai_tasks.server.engines.kubernetes.api import may_be_allowed
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl, reason
from openpai_tasks.server.engines.kubernetes.pods import IO

PIECE = 32 << 20  # bytes that are fetched at a time
TRIES, PAUSE = 3, 1.0  # attempts, and seconds between them
CONFLICTS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)  # of names in an archive
_ARCHIVE = f"{IO}/out.tar"
_APPEND = 'mkdir -p "${1%/*}" && cat >>"$1"'
_WRITE = 'cat >"$1.part" && mv "$1.part" "$1" && : >"$2"'
_SIZE = 'wc -c <"$1" 2>/dev/null || echo 0'
# An earlier one may still run, whose connection was lost. It prints something, since silence ends it.
_PACK = f"""\
[ ! -e {_ARCHIVE} ] || exit 0
while sleep 5 >/dev/null 2>&1; do echo; done &
mkdir -p "$1" && cd "$1" && tar -cf {_ARCHIVE}.$$ . && mv {_ARCHIVE}.$$ {_ARCHIVE}
code=$?
kill $!
exit $code
"""
_READ = '{ dd bs=1 skip="$2" count=0 2>/dev/null && head -c "$3"; } <"$1"'  # busybox's tail fails after 2 GiB


class TransferFailed(PaiError):
    """Raised when files cannot be passed into a pod or out of it; ``may_pass`` if it may work later."""

    def __init__(self, message: str, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class PodFiles:
    """The files of one pod, by commands in one of its containers."""

    def __init__(self, kubectl: Kubectl, namespace: str, pod: str, container: str) -> None:
        self._kubectl, self._place = kubectl, (namespace, pod, container)

    async def put(self, path: Path, target: str) -> None:
        """Send a file; continue with what is there of it."""
        with path.open("rb", buffering=0) as file:
            while (done := await self._size(target)) < path.stat().st_size:
                file.seek(done)
                try:
                    await self._sh(_APPEND, target, stdin=file)
                except TransferFailed:
                    if await self._size(target) == done:
                        raise

    async def have_all(self) -> bool:
        """Whether the task has begun, and may have changed what was sent."""
        return (await self._sh(f"[ ! -e {IO}/ready ] || echo 1")) != b""

    async def write(self, target: str, content: str, mark: str) -> None:
        """Write a small file at once, then an empty one."""
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(content.encode())
            file.seek(0)
            await self._sh(_WRITE, target, mark, stdin=file)

    async def fetch(self, folder: str, target: Path) -> None:
        """Fetch a folder of the pod into one of this machine."""
        await self._sh(_PACK, folder)
        size = await self._size(_ARCHIVE)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent) as packed:
            while (done := packed.tell()) < size:
                packed.write(await self._sh(_READ, _ARCHIVE, str(done), str(min(PIECE, size - done))))
            packed.seek(0)
            await asyncio.to_thread(unpack, packed, target)

    async def end(self) -> None:
        """Let the container that keeps the files end."""
        await self._sh(f": >{IO}/fetched")

    async def _size(self, path: str) -> int:
        found = await self._sh(_SIZE, path)
        if not found.strip().isdigit():
            raise TransferFailed(f"unexpected size {found[:100]!r} of {path}", may_pass=True)
        return int(found)

    async def _sh(self, script: str, *words: str, stdin: BinaryIO | None = None) -> bytes:
        """Run a script in the container, a few times if it fails."""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(PAUSE)
            done = await self._kubectl.run_script(*self._place, script, *words, stdin=stdin)
            if done.code == 0:
                return done.out
            if stdin:  # a part may have arrived
                break
        is_forbidden = "forbidden" in done.err.lower() and not may_be_allowed(done.err)
        raise TransferFailed(reason(done.err), may_pass=done.code not in (126, 127) and not is_forbidden)


def unpack(packed: BinaryIO, target: Path) -> None:
    """Write the regular files of an archive, which a task may have crafted, below a folder."""
    root, headers = target.resolve(), LimitedHeaders(packed)
    try:
        with open_tar(headers) as archive:
            for member in iter_members(archive):
                if member.isreg():
                    headers.is_content = True
                    _unpack_file(archive, member, root)
                    headers.is_content = False
    except (tarfile.TarError, RecursionError, OSError) as err:
        if isinstance(err, OSError) and not isinstance(err, PathError) and err.errno not in CONFLICTS:
            raise
        raise TransferFailed(f"invalid archive: {err}", may_pass=False) from err


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    if member.issparse() or member.size < 0:  # it could be written as terabytes
        raise tarfile.ReadError(f"{member.name!r} is sparse or has no valid size")
    path = root.joinpath(*(part for part in PurePosixPath(member.name).parts if part not in ("/", "..")))
    if not path.parent.resolve().is_relative_to(root):
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            shutil.copyfileobj(content, file)
            file.flush()
            os.chmod(file.name, 0o700 if member.mode & 0o100 else 0o600)
            os.utime(file.name, (member.mtime, member.mtime))
            os.replace(file.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise
