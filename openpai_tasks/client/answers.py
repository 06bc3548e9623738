"""What servers and proxies say when they say no, in one line."""

from __future__ import annotations

import email.utils
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from openpai_tasks.client.redirects import origin
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound, TooManyRequests

if TYPE_CHECKING:
    import requests

KINDS: dict[int, type[ApiError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
A_WHILE = 2.0  # seconds to wait when a server does not say how long


def error(response: requests.Response, where: str) -> ApiError:
    """The error that the answer is."""
    status = response.status_code
    code, message = _said(response)
    if status == 429:
        wait = pause(response)
        words = f"{where} takes no more requests for now; try again in {wait:.0f} s"
        return TooManyRequests(words, status, code, wait)
    if response.is_redirect:
        message = (
            f"it sends this call on to {origin(led_to(response))}; `cluster.update` asks where it is now"
        )
    if status == 413:
        message += " (keep the document small: `--sources` takes files along)"
    if status == 401:
        message += " (`cluster.update ALIAS --login` renews a login)"
    return KINDS.get(status, ApiError)(f"{where} says no: {message}", status, code)


def led_to(response: requests.Response) -> str:
    """Where a redirect leads."""
    return urljoin(response.url, response.headers["Location"])


def pause(response: requests.Response) -> float:
    """The seconds that the server wants to be left alone: given as a number or as a date."""
    text = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return A_WHILE


def cause(err: BaseException) -> str:
    """The innermost reason of a chain of wrapped exceptions, as one line."""
    inner: BaseException | None = err
    while inner is not None:
        last, inner = inner, inner.__cause__ or inner.__context__
    return _line(getattr(last, "strerror", None) or last)


def _said(response: requests.Response) -> tuple[str, str]:
    """OpenPAI's code, which some of its answers lack, and message; or what a proxy in between wrote."""
    try:
        body = response.json()
    except ValueError:
        body = None
    body = body if isinstance(body, dict) else {}
    message = _line(_readable(body.get("message") or ""))
    return str(body.get("code") or ""), message or f"HTTP {response.status_code} {response.reason}"


def _readable(message: Any) -> Any:
    """A document's problems come as the JSON text of a list of objects: each place and its rule."""
    try:
        problems = json.loads(message)
        places = [f"{one.get('dataPath') or ''} {one['message']}".strip() for one in problems]
    except (TypeError, ValueError, KeyError, AttributeError):
        return message
    return "; ".join(places) or message


def _line(text: object) -> str:
    return " ".join(str(text).split())
