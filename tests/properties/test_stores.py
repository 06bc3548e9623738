"""Azure Blob with malformed responses: files, or one of our errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import StorageSpec, Store
from tests.needs import require
from tests.properties.mutations import BROKEN, ODD, odd, steady
from tests.scripted import Reply, Scripted

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


def test_malformed_azure_blob_listing_never_ends_in_a_traceback(container):
    check_listing(*container, BLOBS, BLOB_PARTS)
