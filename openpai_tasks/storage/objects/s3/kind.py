"""S3: which bucket of which server a storage or a url means."""

from __future__ import annotations

import re

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.objects.s3.bucket import S3Bucket
from openpai_tasks.storage.objects.s3.connection import S3Wire, checked_endpoint
from openpai_tasks.storage.objects.store import ObjectStore
from openpai_tasks.storage.store import Place, check_name

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def open_store(place: Place) -> ObjectStore:
    """A storage that one has added: which bucket, where, and the key if it is not the usual one."""
    data = place.data
    name = str(data.get("bucket") or data.get("bucketName") or "")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"storage {place.name!r} of {place.cluster!r} {_lacking(name)}")
    endpoint = str(data.get("endpoint") or data.get("address") or "")
    endpoint = endpoint and checked_endpoint(endpoint, f"storage {place.name!r} of {place.cluster!r}")
    if not place.is_own and not (data.get("accessKeyId") and data.get("secretAccessKey")):
        raise ConfigError(
            f"storage {place.name!r} of {place.cluster!r} comes without a key of its own, and yours is not "
            f"used for what a cluster names; add it yourself: `pai storage.add NAME --type s3 --path {name}`"
        )
    wire = S3Wire(
        name,
        endpoint,
        str(data.get("accessKeyId") or ""),
        str(data.get("secretAccessKey") or ""),
        str(data.get("sessionToken") or ""),
    )
    root = str(data.get("path") or data.get("rootPath") or "")
    if not place.share:
        root = f"{root}/{check_name(place.user, f'storage {place.name!r}')}"
    return ObjectStore(S3Bucket(wire), root, place.read_only)


def open_url(url: str) -> tuple[ObjectStore, str]:
    """``s3://bucket/path``; who one is, and at which server, is for the usual AWS settings."""
    name, slash, path = url.partition("://")[2].partition("/")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"{url!r} {_lacking(name)}: s3://BUCKET/PATH")
    return ObjectStore(S3Bucket(S3Wire(name))), slash + path or "/"


def _lacking(name: str) -> str:
    """What is wrong with a name that no bucket can have."""
    rule = "two letters or digits at least, and '.', '_' or '-'"
    return f"names the bucket {name!r}, which none can be called: {rule}" if name else "names no bucket"
