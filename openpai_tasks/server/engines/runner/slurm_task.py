"""Run one task of a batch on the machine that Slurm has chosen for it.

    python -I -S start_slurm_task.py SHELL GRACE PIPE BATCH NUMBER STEP

BATCH is a file. Its first line is ``gang`` or ``array``, the second has the addresses of the nodes
(``name=address``, separated by spaces), and each of the others describes a task: uid, role, index, numbers of
ports (``label=count``, separated by commas), ``known`` if its peers are, and its folder, separated by tabs.
NUMBER is the place of the task in this list. If STEP is "step", the rank of this process in its step of Slurm
is added.

Every task starts this program, so it loads few modules of Python, which takes longer than all that it does.
"""

from __future__ import annotations

import _socket  # ``socket`` takes twice as long to load as Python to start
import contextlib
import os
import time

from .files import SharedVariables, is_on_nfs, read_variables, when_possible, write_whole
from .free_ports import choose
from .peers import Place, fill_in, for_itself, for_peers
from .task import RunnerOptions, run

PLACE = "place"
PEERS_SECONDS = 600.0  # that a task waits for its peers, which Slurm starts at the same time
LOOK_SECONDS = 0.2
SSH_FILES = ("ssh/config", "ssh/known_hosts")
_NUMBERED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES")
_SET_BY_SLURM = ("SLURM", "CUDA_VISIBLE", "GPU_DEVICE", "ROCR_VISIBLE", "ZE_AFFINITY")


class BatchTask:
    """A task of a batch, by its line."""

    def __init__(self, line: str) -> None:
        self.uid, self.role, index, ports, known, self.folder = line.split("\t", 5)
        self.index, self.peers_known = int(index), known == "known"
        self.ports = {label: int(count) for label, count in (port.split("=") for port in ports.split(","))}


def main(arguments: list[str]) -> int:
    shell, grace, pipe, path, number, step = arguments
    try:
        kind, nodes, *lines = _read(path).split("\n")[:-1]
    except FileNotFoundError:
        with contextlib.suppress(OSError):  # Slurm has created it again, not private
            os.unlink(f"{path.removesuffix('.tasks')}.log")
        raise SystemExit(f"{path} is gone: Slurm has requeued a job that has ended") from None
    rank = int(os.environ["SLURM_PROCID"]) if step == "step" else 0
    task = BatchTask(lines[int(number) + rank])
    os.chdir(task.folder)
    if os.path.exists("started"):  # it was stopped, or it runs already
        return 0
    addresses = dict(node.split("=") for node in nodes.split())
    places = _exchange_places(
        task, [BatchTask(line) for line in lines] if kind == "gang" else [task], addresses
    )
    if places is None:
        return 1
    _add_variables(task, places)
    _complete_ssh_files(places)
    options = RunnerOptions(shell, float(grace), pipe, "slurm", flush=_is_on_nfs(task.folder))
    code = run(task.folder, options, SharedVariables())
    return code if code >= 0 else 128 - code  # in Slurm's records, too


def _read(path: str) -> str:
    """Return the text of a file; wait until the disk works."""

    def read() -> str:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    return when_possible(read)


def _look(folder: str) -> None:
    """Let a network file system look again at what is in a folder."""
    when_possible(lambda: os.listdir(folder))


def _write(path: str, text: str) -> None:
    """Write a file atomically; wait until the disk works."""
    when_possible(lambda: write_whole(path, text))


def _is_on_nfs(folder: str) -> bool:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return is_on_nfs(file.read(), os.path.realpath(folder))
    except OSError:
        return False


def _exchange_places(task: BatchTask, tasks: list[BatchTask], nodes: dict[str, str]) -> list[Place] | None:
    """Choose the ports of the task, and return the places of all tasks once they are known."""
    own = PLACE + os.environ.get("SLURM_RESTART_COUNT", "")  # Slurm may start them again on other machines
    if not os.path.exists(own):
        text = write_place(_address(nodes), choose(task.uid, task.ports), _gpus())
        _write(own, text)
        _write(PLACE, text)
    limit = time.monotonic() + PEERS_SECONDS
    found: list[Place] = []
    for one in tasks:
        path = os.path.join(one.folder, own)
        while not os.path.exists(path):
            if time.monotonic() > limit or os.path.exists("started"):
                return None
            _look(one.folder)
            time.sleep(LOOK_SECONDS)
        ip, ports, _ = read_place(_read(path))
        found.append(Place(one.role, one.index, ip, ports))
    return found


def write_place(ip: str, ports: dict[str, tuple[int, ...]], gpus: list[int]) -> str:
    """Return the content of a task's ``place``: its address, ports and GPUs, a line each."""
    listed = " ".join(f"{label}={','.join(map(str, numbers))}" for label, numbers in ports.items())
    return f"{ip}\n{listed}\n{' '.join(map(str, gpus))}\n"


def read_place(text: str) -> tuple[str, dict[str, tuple[int, ...]], list[int]]:
    """Return address, ports and GPUs; ValueError if the text is no place."""
    ip, listed, gpus = text.removesuffix("\n").split("\n")
    pairs = (port.split("=") for port in listed.split())
    ports = {label: tuple(int(number) for number in numbers.split(",") if number) for label, numbers in pairs}
    return ip, ports, [int(gpu) for gpu in gpus.split()]


def _address(nodes: dict[str, str]) -> str:
    """Return the address of this machine for the others."""
    name = os.environ.get("SLURMD_NODENAME", "")
    try:
        return _socket.gethostbyname(nodes.get(name) or name or os.uname().nodename)
    except OSError:
        return nodes.get(name) or name


def _gpus() -> list[int]:
    visible = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [int(word) for word in visible.split(",") if word.isdigit()]


def _add_variables(task: BatchTask, places: list[Place]) -> None:
    """Add what Slurm has set and where the tasks are to the variables of the task."""
    own = next(one for one in places if (one.role, one.number) == (task.role, task.index))
    slurm = {name: value for name, value in os.environ.items() if name.startswith(_SET_BY_SLURM)}
    visible = slurm.get("CUDA_VISIBLE_DEVICES")
    shown = {"NVIDIA_VISIBLE_DEVICES": visible} if visible else {}
    read = when_possible(lambda: read_variables("environment"))
    known = {os.fsdecode(name): os.fsdecode(value) for name, value in read.items()}
    peers = for_peers(places) if len(places) > 1 or not task.peers_known else {}
    added = {**slurm, **shown, **peers, **for_itself(own)}
    _write("environment", "".join(f"{name}={value}\0" for name, value in {**known, **added}.items()))
    if os.path.isdir("runtime"):
        add_to_container(added)


def add_to_container(added: dict[str, str]) -> None:
    """Add variables to those of the task's container; podman also needs its GPUs, and numbers them from 0."""
    import json  # few sites use images
    import shlex

    if os.path.exists("container.json"):
        added = {name: value for name, value in added.items() if name not in _NUMBERED}
        plan = json.loads(_read("container.json"))
        gpus = [word for gpu in _gpus() for word in ("--device", f"nvidia.com/gpu={gpu}")]
        plan["options"] += [*gpus, "--env", "NVIDIA_VISIBLE_DEVICES=all"] if gpus else []
        _write("container.json", json.dumps(plan))
    with open("runtime/environment", "a", encoding="utf-8") as file:
        file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in added.items())


def _complete_ssh_files(places: list[Place]) -> None:
    for path in SSH_FILES:
        if os.path.exists(path):
            _write(path, fill_in(_read(path), places))
