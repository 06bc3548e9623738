"""Learn vectors of words from the words around them; the parameters are on the parameter servers.

The data is read from the user's home in PFS, and the first trainer writes the model there.
"""

import os
import socket
import time
from pathlib import Path

import numpy as np

from modules import wire

WIDTH = 8  # of a vector
ROUNDS = 120  # through the data in each pass, as the data set is tiny
PATIENCE = 60.0  # seconds for the parameter servers to listen

TRAINER, TRAINERS = int(os.environ["PADDLE_INIT_TRAINER_ID"]), int(os.environ["TRAINERS"])
HOME = Path(os.environ["TRAINER_PACKAGE"]).parents[1]  # the package is HOME/jobs/NAME
DATA, MODEL = HOME / "job_word_emb", HOME / "job_word_emb_model"


def read_sentences() -> list[list[str]]:
    files = sorted(DATA.rglob("*.txt"))
    if not files:
        raise SystemExit(f"error: there is no data in {DATA}")
    return [line.split() for file in files for line in file.read_text().splitlines() if line.strip()]


def pairs(sentences: list[list[str]], numbers: dict[str, int]) -> np.ndarray:
    """Return each word with each of its neighbours, by number."""
    found = [
        (numbers[word], numbers[other])
        for sentence in sentences
        for place, word in enumerate(sentence)
        for other in sentence[max(0, place - 1) : place] + sentence[place + 1 : place + 2]
    ]
    return np.array(found)


class Servers:
    """The parameter servers; each holds an equal part of the parameters."""

    def __init__(self) -> None:
        places = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
        self._connections = [connect(*place.rsplit(":", 1)) for place in places]

    def exchange(self, values: np.ndarray) -> np.ndarray:
        """Send a part to each server, and return what they answer."""
        parts = np.array_split(values, len(self._connections))
        for connection, part in zip(self._connections, parts, strict=True):
            wire.send(connection, part)
        return np.concatenate([wire.receive(connection) for connection in self._connections])


def connect(host: str, port: str) -> socket.socket:
    """Connect to a server, which may start later than this trainer."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def step(parameters: np.ndarray, seen: np.ndarray, size: int) -> tuple[float, np.ndarray]:
    """Return the loss and the gradient of a softmax over all words."""
    vectors, output = parameters.reshape(2, size, WIDTH)
    words, neighbours = seen.T
    scores = vectors[words] @ output.T
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(seen))
    loss = -np.log(chances[rows, neighbours]).mean()
    chances[rows, neighbours] -= 1
    chances /= len(seen)
    gradient = np.zeros((2, size, WIDTH))
    np.add.at(gradient[0], words, chances @ output)
    gradient[1] = chances.T @ vectors[words]
    return float(loss), gradient.ravel()


def write_model(words: list[str], vectors: np.ndarray) -> None:
    """Write the vectors under a temporary name first, so that nobody reads a part of them."""
    MODEL.mkdir(exist_ok=True)
    part = MODEL / ".vectors.npz"
    with part.open("wb") as file:
        np.savez(file, words=words, vectors=vectors)
    part.replace(MODEL / "vectors.npz")
    print(f"wrote {MODEL.name}/vectors.npz", flush=True)


def main() -> None:
    sentences = read_sentences()
    words = sorted({word for sentence in sentences for word in sentence})
    numbers = {word: number for number, word in enumerate(words)}
    mine = pairs(sentences[TRAINER::TRAINERS], numbers)
    print(f"trainer {TRAINER} of {TRAINERS}: {len(mine)} pairs of {len(words)} words", flush=True)
    servers = Servers()
    parameters = servers.exchange(np.random.default_rng(1).normal(0, 0.1, 2 * len(words) * WIDTH))
    for number in range(int(os.environ["PADDLE_INIT_NUM_PASSES"])):
        for turn in range(ROUNDS):
            loss, gradient = step(parameters, mine, len(words))
            parameters = servers.exchange(gradient)
            if turn % 20 == 0:
                print(f"pass {number}, round {turn}: loss {loss:.3f}", flush=True)
        print(f"pass {number} ended: loss {loss:.3f}", flush=True)
    if TRAINER == 0:
        write_model(words, parameters.reshape(2, len(words), WIDTH)[0])


main()
