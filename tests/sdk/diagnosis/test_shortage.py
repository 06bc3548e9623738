"""Why a job waits, from the exact messages of the embedded cluster."""

from __future__ import annotations

import pytest

from openpai_tasks.sdk.diagnosis import explain
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.scheduling.allocation import FreeResources
from tests.scripted import Scripted
from tests.sdk.ssh.test_hosts_file import LIST, client_of

RUNNING = [("a", "default"), ("b", "default"), ("c", "default"), ("d", "default"), ("x", "other")]


@pytest.fixture
def client():
    rows = [
        {"name": name, "username": "ann", "state": "RUNNING", "virtualCluster": place}
        for name, place in RUNNING
    ]
    server = Scripted({LIST: {"totalCount": len(rows), "data": rows}})
    yield client_of(server)
    server.close()


def why(need: ResourceAmount, used: ResourceAmount) -> str:
    total = ResourceAmount(4, 8000, 2)
    room = FreeResources(total, {"default": total}, {"default": used})
    return f"FailedScheduling: {room.judge('default', need).why}"


@pytest.mark.parametrize(
    ("need", "used", "description"),
    [
        (
            ResourceAmount(4, 10, 0),
            ResourceAmount(3, 10, 0),
            "4 CPUs, and 1 of 4 is free{}; `--cpu 1` would fit",
        ),
        (ResourceAmount(4, 10, 0), ResourceAmount(4, 10, 0), "4 CPUs, and 0 of 4 are free{}"),
        (
            ResourceAmount(2, 6000, 1),
            ResourceAmount(3, 4000, 1),
            "2 CPUs, and 1 of 4 is free; 6000 MB of memory, and 4000 of 8000 are free{};"
            " `--cpu 1 --memoryMB 4000` would fit",
        ),
    ],
    ids=["less", "none", "two"],
)
def test_only_missing_resources_are_described_with_the_jobs_that_hold_them(client, need, used, description):
    line = "it asks for " + description.format(" (running: a, b, c and 1 more)")
    assert explain.describe_shortage(client, why(need, used), is_alone=True) == line
    assert "would fit" not in explain.describe_shortage(client, why(need, used), is_alone=False)


def test_other_events_are_not_shortages(client):
    assert (
        explain.describe_shortage(
            client, "FailedScheduling: 0/3 nodes are available: 3 Insufficient gpu.", True
        )
        == ""
    )
