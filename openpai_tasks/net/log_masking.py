"""Keep the keys that some addresses carry out of messages and debug logs (`pai -d`)."""

from __future__ import annotations

import re

KEYS = r"(?i)([?&](?:token|sig|signature|delegation|x-amz-[a-z-]+)=)[^&\s\"]+"


def mask_keys(text: str) -> str:
    return re.sub(KEYS, r"\1***", text)
