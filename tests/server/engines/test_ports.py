from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import Ports, PortShortage
from openpai_tasks.server.engines.ports import END, FIRST, PortPool, bindable, count, hashed

UID = "94920b63-f4d6-4c63-b72b-b926b8bc1334"


@pytest.mark.parametrize(
    ("label", "number", "port"),
    [("ssh", 0, 39725), ("ssh", 1, 31289), ("http", 0, 32464), ("http", 1, 20818)],
)
def test_ports_are_hashed_as_on_a_real_cluster(label: str, number: int, port: int) -> None:
    assert hashed(UID, label, number) == port


def choose(wanted: dict[str, int], held: set[int], free: Callable[[int], bool] = lambda port: True) -> Ports:
    pool = PortPool(free)
    pool.renew(held)
    return pool.take({UID: wanted})[UID]


def test_every_task_gets_ssh_http_and_its_requested_ports() -> None:
    found = choose({"web": 2, "none": -1}, set())
    assert {label: len(numbers) for label, numbers in found.items()} == {
        "ssh": 1,
        "http": 1,
        "web": 2,
        "none": 0,
    }
    assert found["ssh"] == (39725,)
    assert count({"web": 2, "none": -1}) == 4


def test_ports_in_use_are_skipped() -> None:
    assert choose({}, {39725}, free=lambda port: port != 39726)["ssh"] == (39727,)


def test_port_search_wraps_around_to_the_start_of_the_range() -> None:
    assert choose({}, set(range(39000, END)))["ssh"] == (FIRST,)


def test_a_port_in_use_is_not_bindable() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert not bindable(port)
    assert bindable(port)


def test_request_for_more_ports_than_exist_fails_and_takes_none() -> None:
    pool = PortPool(lambda port: True)
    for wanted in (END - FIRST - 1, 10**15):
        with pytest.raises(ConfigError, match=r"asks for \d+ ports .* 25000 on this machine: ask for fewer"):
            pool.take({UID: {"many": wanted}})
    assert len(pool.take({UID: {"many": END - FIRST - 2}})[UID]["many"]) == END - FIRST - 2


def test_request_for_more_ports_than_are_free_must_wait_and_takes_none() -> None:
    pool = PortPool(lambda port: True)
    pool.take({"first": {"a": 20000}})
    with pytest.raises(PortShortage, match="needs 10004 ports; free on this machine are 4998 of 25000"):
        pool.take({"second": {"a": 5000}, "third": {"a": 5000}})
    assert len(pool.take({"second": {"a": 4996}})["second"]["a"]) == 4996
    pool.renew(())
    assert pool.take({"third": {"a": 20000}})


def test_ports_of_other_programs_are_checked_only_once() -> None:
    looks: list[int] = []
    pool = PortPool(lambda port: bool(looks.append(port)))
    for _ in range(3):
        with pytest.raises(PortShortage, match="25000"):
            pool.take({UID: {}})
    assert len(looks) == len(set(looks)) == END - FIRST
