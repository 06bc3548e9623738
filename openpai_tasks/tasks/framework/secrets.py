"""Passwords and tokens for tasks: from flags, files, the environment, or the terminal."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import prompts
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.text.plain import one_line

if TYPE_CHECKING:
    from openpai_tasks.settings.credentials import Credentials
    from openpai_tasks.storage.kinds import UserStorage


def from_flags(
    user: str | None = None,
    password_file: str | None = None,
    token_file: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca: str | None = None,
) -> tuple[str, Credentials, str]:
    """Return the user, the credentials and the CA that the flags give; empty if they give none."""
    if (password and password_file) or (token and token_file):
        raise ConfigError("give the password or token either directly or in a file, not both")
    if password or token:
        say("warning: other users can see command lines; use --password-file or --token-file")
    credentials = user_settings.credentials.Credentials(
        password or (user_settings.credentials.read_secret(password_file) if password_file else ""),
        token or (user_settings.credentials.read_secret(token_file) if token_file else ""),
    )
    return user or "", credentials, ca or ""


def ask_password(prompt: str) -> str:
    """Ask for a password on the terminal, without echo."""
    problem = "no password given"
    ways = "use --password-file or OPENPAI_PASSWORD"
    password = _ask(prompt, f"{problem}, and no terminal to ask on; {ways}")
    if not password:
        raise ConfigError(problem)
    return password


def job_secret(name: str) -> str:
    """Return the value of a job's secret, from the variable of that name or typed on the terminal."""
    variable = _variable(name)
    if variable in os.environ:
        say(f"secret {name}: taken from the environment")
        return os.environ[variable]
    return _ask_secret(name, f"set the variable {variable}")


def document_secret(name: str, is_chosen: bool) -> str:
    """Return a secret that a job's document names; from the environment only if the user chose the name."""
    if is_chosen:
        return job_secret(name)
    words = shlex.join(("--secret", one_line(name)))
    return _ask_secret(name, f"`{words}` takes it from the variable {_variable(name)}")


def _variable(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _ask_secret(name: str, hint: str) -> str:
    return _ask(f"secret {name}: ", f"secret {name!r} is needed, and there is no terminal to ask on; {hint}")


def _ask(prompt: str, problem: str) -> str:
    """Ask for a secret; raise the problem if there is no terminal."""
    if not sys.stdin.isatty():
        raise ConfigError(problem)
    return prompts.secret(prompt)


def storage_secret(storage: UserStorage, password_file: str | None = None) -> str:
    """Return the password or key of a storage, from a file, the environment, or typed on the terminal."""
    if password_file:
        return user_settings.credentials.read_secret(password_file)
    if not storage.wants_secret:
        return ""
    if os.environ.get("OPENPAI_STORAGE_PASSWORD"):
        return os.environ["OPENPAI_STORAGE_PASSWORD"]
    ways = "use --password-file or OPENPAI_STORAGE_PASSWORD"
    problem = f"the {storage.secret_word} of {storage.user!r} is needed, and there is no terminal; {ways}"
    secret = _ask(f"{storage.secret_word} of {storage.user}: ", problem)
    if not secret:
        raise ConfigError(f"no {storage.secret_word} given")
    return secret
