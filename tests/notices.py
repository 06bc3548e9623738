"""Notices of what a job asks for and does not get; which there are depends on the machine and the user."""

from __future__ import annotations

from typing import Any

from openpai_tasks.protocol.routes import OWN_FIELD

NO_GPU = "this machine has no GPU; the job runs without"
MEMORY = "the memory limit is not enforced: "
"""Ordinary users may not make cgroups on most machines."""


def image_not_used(image: str) -> dict[str, Any]:
    """Return the addition to the answer for a job whose image is not used."""
    return {OWN_FIELD: {"notices": [f"the image {image} is not used: jobs run as processes of this machine"]}}


def without_memory(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a submission without the notice that memory is not limited."""
    kept = [line for line in body.get(OWN_FIELD, {}).get("notices", []) if not line.startswith(MEMORY)]
    rest = {key: value for key, value in body.items() if key != OWN_FIELD}
    return {**rest, OWN_FIELD: {"notices": kept}} if kept else rest


def without_resources(output: str) -> str:
    """Return the output of a program without the notices about GPUs and memory."""
    lines = output.splitlines(keepends=True)
    return "".join(line for line in lines if line.rstrip() != NO_GPU and not line.startswith(MEMORY))
