"""Settings and connections of the Python API, the same as those of commands in this folder."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Protocol

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.config import load_settings
from openpai_tasks.text.plain import one_line

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
    text = one_line(line)
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


def name_of(where: Where) -> str:
    """Return the name or the address of a cluster as far as it is known here; nothing is asked."""
    if where is None or isinstance(where, str):
        return where or ""
    known = vars(where)
    if "backend" in known:
        return str(known["backend"].cluster.alias)
    named = known.get("_alias") or without_login(known.get("_address", ""))
    return str(named or name_of(known.get("_cluster")))


def without_login(address: str) -> str:
    """Return an address without the user and password that it may contain."""
    return re.sub(r"//[^/]*@", "//", address)


def open_backend(where: Where) -> Backend:
    """Return the connection to a cluster; the embedded one is started if needed."""
    if where is None or isinstance(where, str):
        return sdk.clusters.connect(settings_here(cluster_alias=where or None), say=say)
    if not hasattr(where, "backend"):
        raise ConfigError(f"a cluster is its alias or a Cluster, got {where!r}")
    return where.backend
