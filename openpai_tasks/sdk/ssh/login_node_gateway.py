"""A login node as a gateway: connections go through the shared connection of the user's ssh."""

from __future__ import annotations

import select
import socket
import tempfile

from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.sdk.ssh.target import Gateway, bracketed
from openpai_tasks.tunnel.openssh import SharedConnection

# What ssh prints if nothing listens there: through a shared connection, and without one.
_NOT_LISTENING = ("refused by peer", "open failed", "forwarding failed")


class LoginNodeGateway:
    """What Fabric uses of a connection that is a gateway."""

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self._ssh, self._seconds = shared_connection(gateway), seconds

    @property
    def transport(self) -> LoginNodeGateway:
        return self

    def open(self) -> None:
        self._ssh.open()

    def open_channel(self, kind: str, dest_addr: tuple[str, int], src_addr: tuple[str, int]) -> socket.socket:
        """Return a pipe to an address as seen from the login node; raise if nothing listens there."""
        import paramiko

        host, port = dest_addr
        with tempfile.TemporaryFile() as errors:
            pipe = self._ssh.start("-W", f"{bracketed(host)}:{port}", errors=errors.fileno())
            # ssh opens the channel in the background; the server there speaks first.
            if not select.select([pipe], [], [], self._seconds)[0]:
                pipe.close()
                raise TimeoutError
            if pipe.recv(1, socket.MSG_PEEK):
                return pipe
            pipe.close()
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace")
        if any(words in text for words in _NOT_LISTENING):
            raise paramiko.ChannelException(2, "Connect failed")
        raise paramiko.SSHException(text.strip() or "connection closed")


def shared_connection(gateway: Gateway) -> SharedConnection:
    return SharedConnection(SshAddress(gateway.host, gateway.user, gateway.port))


def proxy_words(gateway: Gateway) -> list[str]:
    """Return the words of an ssh command that goes through the login node, without what it leads to."""
    ssh = shared_connection(gateway)
    return [*ssh.argv()[1:], *ssh.address.words]
