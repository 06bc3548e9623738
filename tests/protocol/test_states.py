from __future__ import annotations

import pytest

from openpai_tasks.protocol import states


@pytest.mark.parametrize(
    ("sub_state", "code", "state", "attempt"),
    [
        ("AttemptCreationPending", None, "WAITING", "WAITING"),
        ("AttemptPreparing", None, "WAITING", "WAITING"),
        ("AttemptRunning", None, "RUNNING", "RUNNING"),
        ("AttemptDeleting", -210, "STOPPING", "STOPPING"),
        ("AttemptDeleting", 1, "RUNNING", "RUNNING"),
        ("AttemptCompleted", -220, "STOPPING", "STOPPED"),
        ("AttemptCompleted", 255, "RUNNING", "FAILED"),
        ("Completed", 0, "SUCCEEDED", "SUCCEEDED"),
        ("Completed", -210, "STOPPED", "STOPPED"),
        ("Completed", 255, "FAILED", "FAILED"),
        ("Whatever", 0, "UNKNOWN", "UNKNOWN"),
    ],
)
def test_a_sub_state_has_one_state(sub_state, code, state, attempt):
    assert states.state(sub_state, code) == state
    assert states.attempt_state(sub_state, code) == attempt


def test_names_are_rewritten_as_on_the_real_server():
    assert states.role_key("PS_server-1") == "psserver1"
    assert states.debug_id("alice~job1") == "676d8cb383f3ce50f9d1603cd181eed5"
