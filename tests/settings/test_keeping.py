"""Limits of finished jobs, as users write them."""

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.keeping import KeepLimits, parse_keep

DAY = 24 * 3600


def test_limits_of_any_kind_are_recognised_by_their_unit():
    limits = {
        "90d,10000,10GB": KeepLimits(90 * DAY, 10_000, 10 << 30),
        "10gb 1h30m": KeepLimits(seconds=5400, size=10 << 30),
        "0": KeepLimits(jobs=0),
        "500MB": KeepLimits(size=500 << 20),
        "all": KeepLimits(),
    }
    assert {text: parse_keep(text, "local.keep") for text in limits} == limits


def test_invalid_limits_are_refused_in_one_line():
    for text in ("", " , ", "often", "-1", "10GX", "1d,2d", "5,6", "1GB,2MB", "10 GB!", "٣"):
        with pytest.raises(ConfigError, match=r"^local\.keep") as caught:
            parse_keep(text, "local.keep")
        assert "\n" not in str(caught.value)
