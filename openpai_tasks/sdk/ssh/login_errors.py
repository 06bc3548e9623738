"""What goes wrong on the way into a container: paramiko's errors and those of sockets, each in one line."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable

REFUSED = (errno.ECONNREFUSED,)
NOWHERE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class NotListening(Unreachable):
    """The host is there, and nothing takes ssh at the port."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class KeyRefused(Denied):
    """The container does not know the key."""


class HostKeyChanged(Denied):
    """The container shows another host key than before."""


@dataclass(frozen=True)
class Login:
    """What there is to say about a login that fails."""

    what: str
    place: str
    key: Path | None
    timeout: float
    name: str  # what the host key is kept under
    known_hosts: Path
    is_gateway: bool = False

    @property
    def hint(self) -> str:
        return (
            "is the setting ssh.gateway right?"
            if self.is_gateway
            else "is it behind a gateway (ssh.gateway)?"
        )


@contextlib.contextmanager
def told(login: Login) -> Iterator[None]:
    """What goes wrong while logging in, each in a line of its own."""
    import paramiko

    what, place, key, timeout = login.what, login.place, login.key, login.timeout
    try:
        yield
    except PaiError:
        raise
    except paramiko.BadHostKeyException as err:
        raise _changed(login, err) from err
    except paramiko.PasswordRequiredException as err:
        setting = "ssh.gateway-key" if login.is_gateway else "ssh.key"
        raise ConfigError(
            f"the key {key} has a passphrase: name one without in the setting {setting}"
        ) from err
    except paramiko.AuthenticationException as err:
        if isinstance(err.__context__, TimeoutError) or "timeout" in str(err).lower():
            raise Unreachable(f"{what} at {place} does not answer within {timeout:g} s") from err
        knows = "it knows the keys that were given when the job was submitted"
        raise KeyRefused(
            f"{what} refuses the key {key}: {'set ssh.gateway-key' if login.is_gateway else knows}", 401
        ) from err
    except paramiko.ssh_exception.IncompatiblePeer as err:
        hint = "`container.ssh-config` lets the ssh of your system try"
        raise Unreachable(f"{what} at {place} speaks only ssh that is too old: {hint}") from err
    except paramiko.ChannelException as err:
        raise NotListening(f"nothing takes ssh at {place} ({what})", place) from err
    except (EOFError, paramiko.SSHException) as err:
        raise _no_ssh(what, place, key, timeout, err) from err
    except socket.gaierror as err:
        raise Unreachable(f"no host is named {place.rpartition(':')[0]!r} ({what})") from err
    except TimeoutError as err:
        raise Unreachable(f"{what}: no answer from {place} within {timeout:g} s; {login.hint}") from err
    except OSError as err:
        raise _no_way(login, err) from err


def _changed(login: Login, err: Any) -> HostKeyChanged:
    seen, before = err.key.fingerprint, err.expected_key.fingerprint
    words = f"{login.what} shows another host key ({seen}) than when it was first seen ({before})"
    way = f"`ssh-keygen -R '{login.name}' -f {shlex.quote(str(login.known_hosts))}` forgets the old one"
    return HostKeyChanged(f"{words}: somebody may be in between; if you know why, {way}", 403)


def _no_ssh(what: str, place: str, key: Path | None, timeout: float, err: BaseException) -> PaiError:
    said = str(err)
    if "private key" in said or "not a valid" in said or "checkints" in said:
        return ConfigError(f"the key {key} cannot be read as a private key")
    if "banner" in said or "No existing session" in said or isinstance(err, EOFError):
        return Unreachable(f"{what}: what listens at {place} said nothing that is ssh within {timeout:g} s")
    return Unreachable(f"{what}: no ssh with {place}: {said.splitlines()[0] if said else 'it hung up'}")


def _no_way(login: Login, err: OSError) -> PaiError:
    what, place = login.what, login.place
    if err.filename or err.errno in FULL:  # of this machine, and nothing of the way
        name = f"use {err.filename}" if err.filename else "write to the disk"
        return ConfigError(f"{what}: cannot {name} here: {err.strerror}")
    errors = getattr(err, "errors", None) or {}
    first = next(iter(errors.values()), err)
    if first.errno in REFUSED:
        return NotListening(f"nothing takes ssh at {place} ({what})", place)
    if first.errno in NOWHERE:
        return Unreachable(f"{what}: no way to {place} ({os.strerror(first.errno).lower()}); {login.hint}")
    return Unreachable(f"{what}: no connection to {place}: {first.strerror or first}")
