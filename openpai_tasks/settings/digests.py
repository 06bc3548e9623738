"""Digests of short texts and files, as names and proofs."""

from __future__ import annotations


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal."""
    import hashlib  # not at the top, as few commands need it and it loads OpenSSL

    return hashlib.sha256(data).hexdigest()
