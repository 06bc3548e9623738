"""Build the request of ``job.sub`` from its options, and fill the template that they name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError, InvalidOption
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk import ssh
from openpai_tasks.sdk.jobs import options as job_options
from openpai_tasks.sdk.jobs.options import Ask, JobOptions
from openpai_tasks.sdk.templates import catalog
from openpai_tasks.sdk.templates.catalog import Template
from openpai_tasks.settings.config import Settings
from openpai_tasks.text.hints import option

OPTION_PARAMETERS = {
    "command": ("command",),
    "image": ("image",),
    "instances": ("nodes", "workers", "instances"),
    "cpu": ("cpus", "cpu"),
    "gpu": ("gpus", "gpu"),
    "memoryMB": ("memory", "memoryMB"),
    "shm": ("shm", "shmMB"),
}
"""Parameter names that each option may set; the first that the template has counts."""


def build_request(options: JobOptions, settings: Settings, ask: Ask, here: Path) -> JobRequest:
    """Build the request of ``job.sub``, with its template and the key for ssh logins."""
    request = dataclasses.replace(
        job_options.build_request(options, settings, ask),
        ssh_key=ssh.public_key(settings) if options.ssh else "",
        base=fill_template(options, here),
    )
    job_options.check_commands(request)
    return request


def fill_template(options: JobOptions, here: Path) -> dict[str, Any] | None:
    """Return the template's document, filled from the other options and its parameters."""
    if not options.template:
        if options.parameter:
            raise InvalidOption("parameter", f"needs {option('template')}")
        return None
    template = catalog.find_template(options.template, here)
    text = catalog.fill(template, {**_choose_parameters(template, options), **options.parameter})
    filled: dict[str, Any] = protocol.read(text).value
    return filled


def _choose_parameters(template: Template, options: JobOptions) -> dict[str, Any]:
    known = [one.name for one in template.parameters]
    chosen: dict[str, Any] = {}
    for name, parameters in OPTION_PARAMETERS.items():
        value = getattr(options, name)
        if value in (None, ""):
            continue
        parameter = next((name for name in parameters if name in known), None)
        if parameter is None:
            what, names = "a command" if name == "command" else option(name), ", ".join(known) or "none"
            raise ConfigError(f"template {template.name!r} has no parameter for {what} (it has: {names})")
        chosen[parameter] = value
    return chosen
