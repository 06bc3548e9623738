"""How results of a sweep depend on its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 3
"""The fewest jobs of which a correlation says something."""


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's rank correlation, from -1 to 1; None if one of the two does not vary."""
    if len(pairs) < LEAST:
        return None
    first, second = (_ranks([pair[at] for pair in pairs]) for at in (0, 1))
    middle = (len(pairs) + 1) / 2
    spread = math.prod(math.sqrt(sum((rank - middle) ** 2 for rank in ranks)) for ranks in (first, second))
    if not spread:
        return None
    return sum((one - middle) * (other - middle) for one, other in zip(first, second, strict=True)) / spread


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value in their order, from 1 on; equal values share the mean place."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values), 1):
        places.setdefault(value, []).append(place)
    means = {value: sum(found) / len(found) for value, found in places.items()}
    return [means[value] for value in values]
