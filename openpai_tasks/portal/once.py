"""Actions that happen once, also if a browser sends their form twice."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future

from openpai_tasks.portal.request import PortalRequest

MOST = 1000
"""Answers that are remembered."""

_lock = threading.Lock()
_answers: dict[str, Future[str]] = {}


def once(request: PortalRequest, act: Callable[[], str]) -> str:
    """Do it, or return the answer of the same form of the same page; after an error it can be sent again."""
    sent = json.dumps([request.session.id, request.path, sorted(request.lists.items())])
    key = hashlib.sha256(sent.encode()).hexdigest()
    with _lock:
        known = _answers.get(key)
        if known is None:
            if len(_answers) >= MOST:
                del _answers[next(iter(_answers))]
            mine = _answers[key] = Future[str]()
    if known is not None:
        return known.result()
    try:
        mine.set_result(act())
    except BaseException as err:
        with _lock:
            _answers.pop(key, None)
        mine.set_exception(err)
    return mine.result()
