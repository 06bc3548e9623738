"""Restore secrets in a document that was stored without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from openpai_tasks.protocol import fields
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.masking import STARS


class Ask(Protocol):
    """Returns the value of a secret; only a name that the user has chosen is read from the environment."""

    def __call__(self, name: str, is_chosen: bool) -> str: ...


_USED = re.compile(r"<%\s*\$secrets((?:\.[A-Za-z0-9_-]+|\[\d+\])+)\s*%>")


def unmask(document: dict[str, Any], known: Iterable[str], ask: Callable[[str], str]) -> dict[str, Any]:
    """Ask for each secret that the document uses, and put it in."""
    result = _with_passwords(document, lambda item: ask(_password_name(item)))
    if document.get("secrets") != STARS:
        return result
    values = {name: ask(name) for name in secret_names(document, known)}
    secrets: dict[str, Any] = {}
    for name, value in values.items():
        result, kept = _update_export(result, name, value)
        _put(secrets, name.split("."), kept)
    return {**result, "secrets": secrets}


def restore_passwords(document: dict[str, Any], known: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """Put back masked registry passwords that the prerequisites of the same name in ``known`` have."""

    def password(item: dict[str, Any]) -> str:
        auth = known.get(item.get("name"), {}).get("auth")
        return str(auth.get("password") or STARS) if isinstance(auth, dict) else STARS

    return _with_passwords(document, password)


def asked_secrets(document: dict[str, Any], known: Iterable[str] = ()) -> list[str]:
    """Return the names of the secrets that ``unmask`` would ask for."""
    items = fields.rows(document.get("prerequisites"))
    passwords = [_password_name(item) for item in items if _is_masked(item)]
    return [*passwords, *(secret_names(document, known) if document.get("secrets") == STARS else ())]


def secret_names(document: dict[str, Any], known: Iterable[str]) -> list[str]:
    """Return the secrets that a document uses, with dots between levels, and other known ones."""
    used = dict.fromkeys(
        match[1].replace("[", ".").replace("]", "").strip(".")
        for text in _texts({**document, "secrets": None})
        for match in _USED.finditer(text)
    )
    unused = [name for name in known if not any(one.split(".")[0] == name for one in used)]
    return [*used, *unused]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _update_export(document: dict[str, Any], name: str, value: str) -> tuple[dict[str, Any], str]:
    """Rewrite our export of the secret for this value; return the document and the stored value."""
    if not name.isidentifier():
        return document, value
    ours = {scripts.step(scripts.export_secret(name, sample)) for sample in ("plain", "'")}
    if not ours & set(_texts(document)):
        return document, value
    fresh = scripts.step(scripts.export_secret(name, value))
    return _replace(document, ours, fresh), scripts.secret_value(value)


def _replace(value: Any, old: set[str], new: str) -> Any:
    if isinstance(value, dict):
        return {key: _replace(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace(item, old, new) for item in value]
    return new if isinstance(value, str) and value in old else value


def _put(place: dict[str, Any], parts: list[str], value: str) -> None:
    *above, last = parts
    for part in above:
        place = place.setdefault(part, {})
    place[last] = value


def _password_name(item: dict[str, Any]) -> str:
    return f"{item['name']}_password"


def _with_passwords(document: dict[str, Any], find: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Restore registry passwords that are masked; ``find`` returns that of a prerequisite."""
    found = document.get("prerequisites")
    if not isinstance(found, list):
        return document
    items = [
        {**item, "auth": {**item["auth"], "password": find(item)}} if _is_masked(item) else item
        for item in found
    ]
    return {**document, "prerequisites": items}


def _is_masked(item: Any) -> bool:
    auth = item.get("auth") if isinstance(item, dict) else None
    return isinstance(auth, dict) and auth.get("password") == STARS
