"""Fingerprints of files in a container, computed over there by ``sha256sum`` in one shell that stays."""

from __future__ import annotations

import secrets
import shlex
import threading
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import Unreachable

if TYPE_CHECKING:
    from openpai_tasks.storage.sftp.sessions import RemoteConnection

SECONDS = 1800.0  # for one file, however large
UMASK = 0o022
_HASH = 64


class Sums:
    """A shell in the container; what it cannot do is told as nothing, never as an error."""

    def __init__(self, login: RemoteConnection) -> None:
        self.login = login
        self._lock = threading.Lock()
        self._channel: Any = None
        self._rest = b""
        self.umask = UMASK
        try:
            self.can = self._open()
        except Unreachable:  # where files may be copied and nothing run, the connection is still good
            if not login.is_open:
                raise
            self.can = False

    def of(self, path: str) -> str:
        """The SHA-256 of the file; empty where it cannot be told."""
        if not self.can:
            return ""
        with self._lock:
            words = self._asked(f"sha256sum < {shlex.quote(path)} 2>/dev/null").split()
        return words[0] if words and len(words[0]) == _HASH else ""

    def _open(self) -> bool:
        """Whether there is a shell with what is needed; whatever it says first is passed over."""
        with self.login.losing():
            self._channel = self.login.session()
            self._channel.settimeout(SECONDS)
            self._channel.exec_command("exec sh")
            mask = self._asked("umask").strip()
            self.umask = int(mask, 8) if mask and set(mask) <= set("01234567") else UMASK
            return bool(self._asked("command -v sha256sum").strip())

    def _asked(self, command: str) -> str:
        """What the command writes; a mark that nothing else can hold ends it."""
        mark = secrets.token_hex(8)
        line = f"echo {mark}; {command}; echo; echo {mark}\n"
        with self.login.losing():
            self._channel.sendall(line.encode("utf-8", "surrogateescape"))
            text = self._until(f"{mark}\n".encode(), 2)
        return text.decode("utf-8", "replace")

    def _until(self, mark: bytes, times: int) -> bytes:
        """What comes between the marks; a shell that ends leaves nothing."""
        text = self._rest
        while text.count(mark) < times:
            piece = self._channel.recv(1 << 16)
            if not piece:
                return b""
            text += piece
        _, between, self._rest = text.split(mark, times)
        return between.strip()
