"""Write job documents as YAML: block style, keys in order, multi-line strings as literal blocks."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from openpai_tasks.protocol.problems import Problem, refusal
from openpai_tasks.protocol.yaml import values

_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")  # line breaks for some readers, text for others
_SURROGATE = re.compile("[\ud800-\udfff]")


class QuotedString(str):
    """A string that is written in double quotes."""


class _Dumper(yaml.SafeDumper):
    """Block style without aliases; strings that another reader could read as numbers are quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(document: dict[str, Any]) -> str:
    """Write a document so that it reads back to the same values, here and on the real server.

    Raise ProtocolError if it has bytes of a command line that are not UTF-8, as no document can have them.
    """
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**20
    )
    if "\\uD" in text and (found := list(_invalid_text(document))):
        raise refusal(found)
    return text


def _invalid_text(value: Any, path: str = "") -> Iterator[Problem]:
    """Yield the strings with lone surrogates, which would be read as U+FFFD; they may be secrets."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _invalid_text(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _invalid_text(item, f"{path}.{number}")
    elif isinstance(value, str) and _SURROGATE.search(value):
        yield Problem(path, "must be UTF-8 text")


def _style(value: str) -> str | None:
    """Choose the literal style for several lines, and quotes for ambiguous strings."""
    if _BREAKS.search(value):
        return '"'
    if "\n" in value:
        return "|"
    return "'" if value in ("<<", "=") or not isinstance(values.plain(value), str) else None


def _represent(dumper: _Dumper, value: Any) -> yaml.Node:
    if isinstance(value, values.Timestamp):
        return dumper.represent_scalar(values.TAG + "timestamp", value.source)
    if isinstance(value, values.Binary):
        return dumper.represent_scalar(values.TAG + "binary", base64.b64encode(value.content).decode("ascii"))
    style = '"' if isinstance(value, QuotedString) else _style(value)
    return dumper.represent_scalar(values.TAG + "str", str(value), style=style)


for _kind in (str, QuotedString, values.Timestamp, values.Binary):
    _Dumper.add_representer(_kind, _represent)
