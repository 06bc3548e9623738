"""Compare the embedded server's description with a swagger file of OpenPAI 1.8, and explain each deviation.

    python tests/compare_openapi.py rest-server/docs/swagger.yaml

Exits with 1 if a deviation has no reason in the table of openapi_reasons.py.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from openpai_tasks.server.api.openapi.build import describe, template
from tests.openapi_reasons import reason

METHODS = ("get", "put", "post", "delete", "patch")
Document = dict[str, Any]


def deviations(theirs: Document, ours: Document) -> Iterator[str]:
    """Yield each deviation as one line: the call, the place in it, and what differs."""
    known, own = _operations(theirs), _operations(ours)
    yield from (f"{call}: not here" for call in known if call not in own)
    yield from (f"{call}: only here" for call in own if call not in known)
    for call in known.keys() & own.keys():
        for line in _operation(theirs, known[call], ours, own[call]):
            yield f"{call} {line}"


def _operations(document: Document) -> dict[str, Document]:
    return {
        f"{method.upper()} {_path(path)}": operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    }


def _path(path: str) -> str:
    """Return a path without parameter names and trailing slash; USER~JOB is one parameter."""
    return template(path.replace("{user}~{job}", "{job}").rstrip("/"))


def _operation(theirs: Document, known: Document, ours: Document, own: Document) -> Iterator[str]:
    yield from _names("query", _query(theirs, known), _query(ours, own))
    yield from _names("body", {"a body"} & set(_body(known)), {"a body"} & set(_body(own)))
    answers, given = known["responses"], own["responses"]
    yield from _names("status", set(answers), set(given))
    for status in sorted(answers.keys() & given.keys()):
        if status >= "400":
            yield from _names(f"{status} code", _codes(theirs, answers[status]), _codes(ours, given[status]))
            continue
        before, after = _content(theirs, answers[status]), _content(ours, given[status])
        yield from _names(f"{status} type", set(before), set(after))
        for kind in sorted(before.keys() & after.keys()):
            yield from _schema(f"{status} $", theirs, before[kind], ours, after[kind])


def _names(what: str, known: set[str], own: set[str]) -> Iterator[str]:
    yield from (f"{what} {name}: not here" for name in sorted(known - own))
    yield from (f"{what} {name}: only here" for name in sorted(own - known))


def _query(document: Document, operation: Document) -> set[str]:
    parameters = (_resolved(document, one) for one in operation.get("parameters", ()))
    return {one["name"] for one in parameters if one["in"] == "query"}


def _body(operation: Document) -> list[str]:
    return ["a body"] if "requestBody" in operation else []


def _content(document: Document, response: Document) -> dict[str, Any]:
    content = _resolved(document, response).get("content", {})
    return {kind: value.get("schema", {}) for kind, value in content.items()}


def _codes(document: Document, response: Document) -> set[str]:
    """Return the codes of an error: from its examples, or from its schema if there are no examples."""
    found: set[str] = set()
    for content in _resolved(document, response).get("content", {}).values():
        examples = [one.get("value") or {} for one in content.get("examples", {}).values()]
        code = content.get("schema", {}).get("properties", {}).get("code", {})
        found |= {one["code"] for one in examples if "code" in one} or set(code.get("enum", ()))
    return found


def _resolved(document: Document, value: Document) -> Document:
    while "$ref" in value:
        place = value["$ref"]
        if not place.startswith("#/"):
            return {}
        value = document
        for step in place[2:].split("/"):
            value = value[step]
    return value


def _schema(where: str, theirs: Document, known: Document, ours: Document, own: Document) -> Iterator[str]:
    before, after = _shapes(theirs, known), _shapes(ours, own)
    if not before or not after:  # one side allows any type
        return
    if before.keys() != after.keys():
        yield f"{where}: {'|'.join(sorted(before))} there, {'|'.join(sorted(after))} here"
    for kind in sorted(before.keys() & after.keys()):
        yield from _same_type(where, theirs, before[kind], ours, after[kind])


def _same_type(where: str, theirs: Document, known: Document, ours: Document, own: Document) -> Iterator[str]:
    if "enum" in known and "enum" in own:
        yield from _names(f"{where} word", set(known["enum"]), set(own["enum"]))
    if "items" in known and "items" in own:
        yield from _schema(f"{where}[]", theirs, known["items"], ours, own["items"])
    before, after = known.get("properties", {}), own.get("properties", {})
    if before and after:
        yield from (f"{where}.{name}: not here" for name in before if name not in after)
        yield from (f"{where}.{name}: only here" for name in after if name not in before)
        for name in before.keys() & after.keys():
            if name in known.get("required", ()) and name not in own.get("required", ()):
                yield f"{where}.{name}: can be missing here"
            yield from _schema(f"{where}.{name}", theirs, before[name], ours, after[name])
    below, inside = known.get("additionalProperties"), own.get("additionalProperties")
    if isinstance(below, dict) and isinstance(inside, dict):
        yield from _schema(f"{where}.*", theirs, below, ours, inside)


def _shapes(document: Document, schema: Document) -> dict[str, Document]:
    """Return the possible schemas by type; alternative objects are merged."""
    schema = _resolved(document, schema)
    found: dict[str, Document] = {}
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        for kind, shape in _shapes(document, part).items():
            found[kind] = _merged(found[kind], shape) if kind in found else shape
    types = schema.get("type", [])
    for kind in [types] if isinstance(types, str) else types:
        found[kind] = schema
    if schema.get("nullable"):
        found["null"] = {}
    return found


def _merged(one: Document, other: Document) -> Document:
    properties = {**one.get("properties", {}), **other.get("properties", {})}
    required = [name for name in one.get("required", ()) if name in other.get("required", ())]
    return {**other, **one, "properties": properties, "required": required}


def main(path: str) -> int:
    theirs = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    found = sorted(deviations(theirs, describe("1.8")), key=lambda line: re.split(r"[ :]", line)[1:])
    counts: Counter[str] = Counter()
    for line in found:
        kind, why = reason(line)
        counts[kind] += 1
        print(f"{kind:11} {line}\n{'':11}   {why}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no deviation")
    return 1 if counts["UNEXPLAINED"] else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/compare_openapi.py SWAGGER_FILE")
    sys.exit(main(sys.argv[1]))
