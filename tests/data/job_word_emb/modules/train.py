"""A trainer: learns from its share of the text which word follows which."""

import json
import os
import socket
import struct
import time
from itertools import pairwise
from pathlib import Path

import numpy

from modules import layout

STEPS = 60


def read_pairs():
    """Return pairs of words that follow each other, from the files on PFS."""
    user, datacenter = os.environ["PADDLE_CLOUD_USERNAME"], os.environ["PADDLE_CLOUD_CURRENT_DATACENTER"]
    folder = Path(os.environ.get("PAI_MOUNT_ROOT", "") + f"/pfs/{datacenter}/home/{user}/job_word_emb")
    text = " ".join(path.read_text() for path in sorted(folder.rglob("*.txt"))).split()
    numbers = {word: number for number, word in enumerate(sorted(set(text)))}
    assert len(numbers) == layout.WORDS
    found = [numbers[word] for word in text]
    return numpy.array(list(pairwise(found)))


def connect(address):
    """Connect to a server, which may still be starting."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.05)


def exchange(connections, gradient):
    """Send each server its part of the gradient, and return the parameters of all."""
    parts, answers = numpy.array_split(gradient, len(connections)), []
    for connection, part in zip(connections, parts, strict=True):
        data = part.tobytes()
        connection.sendall(struct.pack("!q", len(data)) + data)
    for connection, part in zip(connections, parts, strict=True):
        data = b""
        while len(data) < part.nbytes:
            data += connection.recv(part.nbytes - len(data))
        answers.append(numpy.frombuffer(data))
    return numpy.concatenate(answers)


def learn(parameters, pairs):
    """Return the loss, and its gradient."""
    into, out = parameters.reshape(2, layout.WORDS, layout.WIDTH)
    scores = into[pairs[:, 0]] @ out.T
    likely = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    rows = numpy.arange(len(pairs))
    loss = -numpy.log(likely[rows, pairs[:, 1]]).mean()
    likely[rows, pairs[:, 1]] -= 1
    likely /= len(pairs)
    into_gradient, out_gradient = numpy.zeros_like(into), likely.T @ into[pairs[:, 0]]
    numpy.add.at(into_gradient, pairs[:, 0], likely @ out)
    return loss, numpy.concatenate([into_gradient.ravel(), out_gradient.ravel()])


number, count = int(os.environ["PADDLE_INIT_TRAINER_ID"]), int(os.environ["TRAINERS"])
pairs = read_pairs()[number::count]
connections = [connect(address) for address in layout.servers()]
parameters = exchange(connections, numpy.zeros(layout.SIZE))
losses = []
for _ in range(STEPS * int(os.environ["PADDLE_INIT_NUM_PASSES"])):
    loss, gradient = learn(parameters, pairs)
    losses.append(loss)
    parameters = exchange(connections, gradient)
print(f"trainer {number} of {count}: loss {losses[0]:.3f} -> {losses[-1]:.3f}", flush=True)
output = Path("output")
output.mkdir(exist_ok=True)
(output / f"loss-{number}.json").write_text(json.dumps(losses))
numpy.save(output / f"embedding-{number}.npy", parameters.reshape(2, layout.WORDS, layout.WIDTH)[0])
