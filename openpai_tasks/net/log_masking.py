"""Keep the keys that some addresses carry out of messages and debug logs (`pai -d`)."""

from __future__ import annotations

import logging
import re

KEYS = re.compile(r"(?i)([?&](?:token|sig|signature|delegation|x-amz-[a-z-]+)=)[^&\s\"]+")


def mask_keys(text: str) -> str:
    return KEYS.sub(r"\1***", text)


class _MaskKeys(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask_keys(record.getMessage()), ()
        return True


_MASK = _MaskKeys()


def mask_addresses() -> None:
    """Mask keys in what urllib3 logs; safe to call again."""
    logging.getLogger("urllib3.connectionpool").addFilter(_MASK)
