"""The first program of every SSH session: it becomes a shell in the task's folder, with its variables.

    python -I -S enter.py FOLDER SHELL [TERMINAL]

The script needs only the standard library, since each session waits for it. ``SSH_ORIGINAL_COMMAND`` is the
command; without it the shell reads its input. TERMINAL, any word, means that the input is a terminal that
must become the session's controlling terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys

RESTORE = 'pai_folder=$PWD; . "$0"; cd "$PWD" || cd "$pai_folder"; exec "$@"'
"""Restores the folder and the variables of a crash before a command; see scheduling/keeping.py."""
KEPT = (b"TERM", b"SSH_CLIENT", b"SSH_CONNECTION", b"SSH_TTY", b"SSH_AUTH_SOCK")


def main(folder: str, shell: str, *terminal: str) -> None:
    if terminal:
        take_terminal()
    join_cgroup(folder)
    command = os.environb.get(b"SSH_ORIGINAL_COMMAND")
    variables = task_variables(folder)
    variables.update({name: os.environb[name] for name in KEPT if name in os.environb})
    # A bash at level 1 that ssh runs reads the user's .bashrc, even for a single command.
    variables[b"SHLVL"] = b"1"
    os.chdir(os.path.join(folder, "work"))
    words = [shell] if command is None else [shell, "-c", os.fsdecode(command)]
    crash = os.path.join(folder, "crash")
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(crash):
            words = [shell, "-c", RESTORE, crash, *words]
    os.execve(shell, words, variables)


def take_terminal() -> None:
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def join_cgroup(folder: str) -> None:
    """Join the cgroup that limits the memory of the task, if there is one (see engines/runner/memory.py)."""
    try:
        with open(os.path.join(folder, "memory"), encoding="utf-8", errors="surrogateescape") as file:
            _, group = file.read().splitlines()
    except FileNotFoundError:
        return
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write("0")


def task_variables(folder: str) -> dict[bytes, bytes]:
    """Return the variables of the attempt, those of the task, and those that its commands added."""
    found: dict[bytes, bytes] = {}
    for path in (os.path.join(os.path.dirname(folder), "environment"), os.path.join(folder, "environment")):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            found.update(_pairs(file.read().split(b"\0")))
    added = os.path.join(folder, "ssh", "environment")
    with contextlib.suppress(FileNotFoundError), open(added, "rb") as file:
        found.update(_pairs(file.read().split(b"\n")))
    return found


def _pairs(entries: list[bytes]) -> list[tuple[bytes, bytes]]:
    parts = (entry.partition(b"=") for entry in entries)
    return [(name, value) for name, sign, value in parts if name and sign]


if __name__ == "__main__":
    main(*sys.argv[1:])
