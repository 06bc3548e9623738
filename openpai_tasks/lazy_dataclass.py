"""``dataclass`` that generates a class's methods when the first instance is made.

Generating them takes longer than loading the rest of most modules, and a command uses few of the classes
that it loads: with the standard one, `pai job.list` takes a quarter longer. For type checkers it is that one.
"""

from __future__ import annotations

import dataclasses
import threading
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
                dataclasses.dataclass(**self._options)(self._cls)
                self.is_complete = True
