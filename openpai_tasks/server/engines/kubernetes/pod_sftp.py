"""SFTP for a pod whose image has a POSIX shell, but no SFTP server: each operation is a command there.

The commands of a session go to one shell that stays, so they cost no process of ``kubectl``. A small file is
written by that shell, a larger one by a separate ``cat``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import secrets
import shlex
import stat
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator

import asyncssh

from openpai_tasks.server.engines.container_program import WORK
from openpai_tasks.server.engines.kubernetes.kubectl import reason
from openpai_tasks.server.engines.kubernetes.ssh_service import PodCommands
from openpai_tasks.server.ssh.serve_asyncssh import SftpServer

SMALL = 1 << 16  # bytes of a file that the shell writes
PIECE = 1 << 13  # bytes of an argument of printf, which may be a program
BLOCK, BLOCKS = 1 << 20, 4  # bytes that are read at once, and how many of these are kept
LARGEST = 64 << 20  # bytes of one answer
DD = 1 << 16
_MOST, _MOST_BYTES = (1 << 32) - 1, (1 << 64) - 1
"""The largest numbers of SFTP: of a mode, a user and a time, which is never negative, and of a size."""
APPEND = 'cat >>"$1"; exit $?'
"""The shell must not become ``cat``: input is lost once no process has the first output any more."""
_STAT = "stat {follow} -c '%f %s %u %g %X %Y'"
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./_,:=+-\n")
_ESCAPES = [bytes([one]) if one in _PLAIN else b"\\0%03o" % one for one in range(256)]
_ERRORS = {
    **{os.strerror(number).lower(): number for number in errno.errorcode},
    **dict.fromkeys(("no such file", "nonexistent directory", "directory nonexistent"), errno.ENOENT),
}
"""The messages of programs, and of shells that have their own."""
_TYPES = {
    stat.S_IFREG: asyncssh.FILEXFER_TYPE_REGULAR,
    stat.S_IFDIR: asyncssh.FILEXFER_TYPE_DIRECTORY,
    stat.S_IFLNK: asyncssh.FILEXFER_TYPE_SYMLINK,
}


class PodShell:
    """A shell in the pod that runs one command after the other."""

    def __init__(self, pod: PodCommands) -> None:
        self._pod, self._lock = pod, asyncio.Lock()
        self._process: Process | None = None

    async def run(self, script: str | bytes) -> bytes:
        """Return the output of a command; OSError with its message if it fails."""
        async with self._lock:
            try:
                code, out = await self._ask(script if isinstance(script, bytes) else os.fsencode(script))
            except BaseException:  # what it still prints belongs to no other command
                self.close()
                raise
        if code:
            message = reason(out.decode("utf-8", "replace"))
            number = _ERRORS.get(message.rpartition(": ")[2].lower(), errno.EIO)
            raise OSError(number, message)
        return out

    async def _ask(self, script: bytes) -> tuple[int, bytes]:
        if self._process is None or self._process.returncode is not None:
            self._process = await start(self._pod, "/bin/sh")
            self._process.stdin.write(b"export LC_ALL=C\n")  # type: ignore[union-attr]
        process, mark = self._process, secrets.token_hex(16).encode()
        assert process.stdin and process.stdout and process.stderr
        try:
            process.stdin.write(
                b"(\n" + script + b"\n) </dev/null 2>&1; printf '\\n%s %d\\n' " + mark + b" $?\n"
            )
            await process.stdin.drain()
            out = await process.stdout.readuntil(b"\n" + mark + b" ")
            return int(await process.stdout.readline()), out[: -len(mark) - 2]
        except asyncio.LimitOverrunError as err:
            raise OSError(errno.EOVERFLOW, "the answer is too large") from err
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as err:  # it ended within a line
            why = reason((await process.stderr.read()).decode("utf-8", "replace"))
            raise OSError(errno.EIO, f"no shell in the pod: {why}") from err

    def close(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
        self._process = None


async def start(pod: PodCommands, *command: str, has_output: bool = True) -> Process:
    return await asyncio.create_subprocess_exec(
        *pod.exec(*command, flags=("-i",)),
        stdin=PIPE,
        stdout=PIPE if has_output else DEVNULL,
        stderr=PIPE,
        env=pod.environment,
        limit=LARGEST,
    )


class PodFile:
    """An open file of the pod."""

    def __init__(self, shell: PodShell, pod: PodCommands, path: str, end: int | None) -> None:
        self._shell, self._pod, self.path = shell, pod, path
        self._end = end  # where the next piece is expected; None if each is appended
        self._pending = bytearray()
        self._stream: Process | None = None
        self._lock = asyncio.Lock()
        self._blocks: dict[int, asyncio.Future[bytes]] = {}

    async def read(self, offset: int, size: int) -> bytes:
        number, start = divmod(offset, BLOCK)
        found = (await self._block(number))[start : start + size]
        if not found:
            self._blocks.pop(number, None)  # it may grow
        elif len(found) < size and start + len(found) == BLOCK:
            found += await self.read(offset + len(found), size - len(found))
        return found

    async def _block(self, number: int) -> bytes:
        """Return a part of the file, which is kept for the requests for the rest of it."""
        if number not in self._blocks:
            per, path = BLOCK // DD, shlex.quote(self.path)
            script = f"dd if={path} bs={DD} skip={number * per} count={per} 2>/dev/null || : <{path}"
            self._blocks[number] = asyncio.ensure_future(self._shell.run(script))
            while len(self._blocks) > BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
        return await asyncio.shield(self._blocks[number])

    async def write(self, offset: int, data: bytes) -> None:
        async with self._lock:
            if self._end is not None and offset != self._end:
                await self._flush()
                await self._write_at(offset, data)
                self._end = -1
                return
            self._end = None if self._end is None else self._end + len(data)
            self._pending += data
            if self._stream is None and len(self._pending) > SMALL:
                words = ("/bin/sh", "-c", APPEND, "sh", self.path)
                self._stream = await start(self._pod, *words, has_output=False)
            if self._stream:
                assert self._stream.stdin
                with contextlib.suppress(ConnectionError):  # its exit code says why
                    self._stream.stdin.write(bytes(self._pending))
                    await self._stream.stdin.drain()
                self._pending.clear()

    async def _write_at(self, offset: int, data: bytes) -> None:
        target = f"dd of={shlex.quote(self.path)} bs=1 seek={offset} conv=notrunc 2>/dev/null"
        await self._shell.run(b"{ " + _print(data) + b"; } | " + os.fsencode(target))

    async def flush(self) -> None:
        """Wait until everything is written."""
        async with self._lock:
            await self._flush()

    async def _flush(self) -> None:
        if self._pending:
            pending, self._pending = bytes(self._pending), bytearray()
            await self._shell.run(b"{ " + _print(pending) + b"; } >>" + os.fsencode(shlex.quote(self.path)))
        if self._stream:
            stream, self._stream = self._stream, None
            _, err = await stream.communicate(b"")  # without bytes, it would leave the input open
            if stream.returncode:
                message = err.decode("utf-8", "replace").strip().splitlines()[:1]
                raise OSError(errno.EIO, message[0] if message else "it could not be written")

    def abandon(self) -> None:
        if self._stream and self._stream.returncode is None:
            self._stream.kill()


def _print(data: bytes) -> bytes:
    """Return commands that print any bytes."""
    pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
    return b"; ".join(b"printf %b '" + b"".join(map(_ESCAPES.__getitem__, one)) + b"'" for one in pieces)


class PodSftpServer(SftpServer):
    """The operations of SFTP as commands in the pod."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], pod: PodCommands) -> None:
        super().__init__(channel)
        self._pod, self._shell = pod, PodShell(pod)
        self._open: set[PodFile] = set()

    async def _run(self, script: str, *paths: bytes) -> bytes:
        """Run a command with the paths in place of ``{0}`` and so on."""
        return await self._shell.run(script.format(*(shlex.quote(_absolute(path)) for path in paths)))

    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attributes(await self._run(_STAT.format(follow="-L") + " {0}", path))

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attributes(await self._run(_STAT.format(follow="") + " {0}", path))

    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        return await self.stat(os.fsencode((await _flushed(file_obj)).path))

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """Yield the names in a folder; none contains a slash, so that one ends each record."""
        listing = _STAT.format(follow="").rstrip("'") + " %n/' {{}} +"
        await self.stat(path)
        found = await self._run("cd {0} && find . ! -name . -prune -exec " + listing, path)
        for record in found.split(b"/\n")[:-1]:
            facts, _, name = record.partition(b" ./")
            yield asyncssh.SFTPName(name, attrs=_attributes(facts))

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> PodFile:
        writes, end = bool(pflags & asyncssh.FXF_WRITE), -1
        if not writes:
            mode = (await self.stat(path)).permissions or 0
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        else:
            only_new = "set -C; " if pflags & asyncssh.FXF_EXCL else ""
            is_new = pflags & (asyncssh.FXF_TRUNC | asyncssh.FXF_EXCL)
            exists = "" if pflags & asyncssh.FXF_CREAT else f"{_STAT.format(follow='-L')} {{0}} || exit; "
            await self._run(f"{exists}{only_new}: {'>' if is_new else '>>'}{{0}}", path)
            end = 0 if is_new else -1
            if attrs.permissions is not None and pflags & asyncssh.FXF_CREAT:
                await self.setstat(path, asyncssh.SFTPAttrs(permissions=attrs.permissions))
        is_appended = bool(pflags & asyncssh.FXF_APPEND)
        file = PodFile(self._shell, self._pod, _absolute(path), None if is_appended else end)
        self._open.add(file)
        return file

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        assert isinstance(file_obj, PodFile)
        return await file_obj.read(offset, size)

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        assert isinstance(file_obj, PodFile)
        await file_obj.write(offset, data)
        return len(data)

    async def close(self, file_obj: object) -> None:
        assert isinstance(file_obj, PodFile)
        try:
            await file_obj.flush()
        finally:
            self._open.discard(file_obj)

    async def fsync(self, file_obj: object) -> None:
        await _flushed(file_obj)

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        if attrs.uid is not None or attrs.gid is not None:
            raise asyncssh.SFTPOpUnsupported("owners cannot be changed")
        if attrs.size is not None:
            await self._run(f"dd of={{0}} bs=1 seek={attrs.size} count=0 2>/dev/null", path)
        if attrs.permissions is not None:
            await self._run(f"chmod {attrs.permissions & 0o7777:o} {{0}}", path)
        if attrs.mtime is not None:
            moment = time.strftime("%Y%m%d%H%M.%S", time.gmtime(attrs.mtime))
            await self._run(f"TZ=UTC0 touch -c -t {moment} {{0}}", path)

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        await self.setstat(os.fsencode((await _flushed(file_obj)).path), attrs)

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        mode = "" if attrs.permissions is None else f"-m {attrs.permissions & 0o7777:o} "
        await self._run(f"mkdir {mode}{{0}}", path)

    async def rmdir(self, path: bytes) -> None:
        await self._run("rmdir {0}", path)

    async def remove(self, path: bytes) -> None:
        await self.lstat(path)
        await self._run("rm -f {0}", path)

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        exists = os.strerror(errno.EEXIST)
        await self._run(
            f"if [ -e {{1}} ] || [ -L {{1}} ]; then echo ': {exists}'; exit 1; fi; mv {{0}} {{1}}",
            oldpath,
            newpath,
        )

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        folder = os.strerror(errno.EISDIR)
        await self._run(
            f"if [ -d {{1}} ]; then echo ': {folder}'; exit 1; fi; mv -f {{0}} {{1}}", oldpath, newpath
        )

    async def realpath(self, path: bytes) -> bytes:
        return os.fsencode(posixpath.normpath(_absolute(path)))

    async def readlink(self, path: bytes) -> bytes:
        return (await self._run("readlink {0}", path)).removesuffix(b"\n")

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        await self._run(f"ln -s -- {shlex.quote(os.fsdecode(oldpath)).replace('{', '{{')} {{0}}", newpath)

    def exit(self) -> None:
        super().exit()
        self._shell.close()
        for file in self._open:
            file.abandon()


async def _flushed(file_obj: object) -> PodFile:
    assert isinstance(file_obj, PodFile)
    await file_obj.flush()
    return file_obj


def _absolute(path: bytes) -> str:
    text = os.fsdecode(path)
    if "\0" in text:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return posixpath.join(WORK, text)


def _attributes(line: bytes) -> asyncssh.SFTPAttrs:
    """Return what ``stat`` has printed."""
    try:
        kind, *numbers = line.split()
        mode, size = int(kind, 16) & _MOST, min(max(0, int(numbers.pop(0))), _MOST_BYTES)
        uid, gid, atime, mtime = (min(max(0, int(number)), _MOST) for number in numbers)
    except (ValueError, IndexError) as err:
        raise OSError(errno.EIO, "the image has no program stat that SFTP can use") from err
    return asyncssh.SFTPAttrs(
        type=_TYPES.get(stat.S_IFMT(mode), asyncssh.FILEXFER_TYPE_SPECIAL),
        size=size,
        uid=uid,
        gid=gid,
        permissions=mode,
        atime=atime,
        mtime=mtime,
    )
