from __future__ import annotations

import socket

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.ports import END, FIRST, bindable, choose, hashed

UID = "94920b63-f4d6-4c63-b72b-b926b8bc1334"


@pytest.mark.parametrize(
    ("label", "number", "port"),
    [("ssh", 0, 39725), ("ssh", 1, 31289), ("http", 0, 32464), ("http", 1, 20818)],
)
def test_ports_are_hashed_as_on_a_real_cluster(label: str, number: int, port: int) -> None:
    assert hashed(UID, label, number) == port


def test_every_task_has_ssh_and_http_and_what_it_asked_for() -> None:
    taken: set[int] = set()
    found = choose(UID, {"web": 2}, taken, free=lambda port: True)
    assert {label: len(numbers) for label, numbers in found.items()} == {"ssh": 1, "http": 1, "web": 2}
    assert found["ssh"] == (39725,)
    assert len(taken) == 4


def test_a_port_that_is_somebodys_is_passed_over() -> None:
    assert choose(UID, {}, {39725}, free=lambda port: port != 39726)["ssh"] == (39727,)


def test_the_search_goes_on_at_the_start_of_the_range() -> None:
    assert choose(UID, {}, set(range(39000, END)), free=lambda port: True)["ssh"] == (FIRST,)


def test_a_port_in_use_is_not_bindable() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert not bindable(port)
    assert bindable(port)


def test_too_many_ports_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="no free port"):
        choose(UID, {"many": END - FIRST}, set(), free=lambda port: True)
