"""Pairs of ssh keys for tests, as ssh-keygen writes them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

KINDS = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "rsa": lambda: rsa.generate_private_key(65537, 1024),  # a longer key takes seconds
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
}


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """Write a new private key there, and its public key beside it."""
    key = KINDS[kind]()
    lock = form.BestAvailableEncryption(passphrase.encode()) if passphrase else form.NoEncryption()
    path.touch(0o600)
    path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, lock))
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_text(f"{public.decode()} test\n")
    return path
