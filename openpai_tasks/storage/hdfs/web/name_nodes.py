"""Name nodes: the operations of WebHDFS on files and folders, with retries and with errors as ours."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, parse_qs, quote, urlencode

from openpai_tasks.errors import PaiError, PathError, Unreachable
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.protocol.fields import MALFORMED, count, mapping, moment, rows, text, whole
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.storage.hdfs.native.rpc import HOST, Status
from openpai_tasks.storage.hdfs.web.client import V1, WebHdfsClient, check_redirect
from openpai_tasks.storage.hdfs.web.errors import HDFS_ERRORS, ON_STANDBY, NoAnswer, RemoteError, make_error
from openpai_tasks.storage.retry import wait_before_retry

if TYPE_CHECKING:
    import pyhdfs

Result = TypeVar("Result")


RETRIES = RetryPolicy(9, 0.2, longest_pause=5.0)
"""For an HDFS that has answered before: its nodes may need this time to restart or to fail over."""
UNKNOWN_TRIES = 5
"""For a host that has never answered: it may be a wrong address."""
WEB_PORTS = (9870, 50070, 5070)  # of Hadoop 3, Hadoop 2 and OpenPAI: tried if the web port is not known
PROBE_SECONDS = 2.0  # to look for the web port


class NameNodes:
    """All name nodes of one HDFS; the active one answers."""

    def __init__(
        self,
        hosts: tuple[str, ...],
        user: str,
        scheme: str,
        prefix: str,
        client: WebHdfsClient,
        retries: RetryPolicy,
    ) -> None:
        self.servers = [f"{scheme}://{host}" for host in hosts]  # the one that answered last is the first
        self._hosts, self._user, self._prefix, self._client = hosts, user, prefix, client
        self.retries = retries
        self._answered: set[str] = set()
        self._clients: dict[str, pyhdfs.HdfsClient] = {}

    def retry(self, operation: Callable[[int], Result], path: str) -> Result:
        """Return ``operation(number of the try)``; retry after temporary errors, never after a refusal.

        Callers do not retry again: there is one layer of retries.
        """
        for number in itertools.count():
            try:
                return operation(number)
            except HDFS_ERRORS as err:
                ours = make_error(err, path)
                tries = self.retries.tries if self._answered else min(self.retries.tries, UNKNOWN_TRIES)
                pause = self.retries._replace(tries=tries).pause(number)
                if pause is None or not isinstance(ours, Unreachable) or wait_before_retry(pause):
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

    def list_batch(self, path: str, after: str) -> tuple[list[Status], int]:
        """Return some of a folder's entries, those after a name, and the number of those left."""
        with parsing_answer(path):
            listing = mapping(self._json(path, "LISTSTATUS_BATCH", startAfter=after))["DirectoryListing"]
            return _parse_statuses(listing["partialListing"]), count(listing["remainingEntries"])

    def list_all(self, path: str) -> list[Status]:
        """Return a folder's entries in one answer, for an HDFS that does not support batches."""
        with parsing_answer(path):
            return _parse_statuses(self._json(path, "LISTSTATUS"))

    def file_status(self, path: str) -> Status:
        """Return the status of one file or folder."""
        with parsing_answer(path):
            return _parse_status(self._json(path, "GETFILESTATUS")["FileStatus"])

    def checksum(self, path: str, **options: str) -> tuple[str, str]:
        """Return the kind and the value of a file's digest, which a data node computes."""
        there = self.data_node("GET", path, "GETFILECHECKSUM", **options)
        with parsing_answer(path):
            found = parse(self._client.follow("GET", there).content)["FileChecksum"]
            return text(found["algorithm"]), text(found["bytes"])

    def server_defaults(self) -> dict[str, int]:
        """Return the defaults of new files: blockSize, bytesPerChecksum, checksumType and so on."""
        with parsing_answer("/"):
            return _parse_defaults(self._json("/", "GETSERVERDEFAULTS"))

    def is_open(self, path: str) -> bool:
        """Whether the file is still open for writing, as far as the name node knows."""
        with parsing_answer(path):
            return bool(self._json(path, "GET_BLOCK_LOCATIONS")["LocatedBlocks"]["isUnderConstruction"])

    def rename(self, path: str, target: str) -> None:
        """Rename a file in one step, replacing the file that has the name."""
        target = self._target(path, "RENAME", destination=target, renameoptions="OVERWRITE")
        self._active(lambda server: self._client.ask("PUT", server, target))

    def data_node(self, method: str, path: str, op: str, **options: str) -> SplitResult:
        """Return the URL at a data node that a name node redirects an operation to."""
        target = self._target(path, op, **options)

        def ask(server: str) -> SplitResult:
            answer = self._client.ask(method, server, target, expected=307)
            return check_redirect(server, answer.headers.get("location", ""))

        return self._active(ask)

    def rpc_address(self, path: str, is_new: bool) -> tuple[str, int] | None:
        """Return the address of the name node's native protocol, from its redirects to data nodes."""
        there = self.data_node("PUT", path, "CREATE") if is_new else self.data_node("GET", path, "OPEN")
        host, _, port = parse_qs(there.query).get("namenoderpcaddress", [""])[0].rpartition(":")
        is_gateway = not there.path.startswith(V1)  # a gateway passes only HTTP
        is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
        return (host, int(port)) if HOST.fullmatch(host) and is_port and not is_gateway else None

    def _json(self, path: str, op: str, **options: str) -> Any:
        target = self._target(path, op, **options)
        return parse(self._active(lambda server: self._client.ask("GET", server, target)).content)

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
                self._answered.add(server)
                if err.kind not in ON_STANDBY:
                    raise
                trouble = f"{server.partition('://')[2]} is starting or on standby"
                continue
            self._answered.add(server)
            if server != self.servers[0]:
                self.servers = [server, *(one for one in self.servers if one != server)]
            return result
        raise NoAnswer(trouble + self._guesses())

    def found_hosts(self) -> list[str]:
        """Return the hosts; of one whose web port is not known, only the port that answers, if one does."""
        by_name: dict[str, list[str]] = {}
        for host in self._hosts:
            by_name.setdefault(host.rpartition(":")[0], []).append(host)
        return [host for hosts in by_name.values() for host in self._found_ports(hosts)]

    def _found_ports(self, hosts: list[str]) -> list[str]:
        if [host.rpartition(":")[2] for host in hosts] != [str(port) for port in WEB_PORTS]:
            return hosts
        scheme = self.servers[0].partition("://")[0]
        known = [host for host in hosts if f"{scheme}://{host}" in self._answered]
        return known or next(([host] for host in hosts if self._answers(f"{scheme}://{host}")), hosts)

    def _answers(self, server: str) -> bool:
        """Return whether WebHDFS answers there soon."""
        client = WebHdfsClient(PROBE_SECONDS)
        try:
            client.ask("GET", server, self._target("/", "GETFILESTATUS"))
        except NoAnswer:
            return False
        except RemoteError:
            pass
        finally:
            client.close()
        self._answered.add(server)
        return True

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
                opened = pyhdfs_client.open_client(server, self._user, self._prefix, self._client)
                self._clients[server] = opened
            return change(self._clients[server])

        with parsing_answer(path), pyhdfs_client.mapping_errors():
            return self._active(ask)


@contextlib.contextmanager
def parsing_answer(path: str) -> Iterator[None]:
    """Raise PathError if a field is missing or has another type."""
    try:
        yield
    except PaiError:
        raise
    except MALFORMED as err:
        raise PathError(f"{path}: cannot understand the answer of HDFS; is it WebHDFS?") from err


def _parse_status(value: Any) -> Status:
    """Parse a FileStatus; only fields that some versions lack may be missing."""
    kind, size, mode = value["type"], whole(value["length"]), int(text(value["permission"]) or "0", 8)
    if kind not in ("FILE", "DIRECTORY", "SYMLINK") or size is None or size < 0:
        raise ValueError("no status of a file")
    mtime_ms = moment(value["modificationTime"]) or 0
    names = text(value.get("fileId")), text(value.get("pathSuffix"))
    return Status(kind == "DIRECTORY", kind == "SYMLINK", size, mode & 0o7777, mtime_ms, *names)


def _parse_statuses(value: Any) -> list[Status]:
    found = value["FileStatuses"]["FileStatus"]
    if len(rows(found)) != len(found):
        raise TypeError("no list of files")
    return [_parse_status(one) for one in found]


def _parse_defaults(value: Any) -> dict[str, int]:
    """Parse the defaults of new files, all of which are needed."""
    defaults = value["FsServerDefaults"]
    keys = ("blockSize", "bytesPerChecksum", "checksumType", "replication")
    found = {key: count(defaults[key]) for key in keys}
    if not found["blockSize"] or not found["bytesPerChecksum"]:
        raise ValueError("no sizes of blocks")
    return found | {"encryptDataTransfer": bool(defaults["encryptDataTransfer"])}
