"""``job.sub --template``: the flags of a command as the parameters of a template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.amounts import megabytes
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


def fill_template(flags: Mapping[str, Any], here: Path) -> dict[str, Any] | None:
    """The document of ``--template``, its parameters taken from the other flags and ``--parameter``."""
    name, parameters = flags.get("template"), flags.get("parameter") or ()
    if not name:
        if parameters:
            raise ConfigError("--parameter goes with --template; a plain command has none")
        return None
    template = catalog.find_template(name, here)
    sizes = {flag: megabytes(flags[flag], f"--{flag}") for flag in ("shm", "memoryMB") if flags.get(flag)}
    chosen = _chosen(template, {flag: flags.get(flag) for flag in FLAGS} | sizes)
    text = catalog.fill(template, {**chosen, **catalog.parse_template_parameters(parameters)})
    filled: dict[str, Any] = protocol.read(text).value
    return filled


def _chosen(template: Template, flags: Mapping[str, Any]) -> dict[str, Any]:
    known = [parameter.name for parameter in template.parameters]
    chosen: dict[str, Any] = {}
    for flag, value in flags.items():
        place = next((name for name in FLAGS[flag] if name in known), None)
        if value in (None, ""):
            continue
        if place is None:
            what, names = "a command" if flag == "command" else f"--{flag}", ", ".join(known) or "none"
            raise ConfigError(f"template {template.name!r} has no parameter for {what} (it has: {names})")
        chosen[place] = value
    return chosen
