from __future__ import annotations

from openpai_tasks.protocol import states

STATES = {
    ("AttemptCreationPending", None): "WAITING",
    ("AttemptPreparing", None): "WAITING",
    ("AttemptRunning", None): "RUNNING",
    ("AttemptDeleting", -210): "STOPPING",
    ("AttemptDeleting", 1): "RUNNING",
    ("AttemptCompleted", -220): "STOPPING",
    ("AttemptCompleted", 255): "RUNNING",
    ("Completed", 0): "SUCCEEDED",
    ("Completed", -210): "STOPPED",
    ("Completed", 255): "FAILED",
    ("Whatever", 0): "UNKNOWN",
}


def test_sub_state_and_exit_code_determine_the_state():
    assert {given: states.state(*given) for given in STATES} == STATES


def test_role_names_and_job_ids_are_rewritten_like_on_the_real_server():
    assert states.role_key("PS_server-1") == "psserver1"
    assert states.debug_id("alice~job1") == "676d8cb383f3ce50f9d1603cd181eed5"
