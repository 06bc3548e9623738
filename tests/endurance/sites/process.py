"""Jobs as processes of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.endurance.sites.base import Site
from tests.endurance.world import World

GPUS = 2  # that a machine without any pretends to have
NVIDIA_SMI = """\
#!/bin/sh
case $* in *index,uuid,name*) ;; *) exit 0 ;; esac  # nobody else uses them
for n in {numbers}; do echo "$n, GPU-{name}-$n, test, 100"; done
"""


class Process(Site):
    kind = "process"

    def start(self, world: World) -> None:
        """Pretend to have GPUs where there are none: the server only hands them out."""
        if shutil.which("nvidia-smi"):
            return
        programs = world.folder / "programs"
        programs.mkdir()
        program = Path(programs / "nvidia-smi")
        numbers = " ".join(map(str, range(GPUS)))
        program.write_text(NVIDIA_SMI.format(numbers=numbers, name=world.folder.parent.name))
        program.chmod(0o755)
        world.environment["PATH"] += f"{os.pathsep}{programs}"
