"""Translate the errors of paramiko and sockets during a login to one-line messages."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text import hints

NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class NotListening(Unreachable):
    """The host answers, but nothing listens at the port."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class KeyRefused(Denied):
    """The container refuses the key."""


class HostKeyChanged(Denied):
    """The host key differs from the first one seen."""


def passphrase_error(key: Path | None, setting: str) -> ConfigError:
    return ConfigError(f"key {key} has a passphrase; name a key without one in the setting {setting}")


def unreadable_key_error(key: Path | None, setting: str) -> ConfigError:
    return ConfigError(f"cannot read {key} as a private key; check the setting {setting}")


@dataclass(frozen=True)
class LoginAttempt:
    """A login, with what error messages need."""

    what: str
    place: str
    key: Path | None
    timeout: float
    name: str  # of the host key
    known_hosts: Path
    is_gateway: bool = False

    @property
    def key_setting(self) -> str:
        return "ssh.gateway-key" if self.is_gateway else "ssh.key"

    @property
    def hint(self) -> str:
        if self.is_gateway:
            return "check the setting ssh.gateway"
        return "if it is behind a gateway, set ssh.gateway"


@contextlib.contextmanager
def translate_errors(login: LoginAttempt) -> Iterator[None]:
    """Translate errors during a login."""
    import paramiko

    what, place, key, timeout = login.what, login.place, login.key, login.timeout
    try:
        yield
    except PaiError:
        raise
    except paramiko.BadHostKeyException as err:
        raise _host_key_error(login, err) from err
    except paramiko.PasswordRequiredException as err:
        raise passphrase_error(key, login.key_setting) from err
    except paramiko.AuthenticationException as err:
        if isinstance(err.__context__, TimeoutError) or "timeout" in str(err).lower():
            raise Unreachable(f"{what} at {place} did not answer within {timeout:g} s") from err
        knows = "it accepts only the keys that the job was submitted with"
        raise KeyRefused(
            f"{what} refuses key {key}: {'set ssh.gateway-key' if login.is_gateway else knows}", 401
        ) from err
    except paramiko.ssh_exception.IncompatiblePeer as err:
        hint = f"try your system's ssh with `{hints.command('container.ssh-config')}`"
        raise Unreachable(f"{what} at {place} supports only an outdated version of ssh: {hint}") from err
    except paramiko.ChannelException as err:
        raise NotListening(f"no ssh server at {place} ({what})", place) from err
    except (EOFError, paramiko.SSHException) as err:
        raise _protocol_error(login, err) from err
    except socket.gaierror as err:
        raise Unreachable(f"unknown host {place.rpartition(':')[0]!r} ({what})") from err
    except TimeoutError as err:
        raise Unreachable(f"{what}: no answer from {place} within {timeout:g} s; {login.hint}") from err
    except OSError as err:
        raise _os_error(login, err) from err


def _host_key_error(login: LoginAttempt, err: Any) -> HostKeyChanged:
    seen, before = err.key.fingerprint, err.expected_key.fingerprint
    message = f"the host key of {login.what} is {seen}, but was {before} when first seen"
    command = f"ssh-keygen -R '{login.name}' -f {shlex.quote(str(login.known_hosts))}"
    hint = f"if the change is expected, remove the old key with `{command}`"
    return HostKeyChanged(f"{message}: the connection may be intercepted; {hint}", 403)


def _protocol_error(login: LoginAttempt, err: BaseException) -> PaiError:
    what, place, text = login.what, login.place, str(err)
    if "private key" in text or "not a valid" in text or "checkints" in text:
        return unreadable_key_error(login.key, login.key_setting)
    if "banner" in text or "No existing session" in text or isinstance(err, EOFError):
        return Unreachable(f"{what}: no ssh answer from {place} within {login.timeout:g} s")
    reason = text.splitlines()[0] if text else "connection closed"
    return Unreachable(f"{what}: ssh to {place} failed: {reason}")


def _os_error(login: LoginAttempt, err: OSError) -> PaiError:
    what, place = login.what, login.place
    if err.filename or err.errno in FULL:  # a local problem
        name = f"use {err.filename}" if err.filename else "write to the disk"
        return ConfigError(f"{what}: cannot {name} here: {err.strerror}")
    errors = getattr(err, "errors", None) or {}
    first = next(iter(errors.values()), err)
    if first.errno == errno.ECONNREFUSED:
        return NotListening(f"no ssh server at {place} ({what})", place)
    if first.errno in NO_ROUTE:
        return Unreachable(f"{what}: no route to {place} ({os.strerror(first.errno).lower()}); {login.hint}")
    return Unreachable(f"{what}: cannot connect to {place}: {first.strerror or first}")
