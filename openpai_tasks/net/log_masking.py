"""Keep the keys that some addresses carry out of messages and logs (`pai -v`, `pai -d`)."""

from __future__ import annotations

import re

REQUESTS = "openpai_tasks.requests"
"""The logger of requests that are sent."""
KEYS = r"(?i)([?&](?:token|sig|signature|delegation|x-amz-[a-z-]+)=)[^&\s\"]+"
LOGINS = r"(://)[^/@\s]+@"


def mask_keys(text: str) -> str:
    return re.sub(LOGINS, r"\1***@", re.sub(KEYS, r"\1***", text))
