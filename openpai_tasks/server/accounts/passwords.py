"""Salted, slow hashes of passwords."""

from __future__ import annotations

import hashlib
import hmac
import secrets

COST = 2**14  # 16 MiB and a few tens of milliseconds per guess


def hashed(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${COST}${salt.hex()}${_derive(password, salt, COST).hex()}"


def matches(password: str, stored: str) -> bool:
    """Compare the password with the stored hash, in constant time."""
    _, cost, salt, digest = stored.split("$")
    return hmac.compare_digest(_derive(password, bytes.fromhex(salt), int(cost)), bytes.fromhex(digest))


def generated() -> str:
    return secrets.token_urlsafe(18)


def _derive(password: str, salt: bytes, cost: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=cost, r=8, p=1, maxmem=64 * 1024 * 1024)
