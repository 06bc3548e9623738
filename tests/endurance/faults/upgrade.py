"""Begin with the last release, and go on with the program of today."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.endurance.plan import Fault, Options
from tests.endurance.world import PAI, World, send_signal

ROOT = Path(__file__).parents[3]
SERVER = "openpai_tasks.server "
RELEASE = "endure-release-"
ENGINES = ("process", "docker", "podman", "slurm")  # it has no other machines with ssh, and no Kubernetes


@cache
def last_release() -> str:
    """Return the commit of the last release; empty if git does not have it."""
    versions = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    heading = f"-S## {versions[0]}"
    found = _git("log", "--reverse", "--format=%H", heading, "--", "CHANGELOG.md").split()
    return _git("rev-parse", "--verify", "-q", f"v{versions[0]}^{{commit}}").strip() or (found or [""])[0]


def source_of(commit: str) -> Path:
    """Return a folder with the source of a commit, which is made once."""
    folder = Path(tempfile.gettempdir()) / f"{RELEASE}{os.getuid()}-{commit[:12]}"
    if not folder.exists():
        new = Path(tempfile.mkdtemp(prefix=RELEASE))
        archive = subprocess.run(["git", "archive", commit, "openpai_tasks"], cwd=ROOT, capture_output=True)
        subprocess.run(["tar", "x", "-C", new], input=archive.stdout, check=True)
        new.rename(folder)
    return folder


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout


class Upgrade(Fault):
    """A server of the last release has jobs; then one of today takes over.

    The old release is used from its source, with the libraries of today. Not possible without git's history.
    """

    kind, order = "upgrade", 1

    def fits(self, world: World) -> bool:
        return world.site.kind in ENGINES and bool(last_release())

    def prepare(self, world: World) -> None:
        kept = {name: value for name, value in world.environment.items() if name != "LD_PRELOAD"}
        old = {**kept, "PYTHONPATH": str(source_of(last_release()))}
        flags = {"env": old, "cwd": world.folder / "project", "check": True, "capture_output": True}
        subprocess.run([sys.executable, PAI, "cluster.start"], **flags)
        world.has_old_server = True
        for seconds in (0, 2, 8):
            words = [f"echo start; sleep {seconds}; echo end", "-j", f"old{seconds}", *world.site.job_flags()]
            subprocess.run([sys.executable, PAI, "job.sub", *words], **flags)

    def plan(self, chance: random.Random) -> Options:
        return {"way": chance.choice(("cluster.restart", "kill"))}

    def inject(self, world: World, options: Options) -> str:
        if options["way"] == "kill":
            for pid in world.pids(SERVER):
                send_signal(pid, signal.SIGKILL)
        else:
            world.pai("cluster.restart")
        world.has_old_server = False
        for seconds in (0, 2, 8):
            name = f"old{seconds}"
            waited = world.pai("job.wait", name)
            log = world.pai("job.logs", name)
            is_hurt = any(f"~{name}/" in folder for folder in world.killed_tasks | world.lossy_tasks)
            if not is_hurt and (log.stdout != "start\nend\n" or waited.returncode):
                world.broken.append(
                    f"{name} of the last release: {log.stdout!r}, {waited.stderr + log.stderr}"
                )
        return str(options["way"])
