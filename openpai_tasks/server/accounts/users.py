"""Users, their passwords, and the rights that their groups grant."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from openpai_tasks.errors import Conflict, Denied
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import api_errors
from openpai_tasks.server.accounts.groups import ADMIN_GROUP, DEFAULT_GROUP, Group, Groups
from openpai_tasks.server.state.database import Database

COST = 2**14  # of a password's hash: 16 MiB and a few tens of milliseconds per guess
SCHEMA = """
CREATE TABLE IF NOT EXISTS account_users (
    name TEXT PRIMARY KEY, password TEXT NOT NULL, email TEXT NOT NULL,
    grouplist TEXT NOT NULL, extension TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS account_groups (
    name TEXT PRIMARY KEY, description TEXT NOT NULL, external_name TEXT NOT NULL, extension TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS account_tokens (
    id TEXT PRIMARY KEY, user TEXT NOT NULL, application INTEGER NOT NULL, expires INTEGER,
    token TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS account_keys (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""


@dataclass(frozen=True)
class User:
    name: str
    email: str
    grouplist: tuple[str, ...]
    extension: dict[str, Any]
    admin: bool
    virtual_clusters: tuple[str, ...]
    storages: tuple[str, ...]


@dataclass(frozen=True)
class Identity:
    """The user who makes a call."""

    user: str
    admin: bool
    application: bool
    token_id: str
    issued: int  # seconds, as in the token
    expires: int | None
    account: User = field(repr=False)


class Accounts:
    """The users in the cluster's database."""

    def __init__(self, database: Database, groups: Groups) -> None:
        self._database = database
        self.groups = groups

    def user(self, name: str) -> User | None:
        row = self._database.row("SELECT * FROM account_users WHERE name = ?", (name,))
        return self._user(row, self.groups.all()) if row else None

    def existing_user(self, name: str, status: int = 404) -> User:
        """Return the user; raise an error with this status if there is none."""
        user = self.user(name)
        if user is None:
            raise api_errors.no_user(name, status)
        return user

    def users(self) -> list[User]:
        groups = self.groups.all()
        rows = self._database.rows("SELECT * FROM account_users ORDER BY name")
        return [self._user(row, groups) for row in rows]

    def members(self, group: str) -> list[User]:
        return [user for user in self.users() if group in user.grouplist]

    def accepts(self, name: str, password: str) -> bool:
        """Whether the user exists and the password is right."""
        row = self._database.row("SELECT password FROM account_users WHERE name = ?", (name,))
        return row is not None and matches_hash(password, row["password"])

    def create(
        self, name: str, password: str, email: str, grouplist: Iterable[str], extension: dict[str, Any]
    ) -> None:
        hashed = hash_password(password)  # slow, so outside the lock
        with self._database.transaction():
            # Names become folders, and some file systems ignore case.
            if self._database.row("SELECT 1 FROM account_users WHERE lower(name) = lower(?)", (name,)):
                raise Conflict(f"User name {name} already exists.", 409, "ConflictUserError")
            groups = self.groups.known((DEFAULT_GROUP, *grouplist))
            self._database.write(
                "INSERT INTO account_users VALUES (?, ?, ?, ?, ?)",
                (name, hashed, email, json.dumps(groups), json.dumps(extension)),
            )

    def remove(self, name: str) -> None:
        """Remove a user and the user's tokens; raise for admins."""
        with self._database.transaction():
            if self.existing_user(name).admin:
                raise Denied(f"Admin {name} is not allowed to remove.", 403, "RemoveAdminError")
            self._database.write("DELETE FROM account_users WHERE name = ?", (name,))
            self._database.write("DELETE FROM account_tokens WHERE user = ?", (name,))

    def set_email(self, name: str, email: str) -> None:
        self._set(name, "email", email)

    def set_password(self, name: str, password: str, keep: str = "") -> None:
        """Change the password, and revoke all tokens except those of applications and ``keep``."""
        hashed = hash_password(password)
        with self._database.transaction():
            self._set(name, "password", hashed)
            self._database.write(
                "DELETE FROM account_tokens WHERE user = ? AND application = 0 AND id != ?", (name, keep)
            )

    def set_extension(self, name: str, extension: dict[str, Any], merge: bool) -> None:
        with self._database.transaction():
            before = self.existing_user(name).extension if merge else {}
            self._set(name, "extension", json.dumps({**before, **extension}))

    def set_groups(self, name: str, grouplist: Iterable[str]) -> None:
        with self._database.transaction():
            self._set(name, "grouplist", json.dumps(self.groups.known(grouplist)))

    def add_group(self, name: str, group: str) -> None:
        with self._database.transaction():
            self.set_groups(name, (*self.existing_user(name).grouplist, group))

    def drop_group(self, name: str, group: str) -> None:
        with self._database.transaction():
            self.groups.known([group])
            self.set_groups(name, [one for one in self.existing_user(name).grouplist if one != group])

    def remove_group(self, group: str) -> None:
        """Remove a group and its memberships."""
        with self._database.transaction():
            for user in self.members(group):
                self.drop_group(user.name, group)
            self.groups.remove(group)

    def set_admin(self, name: str, admin: bool) -> None:
        """Add the user to the admin group, or remove the user from all groups of admins."""
        if admin:
            return self.add_group(name, ADMIN_GROUP)
        with self._database.transaction():
            admins = {group.name for group in self.groups.all().values() if group.admin}
            self.set_groups(name, [one for one in self.existing_user(name).grouplist if one not in admins])

    def set_virtual_clusters(self, name: str, wanted: Sequence[str]) -> None:
        """Set the groups to those of these virtual clusters and ``default``."""
        self.check_virtual_clusters(wanted)
        with self._database.transaction():
            mine = self.existing_user(name).grouplist
            others = [one for one in mine if one not in self.groups.virtual_clusters]
            self.set_groups(name, (DEFAULT_GROUP, *others, *wanted))

    def check_virtual_clusters(self, wanted: Iterable[str]) -> None:
        for one in wanted:
            if one not in self.groups.virtual_clusters:
                raise api_errors.no_virtual_cluster(one, 400)

    def _user(self, row: sqlite3.Row, groups: dict[str, Group]) -> User:
        grouplist = tuple(json.loads(row["grouplist"]))
        mine = [groups[name] for name in grouplist if name in groups]
        admin = any(group.admin for group in mine)
        clusters = {name for group in mine for name in group.virtual_clusters}
        storages = {name for group in mine for name in group.storages}
        return User(
            name=row["name"],
            email=row["email"],
            grouplist=grouplist,
            extension=json.loads(row["extension"]),
            admin=admin,
            virtual_clusters=tuple(x for x in self.groups.virtual_clusters if admin or x in clusters),
            storages=tuple(x for x in self.groups.storages if admin or x in storages),
        )

    def _set(self, name: str, column: str, value: str) -> None:
        if not self._database.write(f"UPDATE account_users SET {column} = ? WHERE name = ?", (value, name)):
            raise api_errors.no_user(name)


# Passwords: salted, slow hashes


def hash_password(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${COST}${salt.hex()}${_derive(password, salt, COST).hex()}"


def matches_hash(password: str, stored: str) -> bool:
    """Compare the password with the stored hash, in constant time."""
    _, cost, salt, digest = stored.split("$")
    return hmac.compare_digest(_derive(password, bytes.fromhex(salt), int(cost)), bytes.fromhex(digest))


def generate_password() -> str:
    """Return a password that can follow ``--password``: one that begins with ``-`` would be a flag."""
    return secrets.token_urlsafe(18).replace("-", "_")


def _derive(password: str, salt: bytes, cost: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    try:
        return hashlib.scrypt(secret, salt=salt, n=cost, r=8, p=1, maxmem=64 * 1024 * 1024)
    except ValueError as err:
        if "malloc failure" in str(err):  # how OpenSSL reports it
            raise MemoryError from err
        raise
