"""Kubernetes quantities: ``10Gi``, ``500m``, ``2``."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?")
_DECIMAL = dict(zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True))
MB = 1 << 20


def parse_quantity(text: str) -> float | None:
    """Return the number; None if the text is not a quantity."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        return None
    number, binary, decimal, exponent = match.groups()
    if binary:
        return float(number) * 1024.0 ** ("KMGTPE".index(binary[0]) + 1)
    power: int = _DECIMAL[decimal] if decimal else int(exponent or 0)
    return float(number) * float(10**power)
