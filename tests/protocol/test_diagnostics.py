"""How a job ended, from the exit fields that servers send."""

import json
import textwrap
import time

import pytest
import yaml

from openpai_tasks.protocol import diagnostics
from openpai_tasks.protocol.models import job_from_detail

STDERR = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3',
    "ImportError: no torch: [x] {y} #z",
]
REPORT = f"""\
exitCode: 255
originUserExitCode: 3
errorLogs:
  user: |
{textwrap.indent(chr(10).join(STDERR), " " * 4)}
  platform: |
    [ERROR] the user command failed
"""
MESSAGE = f"[PAI_RUNTIME_ERROR_START]\n{REPORT}\n[PAI_RUNTIME_ERROR_END]"
POD = {"containers": [{"name": "app", "reason": "Error", "message": MESSAGE, "code": 255}]}
DUMPS = {
    "block": f"PodPattern matched:\ncontainers:\n  - name: app\n    reason: Error\n    message: |-\n"
    f"{textwrap.indent(MESSAGE, ' ' * 6)}\n    code: 255\n",
    "quoted": f"PodPattern matched:\n{yaml.safe_dump(POD, default_style=chr(34), width=10_000)}",
    "json": f"PodPattern matched: {json.dumps(POD)}",
    "unmatched": f"Task failed: PodPattern unmatched:\n{yaml.safe_dump(POD)}",
    "runtime": f"matched:\n  containers: []\nruntime:\n{textwrap.indent(REPORT, '  ')}",
}
SPEC = {"phrase": "PAIRuntimeUnknownFailed", "reason": "it failed", "solution": ["Check the log", "Wait"]}


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_exit_code_and_stderr_lines_are_read_from_a_dump(dump):
    found = diagnostics.read({"appExitDiagnostics": dump, "appExitSpec": SPEC})
    assert (found.exit_code, list(found.user_log)) == (3, STDERR)
    assert found.platform_log == ("[ERROR] the user command failed",)
    assert (found.phrase, found.solutions) == ("PAIRuntimeUnknownFailed", ("Check the log", "Wait"))
    assert found.summary == f"exit code 3 (PAIRuntimeUnknownFailed): {STDERR[-1]}"


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_dump_that_is_cut_off_anywhere_is_still_read(dump):
    for end in range(len(dump)):
        found = diagnostics.read({"appExitDiagnostics": dump[:end], "appExitSpec": SPEC})
        assert "\n" not in found.summary and len(found.summary) <= diagnostics.LONGEST_SUMMARY
        if "originUserExitCode: 3\\n" in dump[:end] or "originUserExitCode: 3\n" in dump[:end]:
            assert found.exit_code == 3


def test_report_parsed_by_the_server_takes_precedence_over_the_dump():
    runtime = {
        "exitCode": 255,
        "originUserExitCode": 7,
        "errorLogs": {"user": "one\ntwo\n", "platform": None},
    }
    status = {"appExitDiagnostics": DUMPS["block"], "appExitMessages": {"runtime": runtime}}
    found = diagnostics.read(status)
    assert (found.exit_code, found.user_log, found.platform_log) == (7, ("one", "two"), ())
    assert found.summary == "exit code 7: two"


def test_plain_text_diagnostics_are_kept_unchanged():
    found = diagnostics.read({"appExitDiagnostics": "main-0 exited with code 3", "appExitSpec": SPEC})
    assert found.text == found.summary == "main-0 exited with code 3"
    trace = "Exception from container-launch:\n  at org.apache.hadoop.util.Shell\n"
    found = diagnostics.read({"appExitDiagnostics": trace})
    assert (found.text, found.summary) == (trace.strip(), "Exception from container-launch:")


def test_pod_without_a_report_is_summarized_by_its_reason():
    evicted = "PodPattern matched:\nreason: Evicted\nmessage: 'The node was low on resource: memory.'\n"
    found = diagnostics.read({"appExitDiagnostics": evicted})
    assert found.summary == "Evicted: The node was low on resource: memory."
    killed = "PodPattern matched:\ncontainers:\n  - name: app\n    reason: OOMKilled\n    code: 137\n"
    assert diagnostics.read({"appExitDiagnostics": killed}).summary == "OOMKilled"


def test_field_names_of_the_oldest_runtime_are_understood():
    runtime = {
        "exitcode": 255,
        "originalUserExitCode": "3",
        "reason": "user failed",
        "errorLogs": {"user": "x"},
    }
    status = {
        "appExitDiagnostics": "Exception from container-launch",
        "appExitMessages": {"runtime": runtime},
    }
    found = diagnostics.read(status)
    assert (found.exit_code, found.summary, found.user_log) == (3, "user failed", ("x",))


def test_trigger_message_is_the_summary_when_nothing_else_is_known():
    found = diagnostics.read({"appExitTriggerMessage": "FailedTaskCount 1 has reached MinFailedTaskCount 1"})
    assert found.summary == "FailedTaskCount 1 has reached MinFailedTaskCount 1"


def test_long_log_is_cut_to_its_last_lines_without_terminal_escapes():
    log = "".join(f"line {number}\n" for number in range(1000)) + "\x1b[31mred\x1b[0m\x07 " + "x" * 5000
    runtime = {"originUserExitCode": 1, "errorLogs": {"user": log}}
    found = diagnostics.read({"appExitMessages": {"runtime": runtime}})
    assert len(found.user_log) == diagnostics.MOST_LINES and found.user_log[0] == "line 981"
    assert found.user_log[-1].startswith("red  xxx") and len(found.user_log[-1]) == diagnostics.LONGEST_LINE
    assert len(found.summary) == diagnostics.LONGEST_SUMMARY


def _doubled(item):
    """YAML anchors that each refer twice to the anchor before."""
    return "matched:\na0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} {item.format(f'*a{n - 1}')}\n" for n in range(1, 60)
    )


@pytest.mark.parametrize(
    "text",
    [
        "matched: " + "[" * 500_000,
        "matched: " + "{a: " * 100_000,
        _doubled("[{0}, {0}]"),
        _doubled("{{<<: [{0}, {0}]}}"),
        "containers: &a [*a]",
        "matched: " + '"\\' * 100_000,
        "matched: " + "\\" * 32_000 + "x",
        "matched:\n" + "a: b\n" * 500_000,
        "containers:\n" + "? " * 100_000,
        "containers:\n- 1\n- [x]\n- {message: [1]}\n- message: '[PAI_RUNTIME_ERROR_START] ]['\n",
        "errorLogs:\n" + "\x00\x1b\ud800" * 1000,
        "originUserExitCode: " + "9" * 100_000,
    ],
    ids=lambda text: text[:20].strip(),
)
def test_hostile_dump_is_read_quickly_and_without_an_error(text):
    begin = time.process_time()
    found = diagnostics.read({"appExitDiagnostics": text})
    assert time.process_time() - begin < 10  # unbounded, these take minutes or all memory
    assert len(found.summary) <= diagnostics.LONGEST_SUMMARY
    assert sum(map(len, found.user_log)) <= diagnostics.MOST_LINES * diagnostics.LONGEST_LINE


def test_fields_of_any_type_are_accepted():
    for value in (None, 3, True, [], {}, [["x"]], {"runtime": [1]}, "text"):
        for field in ("appExitSpec", "appExitMessages", "appExitDiagnostics", "appExitTriggerMessage"):
            assert isinstance(diagnostics.read({field: value}).summary, str)
        for field in ("originUserExitCode", "errorLogs", "matchedUserLogString", "reason"):
            found = diagnostics.read({"appExitMessages": {"runtime": {field: value}}})
            assert found.exit_code in (None, 3)


# A job


def job(**status):
    standing = {"username": "ann", "state": "RUNNING", "executionType": "START", "subState": "AttemptRunning"}
    return job_from_detail({"jobStatus": {**standing, **status}, "taskRoles": {}}, "ann~train")


def test_job_state_and_exit_code_are_derived_from_the_status_fields():
    known = [
        ({}, "RUNNING", None),
        ({"appExitCode": 0}, "RUNNING", None),
        ({"subState": "AttemptCompleted", "appExitCode": 255, "retryDelayTime": 0}, "RETRYING", 255),
        ({"subState": "AttemptCompleted", "appExitCode": 0, "retryDelayTime": 0}, "RETRYING", None),
        ({"subState": "AttemptCompleted", "appExitCode": 255, "retryDelayTime": None}, "RETRYING", 255),
        ({"subState": "AttemptCompleted", "appExitCode": 0, "retryDelayTime": None}, "RUNNING", None),
        ({"subState": "AttemptCompleted", "state": "WAITING", "retryDelayTime": 60}, "RETRYING", None),
        ({"subState": "AttemptDeleting", "appExitCode": -210, "executionType": "STOP"}, "STOPPING", -210),
        ({"executionType": "STOP"}, "STOPPING", None),
        ({"state": "WAITING", "executionType": "STOP"}, "STOPPING", None),
        ({"state": "STOPPED", "executionType": "STOP", "appExitCode": -210}, "STOPPED", -210),
        ({"state": "SUCCEEDED", "subState": "Completed", "appExitCode": 0}, "SUCCEEDED", 0),
        ({"state": None}, "UNKNOWN", None),
    ]
    for status, state, code in known:
        found = job(**status)
        assert (found.state, found.platform_exit_code) == (state, code), status
