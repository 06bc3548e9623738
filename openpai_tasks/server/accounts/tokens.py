"""Tokens: signed, so that they cannot be forged, and listed, so that they can be revoked."""

from __future__ import annotations

import base64
import binascii
import math
import secrets
import time
from typing import TYPE_CHECKING, Any

from openpai_tasks.compat import hidden_module
from openpai_tasks.server import api_errors
from openpai_tasks.server.accounts.users import Accounts, Identity
from openpai_tasks.server.state.database import Database

with hidden_module("cryptography"):  # a fifth of the server's start, for algorithms that it does not use
    import jwt

if TYPE_CHECKING:
    from jwt.types import Options

LIFETIME = 7 * 24 * 3600
TICKET_LIFETIME = 120
LONGEST = 4096  # characters of a token
TOKENS, LOGS, KEYS = "tokens", "logs", "keys"  # what is signed, each with its own key
_ALGORITHM = "HS256"


class Tokens:
    """The tokens of all users; only those in the database are valid."""

    def __init__(self, database: Database, accounts: Accounts) -> None:
        self._database = database
        self._accounts = accounts
        self._keys = {kind: self._stored_key(kind) for kind in (TOKENS, LOGS, KEYS)}

    def issue(self, user: str, application: bool = False) -> str:
        """Issue a token: of an application, without expiry, or of a person, for a week."""
        now, name = int(time.time()), secrets.token_hex(16)
        expires = None if application else now + LIFETIME
        payload = {
            "username": user,
            "application": application,
            "jobSpecific": False,
            "encodedFrameworkName": "",
            "jti": name,
            "iat": now,
            **({} if expires is None else {"exp": expires}),
        }
        token = _encode(payload, self._keys[TOKENS])
        with self._database.transaction():
            self._database.write("DELETE FROM account_tokens WHERE expires < ?", (now,))
            self._database.write(
                "INSERT INTO account_tokens VALUES (?, ?, ?, ?, ?)", (name, user, application, expires, token)
            )
        return token

    def list_of(self, user: str) -> list[str]:
        rows = self._database.rows(
            "SELECT token FROM account_tokens WHERE user = ? AND coalesce(expires > ?, 1) ORDER BY rowid",
            (user, int(time.time())),
        )
        return [row["token"] for row in rows]

    def revoke(self, token: str, user: str) -> None:
        """Revoke a token of this user."""
        payload = _decode(token, self._keys[TOKENS], verify_exp=False)
        if payload is None:
            raise api_errors.unknown("The token to revoke is not one of this cluster.")
        if payload["username"] != user:
            raise api_errors.forbidden("Tokens of other users cannot be revoked.")
        self.forget(payload["jti"])

    def forget(self, token_id: str) -> None:
        self._database.write("DELETE FROM account_tokens WHERE id = ?", (token_id,))

    def identify(self, authorization: str) -> Identity:
        """Return the sender of this header; raise if the token is missing, invalid, expired or revoked."""
        if not authorization:
            raise api_errors.guest()
        scheme, _, value = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            return self._identity(value.strip())
        if scheme.lower() == "basic":
            return self._basic(value.strip())
        raise api_errors.guest()

    def ticket(self, kind: str, claims: dict[str, Any]) -> str:
        """Return a short-lived ticket for a URL: of a log (LOGS) or of a job's private key (KEYS)."""
        return _encode({**claims, "exp": int(time.time()) + TICKET_LIFETIME}, self._keys[kind])

    def read_ticket(self, kind: str, ticket: str) -> dict[str, Any] | None:
        """Return the claims of a ticket of this kind; None if it is not valid."""
        return _decode(ticket, self._keys[kind])

    def _identity(self, token: str) -> Identity:
        payload = _decode(token, self._keys[TOKENS])
        if payload is None:
            raise api_errors.bad_token()
        listed = self._database.row("SELECT 1 FROM account_tokens WHERE id = ?", (payload["jti"],))
        user = self._accounts.user(payload["username"])
        if listed is None or user is None:
            raise api_errors.bad_token()
        application = bool(payload["application"])
        return Identity(
            user.name, user.admin, application, payload["jti"], payload["iat"], payload.get("exp"), user
        )

    def _basic(self, value: str) -> Identity:
        """Identify ``user:applicationToken``; passwords are refused."""
        try:
            user, _, token = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError) as err:
            raise api_errors.bad_token() from err
        identity = self._identity(token)
        if identity.user != user or not identity.application:
            raise api_errors.bad_token()
        return identity

    def _stored_key(self, name: str) -> bytes:
        with self._database.transaction():
            self._database.write(
                "INSERT OR IGNORE INTO account_keys VALUES (?, ?)", (name, secrets.token_bytes(32))
            )
            rows = self._database.rows("SELECT value FROM account_keys WHERE name = ?", (name,))
        return bytes(rows[0]["value"])


def _encode(claims: dict[str, Any], key: bytes) -> str:
    return jwt.encode(claims, key, algorithm=_ALGORITHM)


def _decode(token: str, key: bytes, verify_exp: bool = True) -> dict[str, Any] | None:
    """Return the claims if the token is ours and (by default) valid; the clock may have been set back."""
    options: Options = {"verify_exp": False, "verify_iat": False}
    if len(token) > LONGEST:
        return None
    try:
        claims = jwt.decode(token, key, algorithms=[_ALGORITHM], options=options)
    except (jwt.InvalidTokenError, UnicodeError):  # half a surrogate pair cannot be encoded
        return None
    expires = claims.get("exp", math.inf)
    is_valid = not verify_exp or (isinstance(expires, int | float) and expires > time.time())
    return claims if claims and is_valid else None
