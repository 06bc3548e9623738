"""Values to HTML: templates that escape everything, and the filters that they use."""

from __future__ import annotations

import functools
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from openpai_tasks import render as text
from openpai_tasks.portal.static_files import address
from openpai_tasks.text.plain import one_line

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

UNITS = ((86400 * 365, "year"), (86400 * 30, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))


def render(template: str, **values: Any) -> str:
    """Fill a template; half characters, which servers can send in JSON, are replaced."""
    return environment().get_template(template).render(values).encode("utf-8", "replace").decode()


@functools.cache
def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("openpai_tasks.portal"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "iso": iso,
        "when": lambda value: "" if value is None else text.when(value),
        "duration": lambda value: "" if value is None else text.duration(value),
        "size": lambda value: "" if value is None else text.size(value),
        "code": with_code,
        "line": lambda value: one_line(str(value)),
    }
    made.tests["utf8"] = is_utf8
    made.globals |= {"url": url, "static": address}
    return made


def url(*words: str, **query: object) -> str:
    """Return the address of a page: each word is one segment of the path; lists repeat a name."""
    path = "/" + "/".join(quote(word, safe="~", errors="replace") for word in words)
    found = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(found, doseq=True, errors='replace')}" if found else path


def ago(milliseconds: int | None) -> str:
    """Return how long ago a moment was, in its largest unit."""
    if milliseconds is None:
        return ""
    seconds = time.time() - milliseconds / 1000
    for size, unit in UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def is_utf8(text: str) -> bool:
    """Whether a name can stand in an address: names of files may be any bytes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def with_code(value: object) -> Markup:
    """Return a text in which words between backticks are code."""
    from markupsafe import Markup

    parts = str(value).split("`")
    if len(parts) % 2 == 0:
        return Markup("{}").format(value)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(parts))


def iso(milliseconds: int | None) -> str:
    """Return a moment as scripts and screen readers take it."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(timespec="seconds")
