"""Jobs on a real Slurm: a controller and two nodes on this machine."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.endurance.sites.base import Site
from tests.endurance.world import Record, World, label_of
from tests.processes import is_running
from tests.server.engines.slurm_cluster import NODES, PROGRAMS, SlurmCluster, slurm_cluster

WRAPPED = ("sbatch", "squeue", "scancel", "sinfo")
WRAPPER = """\
#!/bin/sh
mode= seconds=0 until=0
[ -e {folder}/{program}.mode ] && read -r mode seconds until <{folder}/{program}.mode
[ "$(date +%s)" -lt "$until" ] || mode=
case "$mode" in
error) echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1;;
hang) sleep "$seconds";;
esac
{run}
code=$?
if [ "$mode" = lost ]; then
  echo "{program}: error: Socket timed out on send/recv operation" >&2
  exit 1
fi
exit $code
"""
SBATCH = """\
script={folder}/sbatch.d/$$
cat >$script.new
for tasks in $(grep -o '/[^ ]*[.]tasks' $script.new); do cp "$tasks" {folder}/sbatch.d/; done
sed '0,/^[^#]/s||. {folder}/preloaded; &|' $script.new >$script
{real} "$@" <$script"""
COMMENT = "openpai-tasks:"
ROW = re.compile(r"(\w+)=(\S*)")
SETTLE = 40.0  # seconds until Slurm has noticed the end of its last job


@dataclasses.dataclass(frozen=True)
class SlurmRecords:
    """What Slurm says at the end, and what was submitted to it."""

    jobs: tuple[Mapping[str, str], ...]  # by `scontrol show job`
    batches: Mapping[str, tuple[str, ...]]  # the folders of its tasks by the name of a batch

    def ids_of(self, folder: str) -> set[str]:
        """Return the jobs of Slurm that were submitted for the attempt of a task."""
        names = {COMMENT + name for name, folders in self.batches.items() if folder in folders}
        return {one.get("ArrayJobId", one["JobId"]) for one in self.jobs if one.get("Comment") in names}

    def row_of(self, folder: str) -> Mapping[str, str]:
        """Return the row of a task; empty if Slurm has none."""
        found = {COMMENT + name: own for name, own in self.batches.items() if folder in own}
        for row in self.jobs:
            if own := found.get(row.get("Comment", "")):
                number = str(own.index(folder))
                if row.get("ArrayTaskId", number) == number:
                    return row
        return {}


class Slurm(Site):
    kind = "slurm"
    fault_pause = 4.0
    memory = 100
    cluster: SlurmCluster
    has_lost_state = False
    """Whether the controller was killed, and may have forgotten the last jobs."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def missing(self) -> str:
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        lacking = [name for name in PROGRAMS if not shutil.which(name, path=path)]
        return f"{', '.join(lacking)} not installed" if lacking else ""

    def start(self, world: World) -> None:
        folder = world.folder / "slurm"
        folder.mkdir()
        self.has_lost_state = False
        self.cluster = self._stack.enter_context(slurm_cluster(folder))
        world.environment |= self.cluster.environment
        world.environment["PATH"] = f"{make_wrappers(world)}:{world.environment['PATH']}"

    def stop(self, world: World) -> None:
        self._stack.close()

    def daemons(self) -> dict[str, Path]:
        """Return the pid files of Slurm's daemons by name."""
        names = ("slurmctld", *(f"slurmd-node{number}" for number in range(1, NODES + 1)))
        return {name: self.cluster.folder / f"{name}.pid" for name in names}

    def restart(self, name: str) -> None:
        """Start a daemon that was killed."""
        program, _, node = name.partition("-")
        self.cluster.run(program, *(("-N", node) if node else ()))

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        for path in self.daemons().values():
            with suppress(OSError, ValueError):
                yield int(path.read_text())
        yield from self.steps()

    def restart_daemons(self, world: World) -> None:
        self.has_lost_state = True
        for name in self.daemons():
            self.restart(name)

    def administer(self, world: World) -> None:
        """Release jobs that Slurm holds, and nodes that it drains, as a forgotten id was given out again.

        Found by ``inv endure --engine slurm --seed 230022``.
        """
        if not self.has_lost_state:
            return
        with suppress(AssertionError):  # the controller is just starting
            for node in self.cluster.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split():
                self.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
            for line in self.cluster.run("squeue", "-h", "-o", "%i %r").splitlines():
                id, _, reason = line.partition(" ")
                if reason == "launch failed requeued held":
                    self.cluster.run("scontrol", "release", id)

    def steps(self) -> dict[int, str]:
        """Return the daemons of Slurm's steps with their titles, as ``slurmstepd: [7.batch]``."""
        found = {}
        conf = f"SLURM_CONF={self.cluster.environment['SLURM_CONF']}".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                title = path.read_bytes().rstrip(b"\0").decode(errors="replace")
                is_ours = conf in path.with_name("environ").read_bytes().split(b"\0")
                if title.startswith("slurmstepd") and is_ours and is_running(int(path.parent.name)):
                    found[int(path.parent.name)] = title
        return found

    def active(self) -> list[str]:
        """Return the ids of jobs that wait or run, as ``7`` or ``8_1``."""
        return self.cluster.run("squeue", "-h", "-r", "-o", "%i").split()

    def hurt(self, world: World, id: str) -> None:
        """Note that a fault ends a job of Slurm (``7``, or ``8_1`` of an array), with its tasks."""
        for row in self._rows(id):
            folders = self._batches(world).get(row.get("Comment", "").removeprefix(COMMENT), ())
            number = id.partition("_")[2] or row.get("ArrayTaskId", "")
            world.killed_tasks.update(folders[int(number) :][:1] if number.isdigit() else folders)

    def _rows(self, *words: str) -> list[Mapping[str, str]]:
        text = self.cluster.run("scontrol", "show", "job", "--oneliner", *words)
        return [dict(ROW.findall(line)) for line in text.splitlines() if line.startswith("JobId=")]

    @staticmethod
    def _batches(world: World) -> dict[str, tuple[str, ...]]:
        return {
            path.stem: tuple(line.split("\t", 5)[-1] for line in path.read_text().split("\n")[2:-1])
            for path in (world.folder / "bin" / "sbatch.d").glob("*.tasks")
        }

    def collect(self, world: World) -> SlurmRecords:
        while world.pids("/bin/sbatch "):  # of a server that was killed
            time.sleep(0.1)
        records = SlurmRecords(tuple(self._rows()), self._batches(world))
        for folder in {folder for folders in records.batches.values() for folder in folders}:
            state = records.row_of(folder).get("JobState", "")
            # Nodes refuse the id of a job that the controller has forgotten; Slurm cancels its next owner.
            if state == "NODE_FAIL" or (self.has_lost_state and state in ("", "CANCELLED")):
                world.killed_tasks.add(folder)
        return records

    def check(self, record: Record) -> Iterator[str]:
        records: SlurmRecords = record.collected(self.kind)
        attempts = {folder for folders in records.batches.values() for folder in folders}
        for folder in sorted(attempts):
            if len(ids := records.ids_of(folder)) > 1:
                yield f"{folder}: {len(ids)} jobs of Slurm for one attempt: {', '.join(sorted(ids))}"
        yield from self._states(record, records, attempts)

    @staticmethod
    def _states(record: Record, records: SlurmRecords, attempts: set[str]) -> Iterator[str]:
        """The state of a job is what Slurm says about its last attempt."""
        last: dict[str, str] = defaultdict(str)
        for folder in attempts:
            name = folder.partition("/jobs/")[2].partition("/")[0].partition("~")[2]
            last[name] = max(last[name], folder)
        for job in record.jobs:
            row = records.row_of(last[job["name"]])
            journal = record.journals.get(label_of(job["name"]), ())
            has_ended = any(line.startswith("end ") and f"~{job['name']}/" in line for line in journal)
            slurm, state = row.get("JobState", ""), job["state"]
            words = f"{job['name']} is {state}, but Slurm says {slurm} {row.get('ExitCode')}"
            if state == "FAILED" and slurm == "COMPLETED" and not record.is_hurt(job["name"]):
                yield words
            if state == "SUCCEEDED" and slurm not in ("COMPLETED", "") and not has_ended:
                yield words

    def leftovers(self, world: World) -> Iterator[str]:
        deadline = time.monotonic() + SETTLE
        while (found := list(self._left())) and time.monotonic() < deadline:
            time.sleep(0.3)
        yield from found
        for path in self.cluster.folder.glob("spool-node*/job*"):
            yield f"file {path}"

    def _left(self) -> Iterator[str]:
        try:
            yield from (f"job {line}" for line in self.cluster.run("squeue", "-h", "-r").splitlines())
        except (AssertionError, subprocess.TimeoutExpired) as err:
            yield f"Slurm does not answer: {err}"
        yield from (f"step {pid} {title}" for pid, title in self.steps().items())


def make_wrappers(world: World) -> Path:
    """Put programs in front of Slurm's that hang, fail or lose the answer if a fault says so.

    That of sbatch also lets tasks load the libraries of faults.
    """
    folder = world.folder / "bin"
    (folder / "sbatch.d").mkdir(parents=True)
    values = {name: shlex.quote(world.environment[name]) for name in world.preloaded}
    (folder / "preloaded").write_text("".join(f"export {name}={value}\n" for name, value in values.items()))
    for program in WRAPPED:
        real = shutil.which(program)
        run = (SBATCH if program == "sbatch" else '{real} "$@"').format(folder=folder, real=real)
        path = folder / program
        path.write_text(WRAPPER.format(folder=folder, program=program, run=run))
        path.chmod(0o755)
    return folder
