"""paramiko's SFTP client, for servers that are not trusted.

paramiko reads zeros after the end of a packet: one that announces a billion names would take all memory.
"""

from __future__ import annotations

import struct
from typing import Any

import paramiko


class StrictClient(paramiko.SFTPClient):  # type: ignore[misc]
    """Refuses answers that end early."""

    def _send_version(self) -> int:
        try:
            return int(super()._send_version())
        except struct.error as err:
            raise paramiko.SFTPError("a packet that ends early") from err

    def _request(self, kind: int, *args: Any) -> tuple[int, StrictMessage]:
        answered, message = super()._request(kind, *args)
        return answered, StrictMessage(message.get_remainder())


class StrictMessage(paramiko.Message):  # type: ignore[misc]
    def get_bytes(self, n: int) -> bytes:
        data: bytes = self.packet.read(n)
        if len(data) < n:
            raise paramiko.SFTPError("a packet that ends early")
        return data
