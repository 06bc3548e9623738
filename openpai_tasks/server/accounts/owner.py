"""The first user: the admin who started the cluster, with a password that the command line can read."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path
from typing import Any

from openpai_tasks.server.accounts.groups import ADMIN_GROUP
from openpai_tasks.server.accounts.users import Accounts, generate_password
from openpai_tasks.server.fields import LONGEST_NAME, SHORTEST_PASSWORD
from openpai_tasks.settings import home

FILE = "credentials.json"
FALLBACK = "admin"


class Owner:
    """The user in ``credentials.json``, which is written at the first start and restored if lost."""

    def __init__(self, folder: Path, accounts: Accounts) -> None:
        self._path = folder / FILE
        stored = self._read_file()
        self.name = str(stored.get("user") or sanitize_name(_login_name()))
        password = stored.get("password") or generate_password()
        if accounts.user(self.name) is None:
            accounts.create(self.name, password, "", [ADMIN_GROUP], {})
        # The file was lost, or the server crashed before writing it.
        elif not accounts.accepts(self.name, password):
            accounts.set_password(self.name, password)
        accounts.set_admin(self.name, True)
        if not stored:
            self.save_password(password)

    def save_password(self, password: str) -> None:
        home.write_private(self._path, json.dumps({"user": self.name, "password": password}) + "\n")

    def _read_file(self) -> dict[str, Any]:
        """Return the content of the file; empty if it is invalid."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        usable = (
            isinstance(stored, dict)
            and stored.get("user") == sanitize_name(str(stored.get("user")))
            and len(str(stored.get("password") or "")) >= SHORTEST_PASSWORD
        )
        return stored if usable else {}


def sanitize_name(name: str) -> str:
    """Return the name without characters that user names cannot have."""
    kept = re.sub(r"[^\w.-]", "", name, flags=re.ASCII)[:LONGEST_NAME]
    return kept if kept.strip(".") else FALLBACK


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return FALLBACK
