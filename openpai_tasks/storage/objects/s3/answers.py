"""Convert S3's answers about objects to our values, and our values to fields of requests."""

from __future__ import annotations

import base64
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from openpai_tasks.protocol.fields import LAST_MOMENT
from openpai_tasks.storage.objects.md5 import MD5, kind_of_parts
from openpai_tasks.storage.objects.store import ObjectEntry
from openpai_tasks.storage.objects.upload import ObjectBody
from openpai_tasks.storage.store import Digest

MTIME = "mtime"  # as in rclone: seconds, with a fraction
PART_SIZE = "part-size"  # of an object in parts, whose ETag cannot be verified without it
_MD5 = re.compile(r"[0-9a-f]{32}")


def thing(key: str, head: dict[str, Any]) -> ObjectEntry:
    """Read an object from an answer about it alone."""
    metadata, size = head.get("Metadata", {}), head["ContentLength"]
    digest = _digest(head["ETag"], size, metadata.get(PART_SIZE, "")) if _has_md5(head) else None
    mtime_ms = _milliseconds(metadata.get(MTIME))
    return ObjectEntry(key, False, size, _arrived(head["LastModified"]), mtime_ms, version(head), digest)


def listed(one: dict[str, Any]) -> ObjectEntry:
    """Read an object from a listing."""
    key, size, etag = one["Key"], one["Size"], one.get("ETag", "")
    arrived = _arrived(one["LastModified"])
    return ObjectEntry(key, key.endswith("/"), size, arrived, None, version(one), _digest(etag, size, ""))


def version(answer: dict[str, Any]) -> str:
    return str(answer.get("ETag", "")).strip('"')


def md5_of(answer: dict[str, Any]) -> str | None:
    """Return the MD5 of an object that was uploaded in one request, if the answer has it."""
    etag = version(answer)
    return etag if _has_md5(answer) and _MD5.fullmatch(etag) else None


def content(body: ObjectBody) -> dict[str, Any]:
    """Return the request fields for the content and its MD5."""
    return {"Body": body.data, "ContentMD5": base64.b64encode(body.md5).decode()}


def dated(mtime_ms: int | None) -> dict[str, str]:
    """Return the metadata with the file's own modification time."""
    return {} if mtime_ms is None else {MTIME: f"{Decimal(mtime_ms) / 1000}"}


def _arrived(moment: Any) -> int:
    """Return the time in whole seconds, as listings and answers differ in the fraction."""
    return int(moment.timestamp()) * 1000


def _digest(etag: str, size: int, part_size: str) -> Digest | None:
    """Return the digest in the ETag if it is an MD5; an object in parts needs their size."""
    value, mark, count = etag.strip('"').partition("-")
    if not _MD5.fullmatch(value):
        return None
    if not mark:
        return Digest(MD5, value)
    if not (part_size.isdecimal() and count.isdecimal() and len(part_size + count) < 20 and int(part_size)):
        return None
    if -(-size // int(part_size)) != int(count):
        return None
    return Digest(kind_of_parts(int(part_size)), f"{value}-{count}")


def _has_md5(answer: dict[str, Any]) -> bool:
    """Whether the ETag is an MD5: it is not for objects encrypted with a customer's key."""
    return "ETag" in answer and answer.get("ServerSideEncryption") in (None, "AES256")


def _milliseconds(text: str | None) -> int | None:
    try:
        found = None if text is None else int(Decimal(text) * 1000 // 1)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return found if found is not None and abs(found) <= LAST_MOMENT else None
