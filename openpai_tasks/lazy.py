"""Modules that are loaded when they are first used: start-up is a feature."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class lazy(ModuleType):
    """The module ``name``, imported at the first look into it.

    It is never put among the loaded modules itself: whatever stops an import, be it Ctrl-C, stops whoever
    wanted the module, and is told as it is.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by those who look at any object
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)
