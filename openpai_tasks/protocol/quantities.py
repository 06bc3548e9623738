"""Quantities of Kubernetes: ``8``, ``7900m``, ``16384Ki``, ``1e3``."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?")
_POWERS = dict(zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True))


def parse_quantity(text: str) -> int | float | None:
    """Return the number; None if the text is not a quantity."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        return None
    number, binary, decimal, exponent = match.groups()
    if binary:
        factor = 1024.0 ** ("KMGTPE".index(binary[0]) + 1)
    else:
        factor = 10.0 ** (_POWERS[decimal] if decimal else int(exponent or 0))
    found = float(number) * factor
    return int(found) if found.is_integer() else found
