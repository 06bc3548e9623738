"""Find ports that programs of this machine can listen on."""

from __future__ import annotations

import _socket  # ``socket`` and ``hashlib`` take twice as long to load as Python to start
import contextlib
from collections.abc import Callable, Mapping

try:
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:  # it is left out of some builds
    from hashlib import md5

FIRST, OPENPAI_END = 15000, 40000
ENOUGH = 5000


def _end() -> int:
    """Return where the ports begin that an outgoing connection may take before a task listens on them."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as numbers:
            end = int(numbers.read().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux: these ports begin at 49152 elsewhere
        return OPENPAI_END
    return end if FIRST + ENOUGH <= end <= OPENPAI_END else OPENPAI_END


END = _end()


def hashed_port(uid: str, label: str, number: int, end: int = END) -> int:
    """Return the port that OpenPAI's hash gives to one numbered port of a label."""
    text = f"[{uid}][{label}][{number}]"
    digest = md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()
    parts = (digest[:12], digest[12:24], digest[24:])
    return FIRST + sum(int(part, 16) for part in parts) % (end - FIRST)


def is_bindable(port: int) -> bool:
    """Whether a program on this machine can listen on the port now."""
    with contextlib.closing(_socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def choose(
    uid: str,
    wanted: Mapping[str, int],
    taken: set[int] | None = None,
    is_free: Callable[[int], bool] = is_bindable,
) -> dict[str, tuple[int, ...]]:
    """Choose the ports of one task, and add them to those that are taken; OSError if none is free.

    Tasks that know nothing of each other rarely choose the same.
    """
    taken = set() if taken is None else taken
    return {
        label: tuple(_next(hashed_port(uid, label, number), taken, is_free) for number in range(count))
        for label, count in wanted.items()
    }


def _next(start: int, taken: set[int], is_free: Callable[[int], bool]) -> int:
    for step in range(END - FIRST):
        port = FIRST + (start - FIRST + step) % (END - FIRST)
        if port not in taken:
            taken.add(port)
            if is_free(port):
                return port
    raise OSError("no port is free on this machine")
