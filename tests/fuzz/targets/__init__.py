"""Every target: each module of this package has a tuple ``TARGETS``."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.fuzz.target import Target


def targets() -> dict[str, Target]:
    """Return all targets by name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {target.name: target for module in modules for target in module.TARGETS}
