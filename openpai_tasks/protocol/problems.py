"""Problems of a document: path, broken rule, and line."""

from __future__ import annotations

from collections.abc import Iterable

from openpai_tasks.errors import ProtocolError
from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Problem:
    """A path in a document (``taskRoles.worker.instances``) and the rule it breaks."""

    path: str
    rule: str
    line: int | None = None

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line is not None else ""
        return f"{self.path}: {self.rule}{where}" if self.path else f"{self.rule}{where}"


def refusal(problems: Iterable[Problem]) -> ProtocolError:
    """Return the error for a refused document: the message has the first problem, ``problems`` has all."""
    found = tuple(problems)
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    return ProtocolError(f"{found[0]}{more}", found)


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean X?`` to append to a message, if a known name is similar."""
    import difflib

    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.7)
    return f", did you mean {names[near[0]]!r}?" if near else ""
