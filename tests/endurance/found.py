"""The operations, faults and sites that the modules of these packages have."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from tests.endurance import faults, operations, sites
from tests.endurance.plan import Fault, Operation
from tests.endurance.sites.base import Site


def _members(package: ModuleType, base: type) -> list[Any]:
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    kinds = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [kind() for kind in dict.fromkeys(kinds) if issubclass(kind, base) and getattr(kind, "kind", "")]


def _by_kind(package: ModuleType, base: type) -> dict[str, Any]:
    found = _members(package, base)
    by_kind = {one.kind: one for one in found}
    assert len(by_kind) == len(found), f"two of {sorted(one.kind for one in found)} have the same name"
    return by_kind


OPERATIONS: dict[str, Operation] = _by_kind(operations, Operation)
FAULTS: dict[str, Fault] = _by_kind(faults, Fault)
SITES: dict[str, Site] = _by_kind(sites, Site)
