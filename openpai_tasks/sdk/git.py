"""Find a folder's git commit and whether files differ from it.

A repository is untrusted, and its settings can name programs. None of them is run: monitors, hooks, filters
and transports are switched off, and submodules are ignored.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.credentials import hidden_environment

SAFE_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.sshCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
}
"""Settings for git's command line, which override any settings file."""

FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.")
STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty")
PATHS = ("--", ":/", ":(top,exclude,glob)**/.openpai/**")  # our own records are no changes
ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
}
SECONDS = 20.0
_COMMIT = re.compile("[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Revision:
    """A commit, and whether files differ from it; empty outside of git."""

    commit: str = ""
    dirty: bool = False


def revision(folder: Path) -> Revision:
    """Return the folder's revision; empty without git, a repository or a commit.

    A file from a filter such as git-lfs that was touched since counts as changed.
    """
    try:
        top = _git(folder, SAFE_SETTINGS, "rev-parse", "--show-toplevel").removesuffix("\n")
        if not os.path.lexists(os.path.join(top, ".git")):  # core.worktree leads elsewhere
            return Revision()
        settings = SAFE_SETTINGS | _no_filters(_git(folder, SAFE_SETTINGS, *FILTERS, may_fail=True))
        lines = _git(folder, settings, *STATUS, *PATHS).splitlines()
    except (OSError, subprocess.SubprocessError, ValueError):
        return Revision()
    commits = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if not commits or not _COMMIT.fullmatch(commits[0]):  # "(initial)"
        return Revision()
    return Revision(commits[0], any(not line.startswith("#") for line in lines))


def is_tracked(folder: Path, *files: Path) -> bool:
    """Whether one of the files in the folder belongs to the repository around it."""
    try:
        return bool(_git(folder, SAFE_SETTINGS, "ls-files", "--", *map(str, files)))
    except (OSError, subprocess.SubprocessError, ValueError):
        return False


def read_files(folder: Path, commit: str, names: Sequence[str]) -> dict[str, bytes] | None:
    """Return files of the folder as they are in a commit, if they are; None if git has no such commit."""
    if not _COMMIT.fullmatch(commit):
        return None
    names = [name for name in names if "\n" not in name]
    asked = "".join(f"{commit}:./{name}\n" for name in names).encode("utf-8", "surrogateescape")
    try:
        _git(folder, SAFE_SETTINGS, "cat-file", "-e", f"{commit}^{{commit}}")
        return _files_in(_run(folder, SAFE_SETTINGS, "cat-file", "--batch", given=asked), names)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _files_in(answer: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files in an answer of ``git cat-file --batch`` about these names."""
    found, at = {}, 0
    for name in names:
        end = answer.index(b"\n", at)
        head, at = answer[at:end].split(b" "), end + 1
        if len(head) == 3 and head[2].isdigit():  # "OBJECT TYPE SIZE", or "NAME missing"
            size = int(head[2])
            if head[1] == b"blob":
                found[name] = answer[at : at + size]
            at += size + 1
    return found


def _no_filters(names: str) -> dict[str, str]:
    """Return settings that turn off the filters with these setting names."""
    found = {name.removeprefix("filter.").rpartition(".")[0] for name in names.split("\0") if name}
    if any("=" in name for name in found):
        raise ValueError("a filter whose name cannot be written on a command line")
    keys = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    return {f"filter.{name}.{key}": value for name in found for key, value in keys}


def _git(folder: Path, settings: dict[str, str], *words: str, may_fail: bool = False) -> str:
    return _run(folder, settings, *words, may_fail=may_fail).decode("utf-8", "surrogateescape")


def _run(
    folder: Path, settings: dict[str, str], *words: str, may_fail: bool = False, given: bytes = b""
) -> bytes:
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return subprocess.run(
        ["git", "--no-pager", *options, *words],
        cwd=folder,
        env={**hidden_environment(), **ENVIRONMENT},
        input=given,
        capture_output=True,
        timeout=SECONDS,
        check=not may_fail,
    ).stdout
