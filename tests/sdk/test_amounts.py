"""Numbers, sizes and times as people type them."""

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk import amounts
from openpai_tasks.text import durations

MB = 1 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (7, 7),
        ("7", 7),
        ("1.5 MiB", 3 << 19),
        ("2gb", 2 << 30),
        ("64KiB", 64 << 10),
        ("256M", 256 * MB),
        ("1.5g", 1536 * MB),
        (" 2 tb ", 2 << 40),
        ("9b", 9),
    ],
)
def test_size_is_converted_to_bytes(text, expected):
    assert amounts.size()(text) == expected


def test_size_with_very_many_digits_is_accepted():
    assert amounts.size()("9" * 400) > 1 << 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512", 512), (512, 512), ("512m", 512), ("16GiB", 16384), ("2048k", 2), ("0.5g", 512)],
)
def test_memory_is_converted_to_megabytes(text, expected):
    assert amounts.megabytes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1k", "100b", "many", "1 2", "1e9", "٣"])
def test_error_for_an_invalid_number_of_megabytes_names_the_flag(text):
    with pytest.raises(ConfigError, match="--memoryMB needs megabytes or a size such as 512m or 16g, got"):
        amounts.read("memoryMB", amounts.megabytes, text)


@pytest.mark.parametrize("text", ["", "-1", "x", "K", "1mm", "1e3", "٣", "2"])
def test_error_for_an_invalid_or_too_small_size_names_the_flag(text):
    with pytest.raises(ConfigError, match="--shard-size needs bytes or a size such as 256M or 1G, got"):
        amounts.read("shard_size", amounts.size(least=3), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1d", 86400), ("2H5", 7205)],
)
def test_duration_is_converted_to_seconds(text, expected):
    assert durations.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "1x", "m", "-5", "1m1h", "٣s"])
def test_error_for_an_invalid_duration_names_the_flag(text):
    with pytest.raises(ConfigError, match="--timeout must be a duration above 0, such as 90s, 1h30m or 30d"):
        amounts.read("timeout", durations.seconds, text)
