"""Settings and connections of the Python API, the same as those of commands in this folder."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from openpai_tasks import sdk
from openpai_tasks.api.argument_names import argument_names
from openpai_tasks.errors import ConfigError
from openpai_tasks.plain_text import one_line
from openpai_tasks.settings.project import load_settings

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.settings.config import Settings

LOG = logging.getLogger("openpai_tasks")
WARNING = "warning: "


class Connected(Protocol):
    """An object with a connection to a cluster."""

    @property
    def backend(self) -> Backend: ...


Where = str | Connected | None
"""A cluster: its alias or an object for it; None is the selected one."""


def say(line: str) -> None:
    """Log a message of the SDK: a program's own output is left alone."""
    text = argument_names(one_line(line))
    if text.startswith(WARNING):
        LOG.warning("%s", text.removeprefix(WARNING))
    elif text:
        LOG.info("%s", text)


def settings_here(**flags: Any) -> Settings:
    """Load the settings of this folder; flags override them."""
    loaded = load_settings(flags)
    for line in loaded.unknown:
        say(f"{WARNING}{line}")
    return loaded


def open_backend(where: Where) -> Backend:
    """Return the connection to a cluster; the embedded one is started if needed."""
    if where is None or isinstance(where, str):
        return sdk.clusters.connect(settings_here(cluster_alias=where or None), say=say)
    if not hasattr(where, "backend"):
        raise ConfigError(f"a cluster is its alias or a Cluster, got {where!r}")
    return where.backend
