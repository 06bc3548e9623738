"""What `pai` prints without a command: the everyday commands, and how to get help."""

from __future__ import annotations

from collections.abc import Iterable

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


def front_page(program: str, own: Iterable[str] = ()) -> str:
    """Return the page; ``own`` are the tasks of the project itself."""
    lines = [f"usage: {program} COMMAND [WORDS] [--FLAGS]", ""]
    for group, commands in GROUPS.items():
        names = list(commands)
        lines += [
            f"{group if name == names[0] else '':7}{program} {name:17}{about}"
            for name, about in commands.items()
        ]
    theirs = ", ".join(own)
    lines += ["", f"This project's own commands: {theirs}"] if theirs else [""]
    lines += [
        f"`{program} help COMMAND` explains one, `{program} --list` shows all of them,",
        f'and `{program} job.sub "echo hello" --follow` runs a first job on this machine.',
    ]
    return "\n".join(lines)
