"""The addresses of parameter servers, on machines with many loopback addresses, with one, and on several."""

from __future__ import annotations

import subprocess

import pytest

from openpai_tasks.server.paddlecloud.document import script
from openpai_tasks.server.paddlecloud.submission import read_submission

NAMES = ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_INIT_PSERVERS", "PADDLE_INIT_PORT", "POD_IP")


def addresses(role: str, index: int, hosts: tuple[str, str]) -> list[str]:
    """Run the beginning of a task's script, and return the variables that it sets."""
    wanted = read_submission({"entry": "true", "datacenter": "local", "pservers": 2})
    begin = script("alice", wanted, role).partition("export PYTHONPATH")[0]
    show = "; ".join(f'echo "${name}"' for name in NAMES)
    variables = {
        "PAI_MOUNT_ROOT": "",
        "PAI_CURRENT_CONTAINER_IP": "127.0.0.1",
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_TASK_INDEX": str(index),
        **{f"PAI_HOST_IP_pserver_{place}": host for place, host in enumerate(hosts)},
        **{f"PAI_PORT_LIST_pserver_{place}_paddle": f"2000{place}" for place in (0, 1)},
    }
    done = subprocess.run(
        ["sh", "-euc", begin + show], env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


LOOPBACK = ("127.0.0.1", "127.0.0.1")
SPREAD = ["127.0.0.1:20000,127.0.0.2:20000", "127.0.0.1,127.0.0.2"]
SINGLE = ["127.0.0.1:20000,127.0.0.1:20001", "127.0.0.1,127.0.0.1"]
REMOTE = ["10.0.0.1:20000,10.0.0.2:20001", "10.0.0.1,10.0.0.2"]


@pytest.mark.parametrize(
    ("platform", "hosts", "shared", "own"),
    [
        ("linux", LOOPBACK, SPREAD, ["20000", "127.0.0.2"]),
        ("darwin", LOOPBACK, SINGLE, ["20001", "127.0.0.1"]),
        ("linux", ("10.0.0.1", "10.0.0.2"), REMOTE, ["20001", "10.0.0.2"]),
    ],
)
def test_trainers_and_servers_agree_on_addresses(monkeypatch, platform, hosts, shared, own):
    monkeypatch.setattr("sys.platform", platform)
    assert addresses("trainer", 1, hosts) == [*shared, "20000", "127.0.0.1"]
    assert addresses("pserver", 1, hosts) == [*shared, *own]
