"""Convert S3's answers about objects to our values, and our values to fields of requests."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from openpai_tasks.protocol.fields import LAST_MOMENT
from openpai_tasks.storage.objects.md5 import MD5, kind_of_parts
from openpai_tasks.storage.objects.store import ObjectEntry
from openpai_tasks.storage.objects.upload import ObjectBody
from openpai_tasks.storage.store import Digest

SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
METADATA = "x-amz-meta-"
MTIME = "mtime"  # as in rclone: seconds, with a fraction
PART_SIZE = "part-size"  # of an object in parts, whose ETag cannot be verified without it
_MD5 = re.compile(r"[0-9a-f]{32}")


class _NoEntities(ElementTree.TreeBuilder):
    """Refuses document types, whose entities can grow without limit."""

    def doctype(self, *_: object) -> None:
        raise ValueError("a document type in an answer")


def parse(content: bytes) -> Element:
    """Parse an answer; a slow server sends spaces before it."""
    parser = ElementTree.XMLParser(target=_NoEntities())  # noqa: S314 -- no entities
    parser.feed(content.strip())
    return parser.close()


def local_name(element: Element) -> str:
    """Return the element's name without its name space."""
    return element.tag.rpartition("}")[2]


def fields(element: Element) -> dict[str, str]:
    """Return the texts of the element's children by their names."""
    return {local_name(child): child.text or "" for child in element}


def children(element: Element, name: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each child of this name."""
    return (fields(child) for child in element if local_name(child) == name)


def error(content: bytes) -> dict[str, str]:
    """Return the fields of an error; nothing if the answer has no error of S3."""
    try:
        root = parse(content)
    except (ElementTree.ParseError, ValueError):
        return {}
    return fields(root) if local_name(root) == "Error" else {}


def parse_object(key: str, headers: Mapping[str, str]) -> ObjectEntry:
    """Read an object from the headers of an answer about it."""
    size = int(headers.get("content-range", "").rpartition("/")[2] or headers["content-length"])
    part_size = headers.get(f"{METADATA}{PART_SIZE}", "")
    digest = _digest(headers["etag"], size, part_size) if _has_md5(headers) else None
    mtime_ms = _milliseconds(headers.get(f"{METADATA}{MTIME}"))
    arrived = int(parsedate_to_datetime(headers["last-modified"]).timestamp()) * 1000
    return ObjectEntry(key, False, size, arrived, mtime_ms, version(headers), digest)


def parse_listed(one: Mapping[str, str], decode: Callable[[str], str]) -> ObjectEntry:
    """Read an object from a listing; ``decode`` is for its key."""
    key, size, etag = decode(one["Key"]), int(one["Size"]), one.get("ETag", "")
    digest = _digest(etag, size, "")
    arrived = moment(one["LastModified"]) * 1000
    return ObjectEntry(key, key.endswith("/"), size, arrived, None, etag.strip('"'), digest)


def moment(text: str) -> int:
    """Return the seconds of a time in a listing; it is always in UTC."""
    return int(datetime.fromisoformat(f"{text[:19]}+00:00").timestamp())


def metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the object's own metadata."""
    return {name: value for name, value in headers.items() if name.startswith(METADATA)}


def version(headers: Mapping[str, str]) -> str:
    return headers.get("etag", "").strip('"')


def md5_of(headers: Mapping[str, str]) -> str | None:
    """Return the MD5 of an object that was uploaded in one request, if the answer has it."""
    etag = version(headers)
    return etag if _has_md5(headers) and _MD5.fullmatch(etag) else None


def md5_header(body: ObjectBody) -> dict[str, str]:
    """Return the header with the body's MD5."""
    return {"content-md5": base64.b64encode(body.md5).decode()}


def mtime_header(mtime_ms: int | None) -> dict[str, str]:
    """Return the header with the file's own modification time."""
    return {} if mtime_ms is None else {f"{METADATA}{MTIME}": f"{Decimal(mtime_ms) / 1000}"}


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


def _has_md5(headers: Mapping[str, str]) -> bool:
    """Whether the ETag is an MD5: it is not for objects encrypted with a customer's key."""
    return "etag" in headers and headers.get("x-amz-server-side-encryption") in (None, "AES256")


def _milliseconds(text: str | None) -> int | None:
    try:
        found = None if text is None else int(Decimal(text) * 1000 // 1)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return found if found is not None and abs(found) <= LAST_MOMENT else None
