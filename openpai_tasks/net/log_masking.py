"""Keep the keys that some addresses carry out of messages and logs (`pai -v`, `pai -d`)."""

from __future__ import annotations

import logging
import re

REQUESTS = "openpai_tasks.requests"
"""The logger of requests that are sent."""
KEYS = r"(?i)([?&](?:token|sig|signature|delegation|x-amz-[a-z-]+)=)[^&\s\"]+"
LOGINS = r"(://)[^/@\s]+@"


_log = logging.getLogger(REQUESTS)


def log_request(method: str, url: str, size: int | None, status: int) -> None:
    """Log a request and the status of its answer, without keys and contents."""
    if _log.isEnabledFor(logging.DEBUG):
        sent = f" ({size} bytes)" if size else ""
        _log.debug("%s", mask_keys(f"{method} {url}{sent} -> {status}"))


def mask_keys(text: str) -> str:
    return re.sub(LOGINS, r"\1***@", re.sub(KEYS, r"\1***", text))
