"""``job.sub --template``: the flags of a command as the parameters of a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.amounts import megabytes
from openpai_tasks.sdk.jobs.wishes import Wish
from openpai_tasks.sdk.templates import catalog
from openpai_tasks.sdk.templates.catalog import Template

FLAGS = {
    "command": ("command",),
    "image": ("image",),
    "instances": ("nodes", "workers", "instances"),
    "cpu": ("cpus", "cpu"),
    "gpu": ("gpus", "gpu"),
    "memoryMB": ("memory", "memoryMB"),
    "shm": ("shm", "shmMB"),
}
"""What a flag may be called among the parameters of a template; the first that is there counts."""


def fill_template(
    wish: Wish, here: Path, flags: Mapping[str, Any], parameters: Sequence[str]
) -> dict[str, Any] | None:
    """The template that is wished for, with its parameters: those of flags, and those given by name."""
    if not wish.template:
        if parameters:
            raise ConfigError("--parameter goes with --template; a plain command has none")
        return None
    template = catalog.find_template(wish.template, here)
    shm = megabytes(wish.shm, "--shm") if wish.shm else None
    chosen = _chosen(template, {"command": wish.command or None, "shm": shm, **flags})
    text = catalog.fill(template, {**chosen, **catalog.parse_template_parameters(parameters)})
    filled: dict[str, Any] = protocol.read(text).value
    return filled


def _chosen(template: Template, flags: Mapping[str, Any]) -> dict[str, Any]:
    known = [parameter.name for parameter in template.parameters]
    chosen: dict[str, Any] = {}
    for flag, value in flags.items():
        place = next((name for name in FLAGS[flag] if name in known), None)
        if value is not None and place is None:
            said, names = "a command" if flag == "command" else f"--{flag}", ", ".join(known) or "none"
            raise ConfigError(f"template {template.name!r} has no parameter for {said} (it has: {names})")
        if value is not None and place is not None:
            chosen[place] = value
    return chosen
