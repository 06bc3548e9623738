"""Rank correlations of parameters and results."""

import pytest

from openpai_tasks import sdk


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([(1, 10), (2, 20), (3, 900)], 1),
        ([(1, 3), (2, 2), (3, -1)], -1),
        ([(1, 1), (1, 1), (2, 2), (2, 2)], 1),
        (
            [
                (106, 7),
                (100, 27),
                (86, 2),
                (101, 50),
                (99, 28),
                (103, 29),
                (97, 20),
                (113, 12),
                (112, 6),
                (110, 17),
            ],
            -29 / 165,
        ),
        ([(1, 1), (2, 2)], None),
        ([(1, 1), (1, 2), (1, 3)], None),
    ],
)
def test_ranks_are_compared_not_values(pairs, wanted):
    assert sdk.sweeps.rank_correlation(pairs) == (wanted if wanted is None else pytest.approx(wanted))
