"""Files into and out of a pod through ``kubectl exec``, in pieces, so that a broken transfer continues."""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from openpai_tasks.errors import PaiError
from openpai_tasks.server.engines.kubernetes.kubectl import ExecResult, Kubectl, reason
from openpai_tasks.server.engines.kubernetes.pods import IO

PIECE = 32 << 20  # bytes that are fetched at a time
LONGEST = 3600.0  # seconds that a transfer may take without an error
TRIES, PAUSE = 3, 1.0  # attempts, and seconds between them
_ARCHIVE = f"{IO}/out.tar"
_APPEND = 'mkdir -p "${1%/*}" && cat >>"$1"; exit $?'  # the input ends when nobody holds the output
_WRITE = 'cat >"$1.part" && mv "$1.part" "$1" && : >"$2"'
_SIZE = 'wc -c <"$1" 2>/dev/null || echo 0'
_PACK = f'[ -e {_ARCHIVE} ] || {{ cd "$1" && tar -cf {_ARCHIVE}.part . && mv {_ARCHIVE}.part {_ARCHIVE}; }}'
_READ = 'tail -c "+$2" "$1" | head -c "$3"'


class TransferFailed(PaiError):
    """Raised when files cannot be passed into a pod or out of it; ``may_pass`` if it may work later."""

    def __init__(self, done: ExecResult) -> None:
        super().__init__(reason(done.err))
        self.may_pass = done.code not in (126, 127) and "forbidden" not in done.err.lower()


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
                packed.write(await self._sh(_READ, _ARCHIVE, str(done + 1), str(min(PIECE, size - done))))
            packed.seek(0)
            await asyncio.to_thread(unpack, packed, target)

    async def end(self) -> None:
        """Let the container that keeps the files end."""
        await self._sh(f": >{IO}/fetched")

    async def _size(self, path: str) -> int:
        return int(await self._sh(_SIZE, path))

    async def _sh(self, script: str, *words: str, stdin: BinaryIO | None = None) -> bytes:
        """Run a script in the container, a few times if it fails."""
        argv = ("/bin/sh", "-c", script, "sh", *words)
        for number in range(TRIES):
            if number:
                await asyncio.sleep(PAUSE)
            done = await self._kubectl.exec(*self._place, *argv, stdin=stdin, seconds=LONGEST)
            if done.code == 0:
                return done.out
            if stdin:  # a part may have arrived
                break
        raise TransferFailed(done)


def unpack(packed: BinaryIO, target: Path) -> None:
    """Write the regular files of an archive, which a task may have crafted, below a folder."""
    root = target.resolve()
    with tarfile.open(fileobj=packed, mode="r|") as archive:
        for member in archive:
            path = root.joinpath(
                *(part for part in PurePosixPath(member.name).parts if part not in ("/", ".."))
            )
            if not member.isreg() or not path.parent.resolve().is_relative_to(root):
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
                shutil.copyfileobj(content, file)
            os.chmod(file.name, 0o700 if member.mode & 0o100 else 0o600)
            os.utime(file.name, (member.mtime, member.mtime))
            os.replace(file.name, path)
