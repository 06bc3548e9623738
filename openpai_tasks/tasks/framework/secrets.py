"""Where a task gets passwords and tokens from: files, the environment, the terminal."""

from __future__ import annotations

import os
import sys

from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import prompts
from openpai_tasks.tasks.framework.base import say


def given(password=None, password_file=None, token=None, token_file=None):
    """The credentials that the flags name; empty when they name none."""
    if (password and password_file) or (token and token_file):
        raise ConfigError("give a password or token itself or in a file, not both")
    if password or token:
        say("warning: others can see what is on the command line; use --password-file or --token-file")
    return user_settings.credentials.Credentials(
        password or (user_settings.credentials.read_secret(password_file) if password_file else ""),
        token or (user_settings.credentials.read_secret(token_file) if token_file else ""),
    )


def ask(prompt):
    """A password typed on the terminal, unseen."""
    if not sys.stdin.isatty():
        raise ConfigError(
            "no password is given and no terminal is there to ask on; use --password-file or OPENPAI_PASSWORD"
        )
    password = prompts.secret(prompt)
    if not password:
        raise ConfigError("no password was given")
    return password


def for_job(name):
    """The value of a job's secret: the variable of that name, or typed on the terminal, unseen."""
    variable = _variable(name)
    if variable in os.environ:
        say(f"the secret {name} is taken from the environment")
        return os.environ[variable]
    return _typed(name, f"set the variable {variable}")


def for_document(name):
    """The same for a name that a job's document brings: what is for a cluster or storage is not lent."""
    if _variable(name).upper().startswith("OPENPAI_"):
        return _typed(name, "variables whose names begin with OPENPAI_ are not given to it")
    return for_job(name)


def _variable(name):
    return name.replace(".", "_").replace("-", "_")


def _typed(name, hint):
    if not sys.stdin.isatty():
        raise ConfigError(f"the secret {name!r} is needed, and no terminal is there to ask on; {hint}")
    return prompts.secret(f"secret {name}: ")


def for_storage(storage, password_file=None):
    """The password or key of a storage: in a file, in the environment, or typed on the terminal, unseen."""
    if password_file:
        return user_settings.credentials.read_secret(password_file)
    if not storage.wants_secret:
        return ""
    if os.environ.get("OPENPAI_STORAGE_PASSWORD"):
        return os.environ["OPENPAI_STORAGE_PASSWORD"]
    if not sys.stdin.isatty():
        ways = "use --password-file or OPENPAI_STORAGE_PASSWORD"
        raise ConfigError(
            f"the {storage.secret_word} of {storage.user!r} is needed, and no terminal is there; {ways}"
        )
    secret = prompts.secret(f"{storage.secret_word} of {storage.user}: ")
    if not secret:
        raise ConfigError(f"no {storage.secret_word} was given")
    return secret


def refuse_for_all(credentials, user, ca, login):
    """One login does not fit all clusters."""
    if credentials or user or ca or login:
        raise ConfigError("say which cluster the new login is for: cluster.update ALIAS")
