"""What `pai` prints without a command: the everyday commands, and how to get help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

GROUPS = {
    "Start": {
        "init": "write the files of a new project",
        "doctor": "check Python, cluster, login and storage",
        "cluster.add": "add a cluster and log in",
    },
    "Jobs": {
        "job.sub": "submit a command as a job",
        "job.list": "list jobs, newest first",
        "job.status": "show one job and its tasks",
        "job.logs": "show a job's output; --follow until it ends",
        "job.why": "explain why a job waits or has failed",
        "job.outputs": "list or download the files a job wrote",
        "job.stop": "stop jobs",
    },
    "Work": {
        "notebook.run": "run a notebook as a job",
        "container.start": "start a container and open a shell in it",
        "storage.copy": "copy files to and from storages",
        "cluster.portal": "see and submit jobs in a browser",
    },
}
"""The everyday commands, with a short description of each."""
NEEDED = 76
"""Columns of the page; on narrower terminals, lines are wrapped."""


def front_page(program: str, columns: int, own: Iterable[str] = ()) -> str:
    """Return the page for this width; ``own`` are the tasks of the project itself."""
    lines = [f"usage: {program} COMMAND [WORDS] [--FLAGS]", ""]
    for group, commands in GROUPS.items():
        lines += _group(program, group, commands, columns < NEEDED)
    theirs = ", ".join(own)
    lines += ["", f"This project's own commands: {theirs}"] if theirs else [""]
    lines += [
        f"`{program} help COMMAND` explains one, `{program} --list` shows all of them,",
        f'and `{program} job.sub "echo hello" --follow` runs a first job on this machine.',
    ]
    if columns >= NEEDED:
        return "\n".join(lines)
    import textwrap

    wrapped = (textwrap.wrap(line, columns, subsequent_indent="    ") or [""] for line in lines)
    return "\n".join(part for parts in wrapped for part in parts)


def _group(program: str, group: str, commands: Mapping[str, str], is_narrow: bool) -> list[str]:
    if is_narrow:
        return [f"{group}:", *(f"{program} {name}: {about}" for name, about in commands.items())]
    return [
        f"{group if number == 0 else '':7}{program} {name:17}{about}"
        for number, (name, about) in enumerate(commands.items())
    ]
