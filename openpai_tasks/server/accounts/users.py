"""Users, their passwords, and the rights that their groups grant."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import refusals
from openpai_tasks.server.accounts import passwords
from openpai_tasks.server.accounts.groups import ADMIN_GROUP, DEFAULT_GROUP, Group, Groups
from openpai_tasks.server.state.database import Database

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


class Accounts:
    """The users in the cluster's database."""

    def __init__(self, database: Database, groups: Groups) -> None:
        self._database = database
        self.groups = groups

    def user(self, name: str) -> User | None:
        row = self._database.row("SELECT * FROM account_users WHERE name = ?", (name,))
        return self._user(row, self.groups.all()) if row else None

    def users(self) -> list[User]:
        groups = self.groups.all()
        rows = self._database.rows("SELECT * FROM account_users ORDER BY name")
        return [self._user(row, groups) for row in rows]

    def members(self, group: str) -> list[User]:
        return [user for user in self.users() if group in user.grouplist]

    def accepts(self, name: str, password: str) -> bool:
        """Whether the user exists and the password is right."""
        row = self._database.row("SELECT password FROM account_users WHERE name = ?", (name,))
        return row is not None and passwords.matches(password, row["password"])

    def create(
        self, name: str, password: str, email: str, grouplist: Iterable[str], extension: dict[str, Any]
    ) -> None:
        hashed = passwords.hashed(password)  # slow, so outside the lock
        with self._database.transaction():
            # Names become folders, and some file systems ignore case.
            if self._database.row("SELECT 1 FROM account_users WHERE lower(name) = lower(?)", (name,)):
                raise refusals.user_exists(name)
            groups = self.groups.known((DEFAULT_GROUP, *grouplist))
            self._database.write(
                "INSERT INTO account_users VALUES (?, ?, ?, ?, ?)",
                (name, hashed, email, json.dumps(groups), json.dumps(extension)),
            )

    def remove(self, name: str) -> None:
        """Remove a user and the user's tokens; raise for admins."""
        with self._database.transaction():
            if self._existing(name).admin:
                raise refusals.remove_admin(name)
            self._database.write("DELETE FROM account_users WHERE name = ?", (name,))
            self._database.write("DELETE FROM account_tokens WHERE user = ?", (name,))

    def set_email(self, name: str, email: str) -> None:
        self._set(name, "email", email)

    def set_password(self, name: str, password: str, keep: str = "") -> None:
        """Change the password, and revoke all tokens except those of applications and ``keep``."""
        hashed = passwords.hashed(password)
        with self._database.transaction():
            self._set(name, "password", hashed)
            self._database.write(
                "DELETE FROM account_tokens WHERE user = ? AND application = 0 AND id != ?", (name, keep)
            )

    def set_extension(self, name: str, extension: dict[str, Any], merge: bool) -> None:
        with self._database.transaction():
            before = self._existing(name).extension if merge else {}
            self._set(name, "extension", json.dumps({**before, **extension}))

    def set_groups(self, name: str, grouplist: Iterable[str]) -> None:
        with self._database.transaction():
            self._set(name, "grouplist", json.dumps(self.groups.known(grouplist)))

    def add_group(self, name: str, group: str) -> None:
        with self._database.transaction():
            self.set_groups(name, (*self._existing(name).grouplist, group))

    def drop_group(self, name: str, group: str) -> None:
        with self._database.transaction():
            self.groups.known([group])
            self.set_groups(name, [one for one in self._existing(name).grouplist if one != group])

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
            self.set_groups(name, [one for one in self._existing(name).grouplist if one not in admins])

    def set_virtual_clusters(self, name: str, wanted: Sequence[str]) -> None:
        """Set the groups to those of these virtual clusters and ``default``."""
        self.check_virtual_clusters(wanted)
        with self._database.transaction():
            mine = self._existing(name).grouplist
            others = [one for one in mine if one not in self.groups.virtual_clusters]
            self.set_groups(name, (DEFAULT_GROUP, *others, *wanted))

    def check_virtual_clusters(self, wanted: Iterable[str]) -> None:
        for one in wanted:
            if one not in self.groups.virtual_clusters:
                raise refusals.no_virtual_cluster(one, 400)

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

    def _existing(self, name: str) -> User:
        user = self.user(name)
        if user is None:
            raise refusals.no_user(name)
        return user

    def _set(self, name: str, column: str, value: str) -> None:
        if not self._database.write(f"UPDATE account_users SET {column} = ? WHERE name = ?", (value, name)):
            raise refusals.no_user(name)
