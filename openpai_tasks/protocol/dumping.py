"""Job documents to YAML: block style, keys in their order, texts of several lines as they are."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from openpai_tasks.protocol import values

_TAG = "tag:yaml.org,2002:"


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
    if "\n" in value:
        return dumper.represent_scalar(_TAG + "str", value, style="|")
    quoted = not isinstance(values.plain(value), str) or value in ("<<", "=")
    return dumper.represent_scalar(_TAG + "str", value, style="'" if quoted else None)


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
