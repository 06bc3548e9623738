"""``dataclass`` that generates a class's methods when the first instance is made.

Generating them takes longer than loading the rest of most modules, and a command uses few of the classes
that it loads. Of a frozen class, only ``__init__`` and the refusals to change it are compiled; comparison,
hash and text are ordinary functions. For type checkers it is the standard one.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options: bool) -> Any:
        """Return a decorator like ``dataclasses.dataclass``."""

        def decorate(cls: type[Any]) -> type[Any]:
            fields = cls.__dataclass_fields__ = Fields(cls, options)

            def __new__(kind: type[Any], /, *_: Any, **__: Any) -> Any:
                if not fields.is_complete:
                    fields.complete()
                return super(cls, kind).__new__(kind)

            cls.__new__ = __new__
            return cls

        return decorate


class Fields:
    """Stands for the fields of a class until they are read, or the first instance is made."""

    _lock = threading.RLock()

    def __init__(self, cls: type[Any], options: dict[str, bool]) -> None:
        self._cls, self._options = cls, options
        self.is_complete = False

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        self.complete()
        return owner.__dataclass_fields__

    def complete(self) -> None:
        with self._lock:
            if not self.is_complete:
                if self._options == {"frozen": True}:
                    dataclasses.dataclass(frozen=True, eq=False, repr=False)(self._cls)
                    _add_methods(self._cls)
                else:
                    dataclasses.dataclass(**self._options)(self._cls)
                self.is_complete = True


def _add_methods(cls: type[Any]) -> None:
    """Add the methods that ``eq`` and ``repr`` ask for; compiling them would double the time per class."""
    fields = dataclasses.fields(cls)
    compared = _values(field.name for field in fields if field.compare)
    hashed = _values(field.name for field in fields if (field.compare if field.hash is None else field.hash))
    shown = [field.name for field in fields if field.repr]

    def __eq__(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    for method in (__eq__, __hash__, __repr__):
        if vars(cls).get(method.__name__) is None:
            setattr(cls, method.__name__, method)


def _values(names: Iterable[str]) -> Callable[[Any], Any]:
    """Return what gets the tuple of these attributes; a single one is in it twice."""
    first, *rest = [*names] or ["__class__"]
    return operator.attrgetter(first, *(rest or [first]))
