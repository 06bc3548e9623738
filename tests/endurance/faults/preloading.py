"""Libraries of ours that are loaded into the processes of a history, and the files that control them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from tests.endurance.world import World


def can_build() -> bool:
    return shutil.which("gcc") is not None


def preload(world: World, name: str, **environment: str) -> None:
    """Build the library NAME.c of this folder, and load it into all processes that start from now on."""
    library = world.folder / f"{name}.so"
    if not library.exists():
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        world.preload(str(library))
        world.environment |= environment
        world.preloaded |= {"LD_PRELOAD", *environment}


def control(world: World, name: str, *numbers: int) -> Path:
    """Write the numbers that a library reads; return their file, which the processes have mapped."""
    path = world.folder / f"{name}.control"
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(struct.pack(f"{len(numbers)}i", *numbers))
    return path
