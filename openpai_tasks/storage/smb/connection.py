"""One connection to an SMB server for all threads, opened on demand and again when it breaks."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from smbprotocol.connection import Connection  # type: ignore[import-untyped]
from smbprotocol.exceptions import (  # type: ignore[import-untyped]
    SMBAuthenticationError,
    SMBConnectionClosed,
    SMBException,
    SMBResponseException,
)
from smbprotocol.header import Commands, NtStatus  # type: ignore[import-untyped]
from smbprotocol.session import Session  # type: ignore[import-untyped]
from smbprotocol.tree import TreeConnect  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.smb.errors import LOST, NO_LOGIN, NO_SHARE, NoShare, make_error

for _name in ("smbprotocol", "spnego"):  # they log every packet, login tokens included
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)

CONNECT = 15  # seconds for a server to accept the connection
SILENCE = 60.0  # seconds without any answer, while one is due, until the connection counts as dead
PENDING = 120  # seconds for an answer that the server has announced to be late
LOOK = 1.0  # seconds between two checks whether the connection is alive
CREDITS = 128  # requested with each message while there are fewer than ENOUGH: 64 KiB in flight each
ENOUGH = 1024
STARVED = 0.0005  # seconds between two checks whether the server has granted more

Step = tuple[Any, Callable[[Any], Any]]
"""A message to send, and the reader of its answer."""


@dataclass(frozen=True)
class SmbLogin:
    """A server and the user who logs in."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    must_encrypt: bool = False


class SmbConnection(Connection):  # type: ignore[misc]
    """A connection that many threads can share, with a timeout for every wait."""

    def __init__(self, login: SmbLogin) -> None:
        super().__init__(uuid.uuid4(), login.host, login.port, require_signing=True)
        self._turn = threading.Lock()

    def open(self) -> None:
        self.connect(timeout=CONNECT)
        wire = self.transport._sock
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform != "win32":  # a server that stops reading must not block the sender forever
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SILENCE), 0))

    def receive(
        self, request: Any, wait: bool = True, timeout: int | None = None, resolve_symlinks: bool = False
    ) -> Any:
        self._check_worker_running()
        heard, since = self.sequence_window["high"], time.monotonic()
        while not request.response_event.wait(LOOK):
            self._check_worker_running()
            if heard != self.sequence_window["high"]:  # others get answers: the line is slow, not dead
                heard, since = self.sequence_window["high"], time.monotonic()
            elif time.monotonic() - since > SILENCE:
                _close(self)  # others need not wait as long
                raise SMBConnectionClosed(f"no answer for {SILENCE:.0f} seconds")
        return super().receive(request, wait, timeout or PENDING, resolve_symlinks)

    def verify_signature(self, header: Any, session_id: int, force: bool = False) -> None:
        """Refuse an answer that should be encrypted or signed and is not: anyone could have sent it."""
        session = self.session_table.get(session_id)
        is_early = header["command"].get_value() in (Commands.SMB2_NEGOTIATE, Commands.SMB2_SESSION_SETUP)
        is_promise = header["status"].get_value() == NtStatus.STATUS_PENDING
        if session is not None and not (is_early or is_promise):
            if session.encrypt_data:
                raise SMBException("an answer was not encrypted")
            force = True
        super().verify_signature(header, session_id, force)

    def _check_worker_running(self) -> None:
        if self._t_exc is not None:
            raise SMBConnectionClosed(f"the connection broke: {self._t_exc}") from self._t_exc
        super()._check_worker_running()

    def _send(self, messages: Sequence[Any], *args: Any, **options: Any) -> Any:
        """Send in order, once the server has granted the needed credits."""
        charge = sum(max(1, self._calculate_credit_charge(message)) for message in messages)
        with self._turn:
            since = time.monotonic()
            while (granted := self._granted()) < charge:
                self._check_worker_running()
                if time.monotonic() - since > SILENCE:
                    raise SMBConnectionClosed(f"no credits for {SILENCE:.0f} seconds")
                time.sleep(STARVED)
            if granted < ENOUGH and self.supports_multi_credit:
                options["credit_request"] = options.get("credit_request") or max(CREDITS, charge)
            return super()._send(messages, *args, **options)

    def _granted(self) -> int:
        with self.sequence_lock:
            return int(self.sequence_window["high"] - self.sequence_window["low"])


class SmbServer:
    """A server for one user: one connection, one session, a tree for each share."""

    def __init__(self, login: SmbLogin) -> None:
        self.login = login
        self._lock = threading.Lock()
        self._session: Any = None
        self._trees: dict[str, Any] = {}
        self._process = os.getpid()

    def tree(self, share: str) -> Any:
        with self._lock:
            if self._process != os.getpid():  # a forked process must not share the connection
                self._process, self._session = os.getpid(), None
            if self._session is None or not self._session.connection.transport.connected:
                self._trees.clear()
                self._session = self._log_in()
            if share not in self._trees:
                self._trees[share] = self._connect_tree(share)
            return self._trees[share]

    def __del__(self) -> None:
        """Close the socket only: waiting could block the reader thread, or never end at exit."""
        if self._session is not None and self._process == os.getpid():
            with contextlib.suppress(OSError, AttributeError):
                self._session.connection.transport._sock.shutdown(socket.SHUT_RDWR)

    def drop(self, tree: Any) -> None:
        """Close the connection of the tree, which cannot be used any more."""
        with self._lock:
            _close(tree.session.connection)

    def _log_in(self) -> Any:
        login = self.login
        with _connecting(login):
            line = SmbConnection(login)
            try:
                line.open()
                is_safe = bool(line.supports_encryption)
                if login.must_encrypt and not is_safe:
                    raise ConfigError(
                        f"{login.host} offers no encryption (SMB 3), without which nothing is sent"
                    )
                session = Session(line, login.user, login.password, require_encryption=is_safe)
                session.connect()
            except BaseException:
                _close(line)
                raise
            return session

    def _connect_tree(self, share: str) -> Any:
        tree = TreeConnect(self._session, rf"\\{self.login.host}\{share}")
        with _connecting(self.login, share):
            tree.connect()
        tree.is_dfs_share = False  # its paths are those of one server and never point to another
        return tree


_servers: weakref.WeakValueDictionary[SmbLogin, SmbServer] = weakref.WeakValueDictionary()
_servers_lock = threading.Lock()


def shared_server(login: SmbLogin) -> SmbServer:
    """Return the server for the login; all stores that use it at the same time share one connection."""
    with _servers_lock:
        return _servers.get(login) or _servers.setdefault(login, SmbServer(login))


def exchange(tree: Any, steps: Sequence[Step]) -> list[Any]:
    """Send messages together, and return the answers; raise the first refusal once all are read."""
    session = tree.session
    messages = [message for message, _ in steps]
    requests = session.connection.send_compound(
        messages, session.session_id, tree.tree_connect_id, related=True
    )
    answers, refusals = [], []
    for (_, read), request in zip(steps, requests, strict=True):
        try:
            answers.append(read(request))
        except SMBResponseException as err:
            refusals.append(err)
    if refusals:
        raise refusals[0]
    return answers


@contextlib.contextmanager
def open_tree(host: SmbServer, share: str, path: str) -> Iterator[Any]:
    """Yield the tree of the share, over the existing connection or a new one."""
    tree = host.tree(share)
    with mapping_errors(host, tree, path):
        yield tree


@contextlib.contextmanager
def mapping_errors(host: SmbServer, tree: Any, path: str) -> Iterator[None]:
    """Convert errors of SMB to ours, and drop a broken connection."""
    try:
        yield
    except SMBResponseException as err:
        if err.status in LOST:
            host.drop(tree)
        raise make_error(err.status, path, host.login.host) from err
    except PaiError:
        raise
    except (SMBException, OSError) as err:
        host.drop(tree)
        raise Unreachable(f"{path}: {host.login.host}:{host.login.port} broke off: {err}") from err


@contextlib.contextmanager
def _connecting(login: SmbLogin, share: str = "") -> Iterator[None]:
    where = f"{login.host}:{login.port}"
    try:
        yield
    except SMBResponseException as err:
        if err.status in NO_LOGIN:
            raise Denied(f"{where} refuses the user {login.user!r}: {NO_LOGIN[err.status]}", 401) from err
        if err.status in NO_SHARE:
            raise NoShare(f"{where} has no share {share!r}", 404) from err
        raise make_error(err.status, f"share {share!r}" if share else where, where) from err
    except SMBAuthenticationError as err:
        raise Denied(f"{where} refuses the user {login.user!r}", 401) from err
    except PaiError:
        raise
    except (SMBException, OSError, ValueError) as err:
        if "guest" in str(err):
            reason = "it accepts everyone as a guest, and cannot sign the messages of a guest"
            raise Denied(f"{where} does not know the user {login.user!r}: {reason}", 401) from err
        raise Unreachable(f"no SMB server answers at {where}: {err}") from err


def _close(line: Any) -> None:
    with contextlib.suppress(OSError):
        if line.transport is not None:
            line.disconnect(close=False)
