"""S3: the server and bucket of a storage or URL."""

from __future__ import annotations

import re
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.kinds import UserStorage, split_names
from openpai_tasks.storage.objects.store import ObjectStore
from openpai_tasks.storage.store import StorageSpec, join
from openpai_tasks.text.hints import command

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def open_store(spec: StorageSpec) -> ObjectStore:
    """Open a bucket that the user added, or that a cluster names together with a key."""
    from openpai_tasks.storage.objects.s3.bucket import S3Bucket
    from openpai_tasks.storage.objects.s3.client import check_endpoint

    data = spec.data
    name = str(data.get("bucket") or data.get("bucketName") or "")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"{spec.title} {_describe_bucket(name)}")
    endpoint = str(data.get("endpoint") or data.get("address") or "")
    endpoint = endpoint and check_endpoint(endpoint, spec.title)
    if not spec.is_own and not (data.get("accessKeyId") and data.get("secretAccessKey")):
        raise ConfigError(
            f"{spec.title} has no key, and yours is not used for buckets that a cluster names; "
            f"add it yourself: `{command('storage.add')} NAME --type s3 --path {name}`"
        )
    login = (str(data.get(key) or "") for key in ("accessKeyId", "secretAccessKey", "sessionToken"))
    root = spec.users_folder(str(data.get("path") or data.get("rootPath") or ""))
    return ObjectStore(S3Bucket(name, endpoint, *login), root, spec.read_only)


def open_url(url: str) -> tuple[ObjectStore, str]:
    """Open ``s3://bucket/path`` with the keys and the server of the usual AWS settings."""
    from openpai_tasks.storage.objects.s3.bucket import S3Bucket

    name, slash, path = url.partition("://")[2].partition("/")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"{url!r} {_describe_bucket(name)}; expected s3://BUCKET/PATH")
    return ObjectStore(S3Bucket(name)), slash + path or "/"


def server(spec: StorageSpec) -> str:
    return join(str(spec.data.get("endpoint") or "s3:/"), str(spec.data.get("bucket", "")))


def make_data(storage: UserStorage, secret: str) -> dict[str, Any]:
    bucket, _, below = split_names(storage.path, 1)
    login = {"accessKeyId": storage.user, "secretAccessKey": secret} if storage.user else {}
    data = {"bucket": bucket, "path": below} | ({"endpoint": storage.address} if storage.address else {})
    return data | login | storage.server_options


def _describe_bucket(name: str) -> str:
    """Describe what is wrong with an invalid bucket name."""
    rule = "at least two letters or digits, and '.', '_' or '-'"
    return f"names an invalid bucket {name!r}: expected {rule}" if name else "names no bucket"
