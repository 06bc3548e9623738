"""The variables that say where the tasks of a job are; on some clusters only the machines of tasks know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Place:
    """The machine and the ports of a task; ``role`` is written as in answers of a cluster."""

    def __init__(self, role: str, number: int, ip: str, ports: Mapping[str, Sequence[int]]) -> None:
        self.role, self.number, self.ip, self.ports = role, number, ip, ports


def for_peers(places: Sequence[Place]) -> dict[str, str]:
    """Return the variables with which tasks reach each other, given the places of all tasks in order."""
    found: dict[str, str] = {}
    hosts: dict[str, list[str]] = {}
    for place in places:
        found |= _reach(place)
        hosts.setdefault(place.role, []).append(f"{place.ip}:{_first(place, 'http')}")
    instances = ",".join(f"{place.role}:{place.number}" for place in places)
    lists = {f"PAI_TASK_ROLE_{role}_HOST_LIST": ",".join(all_of) for role, all_of in hosts.items()}
    return {**found, "PAI_TASK_ROLE_INSTANCES": instances, **lists}


def for_itself(place: Place) -> dict[str, str]:
    """Return the variables with which a task knows its own address and ports."""
    http = _first(place, "http")
    lists = {label: _join(numbers) for label, numbers in place.ports.items()}
    return {f"PAI_CONTAINER_HOST_{label}_PORT_LIST": text for label, text in lists.items()} | {
        "PAI_CONTAINER_HOST_IP": place.ip,
        "PAI_CURRENT_CONTAINER_IP": place.ip,
        "PAI_CONTAINER_HOST_PORT": http,
        "PAI_CURRENT_CONTAINER_PORT": http,
        "PAI_CONTAINER_SSH_PORT": _first(place, "ssh"),
        "PAI_CONTAINER_HOST_PORT_LIST": ";".join(f"{label}:{text}" for label, text in lists.items()),
    }


def fill_in(text: str, places: Sequence[Place]) -> str:
    """Complete the files with which SSH clients of a task find the others by name."""
    for place in places:
        name = f"{place.role}-{place.number}"
        text = text.replace(f"@host:{name}@", place.ip).replace(f"@port:{name}@", _first(place, "ssh"))
    return text


def _reach(place: Place) -> dict[str, str]:
    name = f"{place.role}_{place.number}"
    found = {f"PAI_HOST_IP_{name}": place.ip}
    for label, numbers in place.ports.items():
        found[f"PAI_PORT_LIST_{name}_{label}"] = _join(numbers)
        found[f"PAI_{name}_{label}_PORT"] = _join(numbers)
    return found


def _first(place: Place, label: str) -> str:
    return str(place.ports[label][0]) if place.ports.get(label) else ""


def _join(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
