from __future__ import annotations

from openpai_tasks.protocol import exit_codes

TYPES = {
    "USER_SUCCESS",
    "USER_STOP",
    "USER_FAILURE",
    "PLATFORM_FAILURE",
    "RESOURCE_ALLOCATION_TIMEOUT",
    "UNKNOWN_FAILURE",
}
REACTIONS = {
    exit_codes.ALWAYS_RETRY,
    exit_codes.ALWAYS_BACKOFF_RETRY,
    exit_codes.RETRY_TO_MAX,
    exit_codes.NEVER_RETRY,
}
KNOWN = [0, 128, 130, 131, 132, 134, 135, 136, 137, 139, 141, 143, *range(220, 227), *range(228, 236)]
KNOWN += [*range(249, 257), -100, -101, -110, -111, -120, -200, -210, -220, -230, -300, -310]
KNOWN += [*range(-1006, -999), -1100, *range(-1205, -1199), -1300, -8000]


def test_each_known_exit_code_has_its_own_record():
    specs = {code: exit_codes.exit_spec(code) for code in KNOWN}
    assert len(specs) == len(KNOWN) == len({spec["phrase"] for spec in specs.values()})
    assert [code for code, spec in specs.items() if spec["code"] != code] == []
    assert {spec["type"] for spec in specs.values()} <= TYPES
    assert {spec["reaction"] for spec in specs.values()} <= REACTIONS
    assert [code for code, spec in specs.items() if "reason" not in spec] == [0]
    assert [code for code, spec in specs.items() if not spec["repro"]] == [250]  # the specification has none


def test_unknown_exit_code_gets_the_generic_record_for_its_sign():
    assert exit_codes.exit_spec(77)["phrase"] == "PAIRuntimeExitAbnormally"
    assert exit_codes.exit_spec(-77)["phrase"] == "ContainerUndefinedNegativeExitCode"
    assert exit_codes.exit_spec(-77)["code"] == -77


def test_exit_code_of_a_command_maps_to_a_cluster_exit_code():
    codes = {0: 0, 1: 255, 2: 255, 127: 220, 128: 255, 133: 255, 137: 137, 255: 255}
    assert {code: exit_codes.from_user_code(code) for code in codes} == codes


def test_exit_code_determines_the_retry_reaction():
    reactions = {0: "NEVER_RETRY", 255: "RETRY_TO_MAX", 137: "ALWAYS_RETRY", 251: "ALWAYS_BACKOFF_RETRY"}
    reactions[220] = "NEVER_RETRY"
    assert {code: exit_codes.reaction(code) for code in reactions} == reactions
