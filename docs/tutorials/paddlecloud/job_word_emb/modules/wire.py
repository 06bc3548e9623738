"""Arrays over sockets: a length, then the bytes of 64-bit floats."""

import socket
import struct

import numpy as np

HEADER = struct.Struct("!Q")
LONGEST = 1 << 28  # bytes


def send(connection: socket.socket, values: np.ndarray) -> None:
    content = values.astype("<f8").tobytes()
    connection.sendall(HEADER.pack(len(content)) + content)


def receive(connection: socket.socket) -> np.ndarray:
    """Return the next array; EOFError if the other end has closed the connection."""
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
    if length > LONGEST:
        raise ValueError(f"an array of {length} bytes is too long")
    return np.frombuffer(_exactly(connection, length), "<f8")


def _exactly(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        piece = connection.recv(min(length - len(content), 1 << 20))
        if not piece:
            raise EOFError
        content += piece
    return bytes(content)
