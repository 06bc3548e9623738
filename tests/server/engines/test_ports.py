from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import Ports, PortShortage
from openpai_tasks.server.engines.ports import END, FIRST, PortPool, count, is_bindable
from openpai_tasks.server.engines.runner.free_ports import OPENPAI_END, hashed_port
from tests.ports import free_port

UID = "94920b63-f4d6-4c63-b72b-b926b8bc1334"
TOTAL = END - FIRST
SSH = hashed_port(UID, "ssh", 0)


@pytest.mark.parametrize(
    ("label", "number", "port"),
    [("ssh", 0, 39725), ("ssh", 1, 31289), ("http", 0, 32464), ("http", 1, 20818)],
)
def test_ports_are_hashed_as_on_a_real_cluster(label: str, number: int, port: int) -> None:
    assert hashed_port(UID, label, number, OPENPAI_END) == port


def test_no_port_can_be_taken_by_an_outgoing_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert server.getsockname()[1] >= END
    found = PortPool(lambda port: True).take({f"task-{number}": {} for number in range(1000)})
    assert all(FIRST <= port < END for ports in found.values() for [port] in ports.values())


def choose(wanted: dict[str, int], held: set[int], free: Callable[[int], bool] = lambda port: True) -> Ports:
    pool = PortPool(free)
    pool.hold(held)
    return pool.take({UID: wanted})[UID]


def test_every_task_gets_ssh_http_and_its_requested_ports() -> None:
    found = choose({"web": 2, "none": -1}, set())
    assert {label: len(numbers) for label, numbers in found.items()} == {
        "ssh": 1,
        "http": 1,
        "web": 2,
        "none": 0,
    }
    assert found["ssh"] == (SSH,)
    assert count({"web": 2, "none": -1}) == 4


def test_ports_in_use_are_skipped() -> None:
    assert choose({}, {SSH}, free=lambda port: port != SSH + 1)["ssh"] == (SSH + 2,)


def test_port_search_wraps_around_to_the_start_of_the_range() -> None:
    assert choose({}, set(range(SSH, END)))["ssh"] == (FIRST,)


def test_a_port_in_use_is_not_bindable() -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not is_bindable(port)
    assert is_bindable(port)


def test_request_for_more_ports_than_exist_fails_and_takes_none() -> None:
    pool = PortPool(lambda port: True)
    for wanted in (TOTAL - 1, 10**15):
        with pytest.raises(
            ConfigError, match=rf"asks for \d+ ports .* {TOTAL} on this machine: ask for fewer"
        ):
            pool.take({UID: {"many": wanted}})
    assert len(pool.take({UID: {"many": TOTAL - 2}})[UID]["many"]) == TOTAL - 2


def test_request_for_more_ports_than_are_free_must_wait_and_takes_none() -> None:
    pool = PortPool(lambda port: True)
    pool.take({"first": {"a": TOTAL - 5000}})
    reason = f"needs 10004 ports; free on this machine are 4998 of {TOTAL}"
    with pytest.raises(PortShortage, match=reason):
        pool.take({"second": {"a": 5000}, "third": {"a": 5000}})
    assert len(pool.take({"second": {"a": 4996}})["second"]["a"]) == 4996
    pool.hold(())
    assert pool.take({"third": {"a": TOTAL - 5000}})


def test_ports_of_other_programs_are_checked_only_once() -> None:
    looks: list[int] = []
    pool = PortPool(lambda port: bool(looks.append(port)))
    for _ in range(3):
        with pytest.raises(PortShortage, match=str(TOTAL)):
            pool.take({UID: {}})
    assert len(looks) == len(set(looks)) == TOTAL
