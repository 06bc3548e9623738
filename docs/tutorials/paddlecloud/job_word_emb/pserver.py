"""A parameter server: holds one block of the parameters, and applies the mean gradient of all trainers.

A trainer first sends its initial values and gets those of the first trainer; then it sends one gradient
after the other, and gets the parameters after each step.
"""

import os
import socket
import threading

import numpy as np
from modules import wire

RATE = 2.0
TRAINERS = int(os.environ["PADDLE_INIT_NUM_GRADIENT_SERVERS"])


class Block:
    def __init__(self) -> None:
        self._values = np.zeros(0)
        self._sum = np.zeros(0)
        self._waiting = 0
        self._step = 0
        self._changed = threading.Condition()

    def begin(self, values: np.ndarray) -> np.ndarray:
        with self._changed:
            if not self._values.size:
                self._values, self._sum = values.copy(), np.zeros(values.size)
            return self._values.copy()

    def update(self, gradient: np.ndarray) -> np.ndarray:
        """Add a gradient, wait for those of the other trainers, and return the new values."""
        with self._changed:
            step = self._step
            self._sum += gradient
            self._waiting += 1
            if self._waiting == TRAINERS:
                self._values -= RATE * self._sum / TRAINERS
                self._sum[:] = 0
                self._waiting = 0
                self._step += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._step > step)
            return self._values.copy()


def serve(connection: socket.socket, block: Block) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wire.send(connection, block.begin(wire.receive(connection)))
            while True:
                wire.send(connection, block.update(wire.receive(connection)))
        except (EOFError, ConnectionError):
            return  # the trainer has ended


def main() -> None:
    address = os.environ["POD_IP"], int(os.environ["PADDLE_INIT_PORT"])
    block = Block()
    with socket.create_server(address) as server:
        print("parameter server", os.environ["PADDLE_INIT_PSERVER_ID"], "listens", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=serve, args=(connection, block), daemon=True).start()


main()
