"""Where the parameters are: one vector for all, of which each server has a part."""

import os

import numpy

WORDS, WIDTH = 12, 4
SIZE = 2 * WORDS * WIDTH


def servers():
    """Return the addresses of the parameter servers."""
    listed = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    return [(host, int(port)) for host, port in (one.rsplit(":", 1) for one in listed)]


def shards(count):
    """Return the first values of the parameters, split among the servers."""
    first = numpy.random.default_rng(7).normal(size=SIZE) / 10
    return [part.copy() for part in numpy.array_split(first, count)]
