"""One parser of foreign bytes, as the fuzzers and the tests call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    name: str
    parse: Callable[[bytes], object]  # the package's real code; must return or raise PaiError
    seeds: tuple[bytes, ...]  # valid inputs
