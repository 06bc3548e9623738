"""Build the request of ``job.sub`` from its flags, and fill the template that they name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk import ssh
from openpai_tasks.sdk.amounts import megabytes
from openpai_tasks.sdk.jobs.flags import Ask, build_request, check_commands
from openpai_tasks.sdk.templates import catalog
from openpai_tasks.sdk.templates.catalog import Template
from openpai_tasks.settings.config import Settings

FLAG_PARAMETERS = {
    "command": ("command",),
    "image": ("image",),
    "instances": ("nodes", "workers", "instances"),
    "cpu": ("cpus", "cpu"),
    "gpu": ("gpus", "gpu"),
    "memoryMB": ("memory", "memoryMB"),
    "shm": ("shm", "shmMB"),
}
"""Parameter names that each flag may set; the first that the template has counts."""


def request_from_flags(flags: Mapping[str, Any], settings: Settings, ask: Ask, here: Path) -> JobRequest:
    """Build the request of ``job.sub``, with its template and the key for ssh logins."""
    request = dataclasses.replace(
        build_request(flags, settings, ask),
        ssh_key=ssh.public_key(settings) if flags.get("ssh") else "",
        base=fill_template(flags, here),
    )
    check_commands(request)
    return request


def fill_template(flags: Mapping[str, Any], here: Path) -> dict[str, Any] | None:
    """Return the template's document, filled from the other flags and ``--parameter``."""
    name, parameters = flags.get("template"), flags.get("parameter") or ()
    if not name:
        if parameters:
            raise ConfigError("--parameter needs --template")
        return None
    template = catalog.find_template(name, here)
    sizes = {flag: megabytes(flags[flag], f"--{flag}") for flag in ("shm", "memoryMB") if flags.get(flag)}
    chosen = _chosen(template, {flag: flags.get(flag) for flag in FLAG_PARAMETERS} | sizes)
    text = catalog.fill(template, {**chosen, **catalog.parse_template_parameters(parameters)})
    filled: dict[str, Any] = protocol.read(text).value
    return filled


def _chosen(template: Template, flags: Mapping[str, Any]) -> dict[str, Any]:
    known = [one.name for one in template.parameters]
    chosen: dict[str, Any] = {}
    for flag, value in flags.items():
        parameter = next((name for name in FLAG_PARAMETERS[flag] if name in known), None)
        if value in (None, ""):
            continue
        if parameter is None:
            what, names = "a command" if flag == "command" else f"--{flag}", ", ".join(known) or "none"
            raise ConfigError(f"template {template.name!r} has no parameter for {what} (it has: {names})")
        chosen[parameter] = value
    return chosen
