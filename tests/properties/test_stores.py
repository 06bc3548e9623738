"""WebHDFS, S3 and Azure Blob with malformed responses: files, or one of our errors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.errors import PaiError
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.hdfs import store as webhdfs_store
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import StorageSpec, Store
from tests.needs import require
from tests.properties.mutations import BROKEN, ODD, body, odd, steady
from tests.scripted import ReceivedRequest, Reply, Scripted

STATUS = {
    "accessTime": 1320171722771,
    "blockSize": 33554432,
    "group": "supergroup",
    "length": 24930,
    "modificationTime": 1320171722771,
    "owner": "webuser",
    "pathSuffix": "a.patch",
    "permission": "644",
    "replication": 1,
    "type": "FILE",
    "fileId": 16387,
}
SUM = "CRC32C"
HDFS: dict[str, Any] = {
    "GETFILESTATUS": {"FileStatus": STATUS},
    "LISTSTATUS": {"FileStatuses": {"FileStatus": [STATUS]}},
    "LISTSTATUS_BATCH": {
        "DirectoryListing": {
            "partialListing": {"FileStatuses": {"FileStatus": [STATUS, {**STATUS, "pathSuffix": "b"}]}},
            "remainingEntries": 0,
        }
    },
    "GETSERVERDEFAULTS": {
        "FsServerDefaults": {
            "blockSize": 134217728,
            "bytesPerChecksum": 512,
            "checksumType": 2,
            "encryptDataTransfer": False,
            "replication": 3,
        }
    },
    "GETFILECHECKSUM": {
        "FileChecksum": {"algorithm": f"MD5-of-1MD5-of-512{SUM}", "bytes": "ab" * 28, "length": 28}
    },
    "MKDIRS": {"boolean": True},
    "DELETE": {"boolean": True},
    "GET_BLOCK_LOCATIONS": {"LocatedBlocks": {"isUnderConstruction": False}},
    "CREATE": "",
    "OPEN": "content",
}
REMOTE = {
    "RemoteException": {"exception": "IOException", "javaClassName": "java.io.IOException", "message": "no"}
}
DATA = ("GETFILECHECKSUM", "CREATE", "OPEN")
USES: dict[str, Any] = {
    "GETFILESTATUS": lambda store: (store.stat("/a"), store.identities("/a"), store.make_executable("/a")),
    "LISTSTATUS_BATCH": lambda store: list(store.list("/")),
    "GETSERVERDEFAULTS": lambda store: (store.hasher(), store.read_checked("/a", 5)),
    "GETFILECHECKSUM": lambda store: store.digest("/a"),
    "MKDIRS": lambda store: store.make_folder("/d"),
    "DELETE": lambda store: store.remove("/d", recursive=True),
    "GET_BLOCK_LOCATIONS": lambda store: store.unfinished_size("/a"),
    "CREATE": lambda store: store.write("/n", [b"x"], 1),
    "OPEN": lambda store: list(store.read("/a")),
}


class NameNode(Scripted):
    """A name node that is also its data node, and answers one operation with a given response."""

    def __init__(self) -> None:
        super().__init__({})
        self.odd_op, self.odd, self.where = "", Reply(), ""

    def respond(self, asked: ReceivedRequest) -> Reply:
        self.seen.clear()
        op = asked.query.get("op", "")
        is_data = asked.path.startswith("/data")
        if op == self.odd_op and (op not in DATA or is_data or self.where):
            return self.odd
        if op in DATA and not is_data:
            return Reply("", 307, (("Location", f"{self.uri}/data?op={op}"),))
        return Reply(HDFS.get(op, ""), 201 if op == "CREATE" else 200)


@pytest.fixture(scope="module")
def name_node():
    server = NameNode()
    yield server
    server.close()


def use(name_node: NameNode, op: str) -> None:
    store = HdfsStore([f"127.0.0.1:{name_node.port}"], "ann", retries=RetryPolicy(1, 0.2))
    with contextlib.closing(store):
        try:
            USES[op](store)
        except PaiError as err:
            str(err).encode()


@pytest.mark.parametrize("op", USES)
def test_malformed_response_of_a_name_node_never_ends_in_a_traceback(name_node, op, monkeypatch):
    monkeypatch.setattr(webhdfs_store, "RECOVERY", 0.0)
    name_node.odd_op, name_node.where, real = "", "", HDFS[op]
    USES[op](HdfsStore([f"127.0.0.1:{name_node.port}"], "ann", retries=RetryPolicy(1, 0.2)))
    name_node.odd_op = op

    @steady(25)
    @given(body(real) | body(REMOTE), st.sampled_from((200, 200, 200, 201, 302, 403, 404, 500)))
    def check(odd_body, status):
        name_node.odd = Reply(odd_body, status)
        use(name_node, op)

    check()


@pytest.mark.parametrize("op", DATA)
@pytest.mark.parametrize(
    "target", ["", "http://[", "http://a:b/", "file:///x", "http://h:0/", "http://\xe9/", "x"]
)
def test_invalid_redirect_of_a_name_node_is_an_error(name_node, op, target):
    name_node.odd_op, name_node.where = op, "name node"
    for text in ("", "body"):
        name_node.odd = Reply(text, 307, (("Location", target),) if target else ())
        store = HdfsStore([f"127.0.0.1:{name_node.port}"], "ann", retries=RetryPolicy(1, 0.2))
        with contextlib.closing(store), pytest.raises(PaiError):
            USES[op](store)


LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>data</Name><Prefix></Prefix>
<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>
<Contents><Key>a.txt</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>
<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>5</Size></Contents>
<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>"""
PARTS = (
    "a.txt",
    "2024-01-01T00:00:00.000Z",
    ">5<",
    "false",
    "d/",
    "&quot;d41d8cd98f00b204e9800998ecf8427e&quot;",
)
INNER = [
    *(text for text in map(str, ODD) if len(text) < 500),
    "<x/>",
    "&bad;",
    "&lt;",
    "</Contents>",
    "\x00",
    "../x",
]


BLOBS = """<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="http://h/acct/" ContainerName="data"><Blobs><Blob><Name>a.txt</Name>
<Properties><Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified><Etag>0x8D</Etag>
<Content-Length>5</Content-Length><Content-MD5>XUFAKrxLKna5cZ2REBfFkg==</Content-MD5><BlobType>BlockBlob</BlobType>
</Properties><Metadata><mtime>2024-01-01T00:00:00.5Z</mtime></Metadata></Blob>
<BlobPrefix><Name>d/</Name></BlobPrefix></Blobs><NextMarker/></EnumerationResults>"""
BLOB_PARTS = (
    "a.txt",
    "Mon, 01 Jan 2024 00:00:00 GMT",
    ">5<",
    "XUFAKrxLKna5cZ2REBfFkg==",
    "2024-01-01T00:00:00.5Z",
    "d/",
)


@pytest.fixture(scope="module")
def container():
    require("adlfs")
    server = Scripted({})
    data = {"accountName": "acct", "accountKey": "a2V5", "containerName": "data"}
    data["dataStore"] = f"{server.uri}/acct"
    yield (
        server,
        open_storage(StorageSpec("lab", "blobs", "azureblob", data)),
    )
    server.close()


@pytest.fixture(scope="module")
def bucket():
    server = Scripted({})
    keys = {"accessKeyId": "AK", "secretAccessKey": "theirs", "bucket": "data", "endpoint": server.uri}
    yield server, open_storage(StorageSpec("lab", "objects", "s3", keys))
    server.close()


def listed(store: Store) -> None:
    """List the names, with retries that stop instead of waiting."""
    with contextlib.suppress(PaiError):
        retrying(lambda: list(store.list("/")), wait=lambda seconds: True)


def check_listing(server: Scripted, store: Store, real: str, parts: tuple[str, ...]) -> None:
    kind = (("Content-Type", "application/xml"),)
    server.respond = lambda asked: Reply(real, headers=kind)
    assert {entry.name for entry in store.list("/")} == {"a.txt", "d"}

    @steady(25)
    @given(
        st.sampled_from(parts), st.sampled_from(INNER) | odd.map(str), st.booleans(), st.sampled_from(BROKEN)
    )
    def check(part, text, is_local, broken):
        near = real.replace(part, f">{text}<" if part.startswith(">") else text).encode("utf-8", "replace")
        server.respond = lambda asked: Reply(near if is_local else broken, headers=kind)
        listed(store)

    check()


def test_malformed_s3_listing_never_ends_in_a_traceback(bucket):
    check_listing(*bucket, LISTING, PARTS)


def test_malformed_azure_blob_listing_never_ends_in_a_traceback(container):
    check_listing(*container, BLOBS, BLOB_PARTS)
