"""Passwords and tokens for tasks: from flags, files, the environment, or the terminal."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.hints import command
from openpai_tasks.plain_text import one_line
from openpai_tasks.tasks.framework import prompts
from openpai_tasks.tasks.framework.base import say

if TYPE_CHECKING:
    from openpai_tasks.settings.credentials import Credentials
    from openpai_tasks.storage.kinds import UserStorage


def from_flags(
    password: str | None = None,
    password_file: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
) -> Credentials:
    """Return the credentials that the flags give; empty if they give none."""
    if (password and password_file) or (token and token_file):
        raise ConfigError("give the password or token either directly or in a file, not both")
    if password or token:
        say("warning: other users can see command lines; use --password-file or --token-file")
    return user_settings.credentials.Credentials(
        password or (user_settings.credentials.read_secret(password_file) if password_file else ""),
        token or (user_settings.credentials.read_secret(token_file) if token_file else ""),
    )


def ask_password(prompt: str) -> str:
    """Ask for a password on the terminal, without echo."""
    if not sys.stdin.isatty():
        raise ConfigError(
            "no password given, and no terminal to ask on; use --password-file or OPENPAI_PASSWORD"
        )
    password = prompts.secret(prompt)
    if not password:
        raise ConfigError("no password given")
    return password


def job_secret(name: str) -> str:
    """Return the value of a job's secret, from the variable of that name or typed on the terminal."""
    variable = _variable(name)
    if variable in os.environ:
        say(f"secret {name}: taken from the environment")
        return os.environ[variable]
    return _typed(name, f"set the variable {variable}")


def document_secret(name: str, is_chosen: bool) -> str:
    """Return a secret that a job's document names; from the environment only if the user chose the name."""
    if is_chosen:
        return job_secret(name)
    words = shlex.join(("--secret", one_line(name)))
    return _typed(name, f"`{words}` takes it from the variable {_variable(name)}")


def _variable(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _typed(name: str, hint: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(f"secret {name!r} is needed, and there is no terminal to ask on; {hint}")
    return prompts.secret(f"secret {name}: ")


def storage_secret(storage: UserStorage, password_file: str | None = None) -> str:
    """Return the password or key of a storage, from a file, the environment, or typed on the terminal."""
    if password_file:
        return user_settings.credentials.read_secret(password_file)
    if not storage.wants_secret:
        return ""
    if os.environ.get("OPENPAI_STORAGE_PASSWORD"):
        return os.environ["OPENPAI_STORAGE_PASSWORD"]
    if not sys.stdin.isatty():
        ways = "use --password-file or OPENPAI_STORAGE_PASSWORD"
        raise ConfigError(
            f"the {storage.secret_word} of {storage.user!r} is needed, and there is no terminal; {ways}"
        )
    secret = prompts.secret(f"{storage.secret_word} of {storage.user}: ")
    if not secret:
        raise ConfigError(f"no {storage.secret_word} given")
    return secret


def refuse_login_for_all(credentials: Credentials, user: str | None, ca: str | None, login: bool) -> None:
    """Raise if a login is given for all clusters at once."""
    if credentials or user or ca or login:
        raise ConfigError(f"name the cluster that the login is for: `{command('cluster.update')} ALIAS`")
