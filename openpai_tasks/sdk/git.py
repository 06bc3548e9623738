"""Which commit a folder is at, and whether that says everything."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal")
NOT_OURS = ("--", ":/", ":(top,exclude,glob)**/.openpai/**")  # what a submission itself writes is no change
SECONDS = 20.0


@dataclass(frozen=True)
class Revision:
    """The commit, and ``dirty`` if files differ from it; no commit outside of git."""

    commit: str = ""
    dirty: bool = False


def revision(folder: Path) -> Revision:
    """What git says of the folder; nothing where there is no git, no repository or no commit yet."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *STATUS, *NOT_OURS],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Revision()
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    commits = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if done.returncode or not commits or commits[0] == "(initial)":
        return Revision()
    return Revision(commits[0], any(not line.startswith("#") for line in lines))
