"""Packages whose names are loaded on first use, as their stubs list them."""

from __future__ import annotations

from collections.abc import Callable

import lazy_loader  # type: ignore[import-untyped]

Attached = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def attach_stub(package: str, file: str) -> Attached:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub beside its file.

    ``lazy_loader.attach_stub`` takes six times as long, as it parses the stub as Python, and every command
    loads several packages. Our stubs have only lines such as ``from .module import name as name``.
    """
    names: dict[str, list[str]] = {}
    with open(f"{file}i", encoding="ascii") as stub:
        for _, module, _, name, _, _ in map(str.split, stub):
            names.setdefault(module.removeprefix("."), []).append(name)
    found: Attached = lazy_loader.attach(package, names.pop("", []), names)
    return found
