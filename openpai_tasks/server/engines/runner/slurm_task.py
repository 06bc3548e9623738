"""Run one task of a batch on the machine that Slurm has chosen for it.

    python -I -S start_slurm_task.py SHELL GRACE BELL BATCH NUMBER STEP

BATCH is a JSON file with the ``tasks`` (uid, folder, role, index and numbers of ports of each) and with the
addresses of the ``nodes``. NUMBER is the place of the task in this list. If STEP is "step", the rank of this
process in its step of Slurm is added.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import time
from collections.abc import Mapping
from typing import Any

from .files import SharedVariables, read_variables, write_whole
from .free_ports import choose
from .peers import Place, fill_in, for_itself, for_peers
from .task import RunnerOptions, run

PLACE = "place"
PEERS_SECONDS = 600.0  # that a task waits for its peers, which Slurm starts at the same time
LOOK_SECONDS = 0.2
SSH_FILES = ("ssh/config", "ssh/known_hosts")
_NUMBERED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES")
_SET_BY_SLURM = ("SLURM", "CUDA_VISIBLE", "GPU_DEVICE", "ROCR_VISIBLE", "ZE_AFFINITY")


def main(arguments: list[str]) -> int:
    shell, grace, bell, path, number, step = arguments
    with open(path, encoding="utf-8") as file:
        batch = json.load(file)
    is_step = step == "step"
    tasks = batch["tasks"]
    task = tasks[int(number) + (int(os.environ["SLURM_PROCID"]) if is_step else 0)]
    folder = task["folder"]
    os.chdir(folder)
    if os.path.exists("started"):  # it was stopped, or it runs already
        return 0
    places = _settle(task, tasks if batch["gang"] else [task], batch["nodes"])
    if places is None:
        return 1
    _add_variables(task, places)
    _complete_ssh_files(places)
    run(folder, RunnerOptions(shell, float(grace), bell, "slurm"), SharedVariables())
    return _exit_code()


def _settle(
    task: Mapping[str, Any], tasks: list[Mapping[str, Any]], nodes: Mapping[str, str]
) -> list[Place] | None:
    """Choose the ports of the task, and return the places of all tasks once they are known."""
    if not os.path.exists(PLACE):
        place = {"ip": _address(nodes), "ports": choose(task["uid"], task["ports"]), "gpus": _gpus()}
        write_whole(PLACE, json.dumps(place))
    limit = time.monotonic() + PEERS_SECONDS
    found: list[Place] = []
    for one in tasks:
        path = os.path.join(one["folder"], PLACE)
        while not os.path.exists(path):
            if time.monotonic() > limit or os.path.exists("started"):
                return None
            os.listdir(one["folder"])  # so that a network file system looks again
            time.sleep(LOOK_SECONDS)
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
        found.append(Place(one["role"], one["index"], known["ip"], known["ports"]))
    return found


def _address(nodes: Mapping[str, str]) -> str:
    """Return the address of this machine for the others."""
    name = os.environ.get("SLURMD_NODENAME", "")
    try:
        return socket.gethostbyname(nodes.get(name) or name or socket.gethostname())
    except OSError:
        return nodes.get(name) or name


def _gpus() -> list[int]:
    visible = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [int(word) for word in visible.split(",") if word.isdigit()]


def _add_variables(task: Mapping[str, Any], places: list[Place]) -> None:
    """Add what Slurm has set and where the tasks are to the variables of the task."""
    own = next(one for one in places if (one.role, one.number) == (task["role"], task["index"]))
    slurm = {name: value for name, value in os.environ.items() if name.startswith(_SET_BY_SLURM)}
    visible = slurm.get("CUDA_VISIBLE_DEVICES")
    shown = {"NVIDIA_VISIBLE_DEVICES": visible} if visible else {}
    known = {os.fsdecode(name): os.fsdecode(value) for name, value in read_variables("environment").items()}
    peers = for_peers(places) if len(places) > 1 or not task["peers_known"] else {}
    added = {**slurm, **shown, **peers, **for_itself(own)}
    write_whole("environment", "".join(f"{name}={value}\0" for name, value in {**known, **added}.items()))
    if os.path.isdir("runtime"):
        _add_to_container(added)


def _add_to_container(added: Mapping[str, str]) -> None:
    """Add variables to those of the task's container; podman also needs its GPUs, and numbers them from 0."""
    if os.path.exists("container.json"):
        added = {name: value for name, value in added.items() if name not in _NUMBERED}
        with open("container.json", encoding="utf-8") as file:
            plan = json.load(file)
        plan["options"] += [word for gpu in _gpus() for word in ("--device", f"nvidia.com/gpu={gpu}")]
        write_whole("container.json", json.dumps(plan))
    with open("runtime/environment", "a", encoding="utf-8") as file:
        file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in added.items())


def _complete_ssh_files(places: list[Place]) -> None:
    for path in SSH_FILES:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            write_whole(path, fill_in(text, places))


def _exit_code() -> int:
    """Return the task's exit code, so that Slurm's records show it too."""
    try:
        with open("exit", encoding="utf-8") as file:
            code = int(dict(line.split() for line in file)["code"])
    except (OSError, KeyError, ValueError):
        return 1
    return code if code >= 0 else 128 - code
