from __future__ import annotations

import pytest

from openpai_tasks.server.scheduling.completion import is_platform_failure, may_retry, retry_delay
from openpai_tasks.server.scheduling.task_end import describe


@pytest.mark.parametrize(
    ("code", "tries", "allowed", "again"),
    [
        (255, 0, 1, True),
        (255, 1, 1, False),
        (137, 0, 0, False),  # transient, but no retry is allowed
        (137, 0, 1, True),
        (220, 0, 9, False),  # permanent
        (220, 9, -1, True),  # without limit
        (0, 0, 9, False),
        (0, 0, -1, False),
        (-210, 0, -1, False),
        (-220, 0, 9, False),
    ],
)
def test_failures_are_retried_as_the_user_allows(code: int, tries: int, allowed: int, again: bool) -> None:
    assert may_retry(code, tries, allowed) is again


def test_first_retries_are_immediate_and_later_ones_back_off() -> None:
    assert [retry_delay(tries) for tries in (0, 2, 3, 4, 99)] == [0, 0, 1000, 2000, 60_000]


def test_signals_are_described_by_name() -> None:
    assert describe(0) == "succeeded"
    assert describe(3) == "exited with code 3"
    assert describe(139) == "was ended by SIGSEGV (exit code 139)"
    assert describe(255) == "exited with code 255"


def test_only_platform_failures_are_blamed_on_the_platform() -> None:
    assert is_platform_failure(137) and is_platform_failure(-1001)
    assert not is_platform_failure(255) and not is_platform_failure(220)
