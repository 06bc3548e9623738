"""The output of several jobs as one stream."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

from openpai_tasks.errors import ApiError
from openpai_tasks.sdk.logs.output import Chunk


def merge_jobs(steps: Mapping[str, Iterator[Chunk]]) -> Iterator[Chunk]:
    """Yield the output of all jobs as it arrives, labelled with their names; each job keeps its pauses.

    An error of one job is raised when the others have been read.
    """
    due = dict.fromkeys(steps, 0.0)
    problem: ApiError | None = None
    while due:
        name = min(due, key=lambda one: due[one])
        if (pause := due.pop(name) - time.monotonic()) > 0:
            yield Chunk("", b"", pause)
        try:
            for chunk in steps[name]:
                if chunk.data:
                    yield dataclasses.replace(chunk, task=f"{name}/{chunk.task}" if chunk.task else name)
                if chunk.pause:
                    due[name] = time.monotonic() + chunk.pause
                    break
        except ApiError as err:
            problem = problem or err
    if problem:
        raise problem
