"""Requested ports: how many for a label, or the port that the program itself listens on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document.request import RoleRequest
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.states import role_key

MARK = "openpaiPorts"
"""Key in a job's extras with the ports that programs listen on, by role and label."""
MOST = 100  # ports of a label
FIRST, LAST = 1024, 65535  # of the numbers that are ports, not counts


def check_port(number: int, where: str) -> int:
    """Return the number if it is a count or a port, else raise."""
    if number < 1:
        raise ProtocolError(f"{where} must be at least 1, got {number}")
    if MOST < number < FIRST or number > LAST:
        what = f"up to {MOST} ports, or the port that the program listens on ({FIRST} to {LAST})"
        raise ProtocolError(f"{where} needs a number: {what}, got {number}")
    return number


def port_counts(ports: Mapping[str, int]) -> dict[str, int]:
    """Return how many ports of each label a task gets."""
    checked = {label: check_port(number, f"ports.{label}") for label, number in ports.items()}
    return {label: 1 if number >= FIRST else number for label, number in checked.items()}


def listening_mark(roles: Iterable[RoleRequest]) -> dict[str, Any]:
    """Return the extras with the ports that programs listen on; empty if none is known."""
    known = {
        role.name: {label: number for label, number in role.ports.items() if number >= FIRST}
        for role in roles
    }
    found = {role: ports for role, ports in known.items() if ports}
    return {MARK: found} if found else {}


def listening_ports(document: Any, role: str) -> dict[str, int]:
    """Read the ports that the programs of a role listen on, by label; servers may have renamed the role."""
    marks = mapping(mapping(mapping(document).get("extras")).get(MARK))
    known = next((ports for name, ports in marks.items() if role in (name, role_key(str(name)))), None)
    ports = mapping(known).items()
    return {str(label): one for label, one in ports if isinstance(one, int) and FIRST <= one <= LAST}
