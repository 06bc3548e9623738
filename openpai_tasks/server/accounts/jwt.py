"""JSON web tokens signed with HS256, no more of that standard than is used here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any

LONGEST = 4096


def encode(payload: dict[str, Any], key: bytes) -> str:
    head = _pack(b'{"alg":"HS256","typ":"JWT"}')
    signed = f"{head}.{_pack(json.dumps(payload, separators=(',', ':')).encode())}"
    return f"{signed}.{_pack(_signature(signed, key))}"


def decode(token: str, key: bytes, now: float) -> dict[str, Any] | None:
    """The payload if we signed it and it has not expired; the header is never asked for the algorithm."""
    signed, dot, signature = token.rpartition(".")
    if not dot or len(token) > LONGEST or not token.isascii():
        return None
    if not hmac.compare_digest(_pack(_signature(signed, key)), signature):
        return None
    try:
        payload = json.loads(_unpack(signed.partition(".")[2]))
    except (ValueError, binascii.Error):
        return None
    if not isinstance(payload, dict) or now >= payload.get("exp", now + 1):
        return None
    return payload


def _signature(signed: str, key: bytes) -> bytes:
    return hmac.new(key, signed.encode("ascii"), hashlib.sha256).digest()


def _pack(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
