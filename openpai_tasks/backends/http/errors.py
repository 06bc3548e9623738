"""Convert error answers of servers and proxies to one-line errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from openpai_tasks.backends.http.redirects import origin
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound, TooManyRequests
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.registry import is_embedded
from openpai_tasks.text.hints import command

NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
KINDS: dict[int, type[ApiError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
A_WHILE = 2.0  # seconds to wait if the server does not say how long
LONGEST = 24 * 3600.0  # seconds; longer pauses are not waited for
SKEW = 60.0  # seconds by which a reset time may lie in the past
MESSAGES = ("message", "detail", "msg", "err", "non_field_errors")
"""Fields of error messages: of OpenPAI, and of the parts of PaddleCloud."""
LONGEST_LINE = 2000  # characters of a server's message


def answer_error(response: HttpAnswer, where: str, alias: str) -> ApiError:
    """Return the error for an error answer of the cluster with this alias."""
    status = response.status_code
    code, message = _message(response)
    if status == 429:
        wait = pause(response)
        when = "later" if wait in (0, LONGEST) else f"in {wait:.0f} s"
        words = f"{where} accepts no more requests for now; try again {when}"
        return TooManyRequests(words, status, code, wait)
    if response.is_redirect:
        target = origin(redirect_target(response))
        message = f"it redirects to {target}; `{command('cluster.update', alias)}` finds its new address"
    if status == 413:
        message += " (keep the document small: send files with `--sources`)"
    if status == 401 and not is_embedded(alias):
        message += f" (`{command('cluster.update', alias, '--login')}` renews the login)"
    return KINDS.get(status, ApiError)(f"{where} answered: {message}", status, code)


def redirect_target(response: HttpAnswer) -> str:
    """Return the target of a redirect; "" if it is not a valid URL."""
    try:
        return urljoin(response.url, response.headers["location"])
    except ValueError:
        return ""


def status_line(response: HttpAnswer) -> str:
    return one_line(f"HTTP {response.status_code} {response.reason}")


def pause(response: HttpAnswer) -> float:
    """Return the seconds that the server asks to wait, from 0 to LONGEST.

    ``X-RateLimit-Reset``, the end of the server's window, has priority over ``Retry-After``, in which OpenPAI
    sends the length of the whole window. The reset time has whole seconds only, so ``Retry-After`` is the
    upper limit.
    """
    headers = response.headers
    wait = _until_reset(headers.get("x-ratelimit-reset", ""), headers.get("date", ""))
    window = headers.get("retry-after", "")
    if wait is None:
        return _retry_after(window)
    return min(wait, float(window) or wait) if NUMBER.fullmatch(window) else wait


def _until_reset(text: str, date: str) -> float | None:
    """Return the seconds until a Unix time by the server's clock; None if the result is not plausible."""
    if not NUMBER.fullmatch(text):
        return None
    now = _seconds(date)
    wait = float(text) - (time.time() if now is None else now)
    return max(0.0, wait) if -SKEW <= wait <= LONGEST else None


def _retry_after(text: str) -> float:
    if NUMBER.fullmatch(text):
        return min(float(text), LONGEST)
    moment = _seconds(text)
    return A_WHILE if moment is None else min(max(0.0, moment - time.time()), LONGEST)


def _seconds(date: str) -> float | None:
    """Return the Unix time of an HTTP date."""
    import email.utils

    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def chain(err: BaseException) -> Iterator[BaseException]:
    """Yield an exception and the causes that a traceback would show, outermost first."""
    inner: BaseException | None = err
    while inner is not None:
        yield inner
        inner = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)


def cause(err: BaseException) -> str:
    """Return the innermost cause of an exception, in one line."""
    *_, last = chain(err)
    return one_line(getattr(last, "strerror", None) or last)


def parse_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in an answer; empty if it is anything else."""
    try:
        found = parse(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(response: HttpAnswer) -> tuple[str, str]:
    """Return the error code, if there is one, and the message of the server or a proxy."""
    body = parse_object(response.body)
    message = one_line(_readable(next(filter(None, map(body.get, MESSAGES)), "")))
    return str(body.get("code") or ""), message or status_line(response)


def _readable(message: Any) -> Any:
    """Flatten a list of messages, or the problems of a document, which OpenPAI sends as JSON text."""
    if isinstance(message, list):
        return "; ".join(map(str, message))
    try:
        problems = json.loads(message)
        places = [f"{one.get('dataPath') or ''} {one['message']}".strip() for one in problems]
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return message
    return "; ".join(places) or message


def one_line(text: object) -> str:
    """Return the text of a server as one line, without keys and not too long."""
    return mask_keys(" ".join(str(text)[: 2 * LONGEST_LINE].split()))[:LONGEST_LINE]
