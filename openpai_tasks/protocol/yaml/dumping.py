"""Job documents to YAML: block style, keys in their order, texts of several lines as they are."""

from __future__ import annotations

import base64
import re
from typing import Any

import yaml

from openpai_tasks.protocol.yaml import values

_TAG = "tag:yaml.org,2002:"
_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")  # line breaks to some readers, text to others


class Quoted(str):
    """A string that is written in double quotes."""


class _Dumper(yaml.SafeDumper):
    """Block style without aliases; what another reader could take for a number is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(document: dict[str, Any]) -> str:
    """The document as text that reads back to the same values, here and on the real server."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**20
    )
    return text


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    return dumper.represent_scalar(_TAG + "str", value, style=_style(value))


def _style(value: str) -> str | None:
    """Literal for several lines, quotes where a reader could see something else in the text."""
    if _BREAKS.search(value):
        return '"'
    if "\n" in value:
        return "|"
    return "'" if value in ("<<", "=") or not isinstance(values.plain(value), str) else None


def _quoted(dumper: _Dumper, value: Quoted) -> yaml.Node:
    return dumper.represent_scalar(_TAG + "str", str(value), style='"')


def _timestamp(dumper: _Dumper, value: values.Timestamp) -> yaml.Node:
    return dumper.represent_scalar(_TAG + "timestamp", value.source)


def _binary(dumper: _Dumper, value: values.Binary) -> yaml.Node:
    return dumper.represent_scalar(_TAG + "binary", base64.b64encode(value.content).decode("ascii"))


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Quoted, _quoted)
_Dumper.add_representer(values.Timestamp, _timestamp)
_Dumper.add_representer(values.Binary, _binary)
