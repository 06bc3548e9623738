"""The fields of the form for a job: their labels, and errors that name them instead of flags of `job.sub`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from openpai_tasks.errors import PaiError
from openpai_tasks.hints import replace_flags

LABELS = {
    "command": "Command",
    "job_name": "Job name",
    "image": "Docker image",
    "gpu": "GPUs per task",
    "cpu": "CPU cores per task",
    "memoryMB": "Memory per task",
    "instances": "Tasks",
    "virtual_cluster": "Virtual cluster",
    "sources": "Sources",
    "env": "Environment",
    "secret": "Secrets",
    "retries": "Retries",
    "max_time": "Time limit of a task",
    "shm": "Shared memory",
    "tag": "Tags",
    "outputs": "Files to keep",
    "pip_installs": "Python packages",
}
"""Labels of the form by the names of its fields, which are those of the flags."""
ELSEWHERE = {"attempt": "Attempt", "role": "Role", "index": "Index", "state": "State", "level": "Level"}
OTHER_NAMES = {"mem": "memoryMB", "j": "job_name", "i": "image"}


def in_field_names(text: str) -> str:
    """Return a message with “Memory per task” for ``--mem``; flags without a field stay."""

    def label(flag: str, tail: str) -> str | None:
        name = flag.replace("-", "_")
        found = LABELS.get(OTHER_NAMES.get(name, name)) or ELSEWHERE.get(name)
        return f"“{found}”{tail}" if found else None

    named = replace_flags(text, label)
    return re.sub(r"(“[^“”]*”)(?: \(\1\)|: \w+(?= must be ))", r"\1", named)


@contextlib.contextmanager
def naming_fields() -> Iterator[None]:
    """Change the message of an error that is raised inside."""
    try:
        yield
    except PaiError as err:
        if err.args:
            err.args = (in_field_names(str(err.args[0])), *err.args[1:])
        raise
