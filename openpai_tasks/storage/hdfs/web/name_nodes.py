"""Name nodes: the operations of WebHDFS on files and folders, with retries and with errors as ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, parse_qs, quote, urlencode

from openpai_tasks.errors import Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.protocol.fields import text
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.storage.hdfs.web import answers
from openpai_tasks.storage.hdfs.web.answers import reading
from openpai_tasks.storage.hdfs.web.connections import V1, Wire, redirected
from openpai_tasks.storage.hdfs.web.errors import FOREIGN, ON_STANDBY, NoAnswer, RemoteError, make_error
from openpai_tasks.storage.retry import paused

if TYPE_CHECKING:
    import pyhdfs

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """Number of tries, and pauses between them: doubled each time, with some randomness.

    An HDFS that has answered before gets the time that its nodes may need to restart or to fail over; a host
    that never answered may be a wrong address.
    """

    tries: int = 9
    first: float = 0.2
    longest: float = 5.0
    unknown_tries: int = 5

    def pause(self, number: int, is_known: bool = True) -> float | None:
        """Return the seconds to wait after try ``number`` (from 0); None after the last try."""
        tries = self.tries if is_known else min(self.tries, self.unknown_tries)
        return RetryPolicy(tries, self.first, longest_pause=self.longest).pause(number)


class NameNodes:
    """All name nodes of one HDFS; the active one answers."""

    def __init__(
        self, hosts: tuple[str, ...], user: str, scheme: str, prefix: str, wire: Wire, patience: Patience
    ) -> None:
        self.servers = [f"{scheme}://{host}" for host in hosts]  # the one that answered last is the first
        self._hosts, self._user, self._prefix, self._wire = hosts, user, prefix, wire
        self.patience = patience
        self._has_answered = False
        self._clients: dict[str, pyhdfs.HdfsClient] = {}

    def patiently(self, operation: Callable[[int], Result], path: str) -> Result:
        """Return ``operation(number of the try)``; retry after temporary errors, never after a refusal.

        Callers do not retry again: there is one layer of retries.
        """
        for number in itertools.count():
            try:
                return operation(number)
            except FOREIGN as err:
                ours = make_error(err, path)
                pause = self.patience.pause(number, self._has_answered)
                if pause is None or not isinstance(ours, Unreachable) or paused(pause):
                    ours.is_given_up = True
                    raise ours from err
        raise AssertionError("counting never ends")

    def make_folder(self, path: str, **options: str) -> None:
        self._change(path, lambda client: client.mkdirs(path, **options))

    def delete(self, path: str, is_recursive: bool = False) -> bool:
        """Delete a file or folder; return whether it existed."""
        flag = "true" if is_recursive else "false"
        return bool(self._change(path, lambda client: client.delete(path, recursive=flag)))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._change(path, lambda client: client.set_times(path, modificationtime=mtime_ms))

    def set_mode(self, path: str, mode: int) -> None:
        self._change(path, lambda client: client.set_permission(path, permission=f"{mode:o}"))

    def list_batch(self, path: str, after: str) -> tuple[list[dict[str, Any]], int]:
        """Return some of a folder's entries, those after a name, and the number of those left."""
        with reading(path):
            return answers.batch(self._json(path, "LISTSTATUS_BATCH", startAfter=after))

    def list_all(self, path: str) -> list[dict[str, Any]]:
        """Return a folder's entries in one answer, for an HDFS that does not support batches."""
        with reading(path):
            return answers.statuses(self._json(path, "LISTSTATUS"))

    def file_status(self, path: str) -> dict[str, Any]:
        """Return the status of one file or folder."""
        with reading(path):
            return answers.status(self._json(path, "GETFILESTATUS")["FileStatus"])

    def checksum(self, path: str, **options: str) -> tuple[str, str]:
        """Return the kind and the value of a file's digest, which a data node computes."""
        there = self.data_node("GET", path, "GETFILECHECKSUM", **options)
        with reading(path):
            found = parse(self._wire.follow("GET", there).content)["FileChecksum"]
            return text(found["algorithm"]), text(found["bytes"])

    def server_defaults(self) -> dict[str, int]:
        """Return the defaults of new files: blockSize, bytesPerChecksum, checksumType and so on."""
        with reading("/"):
            return answers.defaults(self._json("/", "GETSERVERDEFAULTS"))

    def is_open(self, path: str) -> bool:
        """Whether the file is still open for writing, as far as the name node knows."""
        with reading(path):
            return bool(self._json(path, "GET_BLOCK_LOCATIONS")["LocatedBlocks"]["isUnderConstruction"])

    def rename(self, path: str, target: str) -> None:
        """Rename a file in one step, replacing the file that has the name."""
        target = self._target(path, "RENAME", destination=target, renameoptions="OVERWRITE")
        self._active(lambda server: self._wire.ask("PUT", server, target))

    def data_node(self, method: str, path: str, op: str, **options: str) -> SplitResult:
        """Return the URL at a data node that a name node redirects an operation to."""
        target = self._target(path, op, **options)

        def ask(server: str) -> SplitResult:
            answer = self._wire.ask(method, server, target, expected=307)
            return redirected(server, answer.headers.get("location", ""))

        return self._active(ask)

    def rpc_address(self, path: str, is_new: bool) -> tuple[str, int] | None:
        """Return the address of the name node's native protocol, from its redirects to data nodes."""
        there = self.data_node("PUT", path, "CREATE") if is_new else self.data_node("GET", path, "OPEN")
        host, _, port = parse_qs(there.query).get("namenoderpcaddress", [""])[0].rpartition(":")
        is_gateway = not there.path.startswith(V1)  # a gateway passes only HTTP
        is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
        return (host, int(port)) if host and is_port and not is_gateway else None

    def _json(self, path: str, op: str, **options: str) -> Any:
        target = self._target(path, op, **options)
        return parse(self._active(lambda server: self._wire.ask("GET", server, target)).content)

    def _target(self, path: str, op: str, **options: str) -> str:
        query = {**options, "user.name": self._user, "op": op}
        return f"{self._prefix}{quote(path)}?{urlencode(query, quote_via=quote)}"

    def _active(self, ask: Callable[[str], Result]) -> Result:
        """Return the result of the first server that answers and is not on standby."""
        trouble = ""
        for server in self.servers:
            try:
                result = ask(server)
            except NoAnswer as err:
                trouble = str(err)
                continue
            except RemoteError as err:
                self._has_answered = True
                if err.kind not in ON_STANDBY:
                    raise
                trouble = f"{server.partition('://')[2]} is starting or on standby"
                continue
            self._has_answered = True
            if server != self.servers[0]:
                self.servers = [server, *(one for one in self.servers if one != server)]
            return result
        raise NoAnswer(trouble + self._guesses())

    def _guesses(self) -> str:
        """Return which ports of a host were tried because its web port is not known; empty if it is."""
        host = self._hosts[0].rpartition(":")[0]
        ports = [one.rpartition(":")[2] for one in self._hosts if one.rpartition(":")[0] == host]
        if len(ports) < 2:
            return ""
        return f" (tried its web ports {', '.join(ports)}; if it has another one, use webhdfs://{host}:PORT)"

    def _change(self, path: str, change: Callable[[pyhdfs.HdfsClient], Result]) -> Result:
        """Return the result of a call of PyHDFS to the active name node."""
        from openpai_tasks.storage.hdfs.web import pyhdfs_client

        def ask(server: str) -> Result:
            if server not in self._clients:
                opened = pyhdfs_client.open_client(server, self._user, self._prefix, self._wire)
                self._clients[server] = opened
            return change(self._clients[server])

        with reading(path), pyhdfs_client.mapping_errors():
            return self._active(ask)
