"""The pages of `pai`, `pai --help`, `pai --list` and `pai help TOPIC`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from invoke.collection import Collection
from invoke.util import helpline

from openpai_tasks.tasks.pai.flat_names import SHORT

EVERY_DAY, OWN = "Every day", "This project"
EQUALS = "\u00a0=\u00a0"  # where no line is broken
PAGE_COLUMNS = 79
"""Columns of the front page; on narrower terminals, lines are wrapped."""
GROUPS = {
    "Start": {
        "config.init": "write the files of a new project",
        "config.doctor": "check Python, cluster, login and storage",
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
        "container.ssh": "open a shell in a running job",
        "container.top": "show the CPU, memory and GPU use of a job",
        "storage.copy": "copy files to and from storages",
        "cluster.portal": "see and submit jobs in a browser",
    },
}
"""The everyday commands, with a short description of each."""
TOPICS = {
    "jobs": (
        "A job runs a command on a cluster, or on this machine if none is set up.",
        'job.sub "python train.py" --sources train.py --gpu 1 --follow',
        "job.logs train --follow",
        "job.outputs train --to results",
    ),
    "sweeps": (
        "A sweep submits a job for each combination of values, which the command gets as variables.",
        "job.sub 'python train.py --lr $lr --seed $seed' --sweep lr=0.1,0.01 --sweep seed=1,2,3",
        "job.results train --sort acc --best 3",
        "job.metrics train --plot",
    ),
    "storage": (
        "Storages are named pai://CLUSTER/STORAGE/PATH; paths without pai:// are on this machine.",
        "storage.list",
        "storage.copy ./data pai://lab/home/data",
        "storage.sync pai://lab/home/results ./results",
    ),
    "notebooks": (
        "A notebook runs as a job from its first to its last cell, or is served from a job.",
        "notebook.run train.ipynb --gpu 1",
        "notebook.serve train.ipynb --gpu 1",
        "notebook.pull train",
    ),
    "containers": (
        "Log in to running jobs, copy files there, and forward their ports.",
        "container.start --gpu 1",
        "container.ssh train",
        "container.forward train 6006",
    ),
    "clusters": (
        "Commands use the selected cluster, or the one of -a; `local` is this machine.",
        "cluster.add lab https://pai.example.com --user ann",
        "cluster.select lab",
        "cluster.resources -a lab",
    ),
    "metrics": (
        "A program records numbers with openpai_tasks.runtime.log_metric(name, value, step).",
        "job.metrics train",
        "job.metrics 'train-*' --metric loss --plot",
        "job.metrics train -o csv",
    ),
    "secrets": (
        "A job gets a secret from a variable of your shell; it is never shown or printed.",
        'job.sub "python train.py" --secret WANDB_API_KEY',
        "job.resubmit train --secret WANDB_API_KEY",
        "notebook.run train.ipynb --secret WANDB_API_KEY",
    ),
}
"""A sentence and three examples for each topic of `pai help`."""


def front_page(program: str, columns: int, own: Iterable[str] = ()) -> str:
    """Return the page for this width; ``own`` are the tasks of the project itself."""
    lines = [f"usage: {program} COMMAND [WORDS] [--FLAGS]", ""]
    for group, commands in GROUPS.items():
        lines += _front_group(program, group, commands, columns < PAGE_COLUMNS)
    theirs = ", ".join(own)
    lines += ["", f"This project's own commands: {theirs}"] if theirs else [""]
    lines += [
        f"`{program} help COMMAND` explains one, `{program} --list` shows all.",
        f"Examples: `{program} help TOPIC` with {', '.join(TOPICS)}; flags: invoke.",
        f'`{program} run "echo hello" --follow` runs a first job on this machine.',
    ]
    return "\n".join(part for line in lines for part in _wrapped(line, columns))


def _wrapped(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    return textwrap.wrap(line, columns, subsequent_indent="    ", break_on_hyphens=False)


def _front_group(program: str, group: str, commands: Mapping[str, str], is_narrow: bool) -> list[str]:
    if is_narrow:
        names = (f"{name} ({SHORT[name]})" if name in SHORT else name for name in commands)
        lines = (f"{program} {name}: {text}" for name, text in zip(names, commands.values(), strict=True))
        return [f"{group}:", *lines]
    return [
        f"{group if number == 0 else '':7}{program} {name:16}{SHORT.get(name, ''):7}{text}"
        for number, (name, text) in enumerate(commands.items())
    ]


def topic_page(program: str, name: str, columns: int) -> str:
    """Return the page of a topic, also in the singular; empty for any other word."""
    if not (found := TOPICS.get(name) or TOPICS.get(f"{name}s")):
        return ""
    about, *examples = found
    return "\n".join(
        [*textwrap.wrap(about, columns), "", *(f"  {program} {example}" for example in examples)]
    )


def groups(collection: Collection, root: str | None) -> dict[str, list[tuple[str, str | None]]]:
    """Return the tasks with their help: those of every day, of the project, and of each collection."""
    found: dict[str, list[tuple[str, str | None]]] = {EVERY_DAY: [], OWN: []}
    daily = [name for group in GROUPS.values() for name in group]
    everything = dict(_tasks(collection, root or ""))
    for name in daily:
        if name in everything and not root:
            short = f" ({SHORT[name]})" if name in SHORT else ""
            found[EVERY_DAY].append((name + short, everything.pop(name)))
    for name, text in sorted(everything.items()):
        title = name.rpartition(".")[0] or OWN
        found.setdefault(title, []).append((name, text))
    return {title: rows for title, rows in found.items() if rows}


def _tasks(collection: Collection, path: str) -> Iterator[tuple[str, str | None]]:
    prefix = f"{path}." if path else ""
    for name, task in collection.tasks.items():
        yield prefix + name, helpline(task)
    for name, inner in collection.collections.items():
        yield from _tasks(inner, prefix + name)


def other_names(collection: Collection, root: str | None, columns: int) -> str:
    """Return the aliases of tasks, each beside the task that it runs."""
    names = ", ".join(f"{alias}{EQUALS}{task}" for alias, task in _aliases(collection, root or ""))
    lines = textwrap.wrap(f"Other names: {names}", columns, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines).replace(EQUALS, " = ") if names else ""


def _aliases(collection: Collection, path: str) -> Iterator[tuple[str, str]]:
    prefix = f"{path}." if path else ""
    if path and collection.default:
        yield path, prefix + collection.default
    for name, task in sorted(collection.tasks.items()):
        yield from ((prefix + collection.transform(alias), prefix + name) for alias in sorted(task.aliases))
    for name, inner in sorted(collection.collections.items()):
        yield from _aliases(inner, prefix + name)
