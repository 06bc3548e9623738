"""Jobs on real terminals of 80 and 200 columns, by real processes: what is left on the screen."""

import os
import re
import signal
import sys

import pytest

from tests.forkserver import BIN
from tests.terminals import columns_of, on_terminal, screen

PAI = [str(BIN / "pai")]
SMALL = ("--cpu", "1", "--memoryMB", "128")
LONG = "train-resnet-50-with-a-long-name-1"
AGE, DATE = re.compile(r" (?:\d+[smh] ago|now) "), re.compile(r" 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d ")
WIDTHS = pytest.mark.parametrize("columns", [80, 200])


@pytest.fixture
def terminal(cluster, gate):
    """Run commands of the cluster's user on a terminal; the gate is open afterwards."""

    def run(*words, columns=80, lines=24, reactions=(), **environment):
        environment = {"OPENPAI_HOME": str(cluster.home), **environment}
        return on_terminal([*PAI, *words], columns, lines, cluster.project, reactions, **environment)

    return run


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    yield path
    path.touch()


def wait_for(gate):
    return f"while [ ! -e '{gate}' ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def jobs(cluster):
    """A job that succeeded, one with a long name, and one whose command exited with 3."""
    cluster.ok("job.sub", "true", "-j", "short", *SMALL, "-f")
    cluster.ok("job.sub", "true", "-j", LONG, *SMALL, "-f")
    assert cluster.inv("job.sub", "echo no; exit 3", "-j", "fails", *SMALL, "-f").code == 3
    return cluster


def fits(shown, columns, lines=24):
    found = screen(shown, columns, lines)
    assert max(map(columns_of, found)) <= columns
    return found


@WIDTHS
def test_list_has_a_line_for_each_job(jobs, terminal, columns):
    code, shown = terminal("job.list", columns=columns)
    header, *rows = fits(shown, columns)
    assert code == 0 and header.split() == ["NAME", "STATE", "SUBMITTED", "DURATION", "EXIT", "CODE"]
    [long] = [row for row in rows if row.startswith(LONG)]
    assert "SUCCEEDED" in long and AGE.search(long) and len(rows) == len({row.split()[0] for row in rows})
    [fails] = [row for row in rows if row.startswith("fails")]
    assert fails.split()[-1] == "3" and "\x1b[31mFAILED" in shown


def test_dates_are_shown_on_request_and_in_pipes(jobs, terminal):
    _, shown = terminal("job.list", "--absolute", columns=200)
    assert not AGE.search(shown) and all(DATE.search(line) for line in fits(shown, 200)[1:])
    piped = jobs.ok("job.list").out.splitlines()
    assert all(DATE.search(line) for line in piped[1:]) and {"RETRIES", "VIRTUAL"} <= set(piped[0].split())


def test_no_color_and_columns_are_honoured(jobs, terminal):
    _, shown = terminal("job.list", columns=200, COLUMNS="60", NO_COLOR="1")
    assert "\x1b" not in shown and max(map(columns_of, shown.replace("\r", "").split("\n"))) <= 60


@WIDTHS
def test_status_fits_and_has_both_exit_codes(jobs, terminal, columns):
    code, shown = terminal("job.status", "fails", columns=columns)
    lines = fits(shown, columns)
    assert code == 0 and lines[0].split()[-2:] == ["EXIT", "CODE"] and lines[1].split()[-1] == "3"
    assert "the platform's exit code: 255 (PAIRuntimeUnknownFailed): the command failed" in lines
    [header] = [line for line in lines if line.startswith("ROLE")]
    [task] = [line for line in lines if line.startswith("main")]
    assert task[header.index("EXIT CODE") :].split()[0] == "3"


@pytest.mark.parametrize("columns, asked", [(80, "300"), (200, "")])
def test_connect_leaves_one_table(jobs, terminal, gate, columns, asked):
    name = f"watched-{columns}{asked}"
    jobs.ok("job.sub", wait_for(gate), "-j", name, "--instances", "2", *SMALL)
    opens = [("RUNNING", lambda process: gate.touch())]
    code, shown = terminal(
        "job.connect", name[:-1] if asked else name, columns=columns, reactions=opens, COLUMNS=asked
    )
    lines = screen(shown, columns)
    assert code == 0 and [line.split()[0] for line in lines].count("NAME") == 1
    assert [line.split()[0] for line in lines].count("ROLE") == 1 and "RUNNING" not in "".join(lines)


@WIDTHS
def test_watched_list_is_redrawn_until_ctrl_c(jobs, terminal, gate, columns):
    jobs.ok("job.sub", wait_for(gate), "-j", f"seen-{columns}", *SMALL)
    begin = ("RUNNING", lambda process: gate.touch())
    end = (
        (f"seen-{columns}", lambda process: None),
        ("SUCCEEDED", lambda process: process.send_signal(signal.SIGINT)),
    )
    words = ("job.list", "--watch", "--keyword", f"seen-{columns}")
    code, shown = terminal(*words, columns=columns, reactions=[begin, *end])
    header, row = fits(shown, columns)
    assert code == 130 and header.startswith("NAME") and row.split()[:2] == [f"seen-{columns}", "SUCCEEDED"]


def test_watched_list_in_a_pipe_has_a_line_for_each_change(jobs, gate):
    jobs.ok("job.sub", wait_for(gate), "-j", "piped", *SMALL)
    words = ("job.list", "--watch", "--keyword", "piped")
    process = jobs.start("inv", *words, "--fields", "state,name,duration")
    lines = iter(process.stdout.readline, "")
    assert "RUNNING  piped\n" in lines
    gate.touch()
    assert next(lines) == "SUCCEEDED  piped\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 130
    process = jobs.start("inv", *words)
    assert process.stdout.readline().split() == ["piped", "SUCCEEDED", "default", "0", "0", "-"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("", "", 130)


@WIDTHS
def test_sweep_leaves_one_table_on_a_low_terminal(jobs, terminal, columns):
    words = ("job.sub", "exit {i}", "-j", f"wide-{columns}", "--sweep", "i=0..11", *SMALL)
    code, shown = terminal(*words, columns=columns, lines=10)
    rows = [line.split() for line in screen(shown, columns, 10)]
    assert code == 1 and [row[0] for row in rows].count("NAME") == 1
    rows = rows[: next(at for at, row in enumerate(rows) if row[0] == "error:")]
    codes = {row[0]: row[-1] for row in rows if row[0].startswith("wide-")}
    assert codes == {f"wide-{columns}-i-{number}": str(number) for number in range(12)}


def test_labels_of_tasks_and_jobs_are_coloured_on_a_terminal_only(jobs, terminal):
    for name in ("pair-a", "pair-b"):
        jobs.ok("job.sub", "echo from $PAI_TASK_INDEX", "-j", name, "--instances", "2", *SMALL, "-f")
    lines = [f"[pair-{job}/main-{task}] from {task}" for job in "ab" for task in "01"]
    assert sorted(jobs.ok("job.logs", "pair-*").out.splitlines()) == lines
    _, shown = terminal("job.logs", "pair-a", "pair-b")
    assert sorted(screen(shown, 80)) == lines and shown.count("\x1b[36m[pair-a/main-0]\x1b[0m") == 1
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in terminal("job.logs", "pair-a", **plain)[1]
    assert "\x1b" not in terminal("job.logs", "pair-a", "--plain")[1]


def test_followed_jobs_that_fail_end_with_the_reason_and_a_command(jobs, gate):
    ran = jobs.inv("job.logs", "fails", "--follow")
    reason = "task main-0 exited with code 3; `inv job.why fails` says what to do"
    assert (ran.code, ran.out, ran.err) == (3, "no\n", f"error: job 'fails' failed: {reason}\n")
    for number in "12":
        jobs.ok("job.sub", f"{wait_for(gate)}; echo end; exit {number}", "-j", f"both-{number}", *SMALL)
    process = jobs.start("inv", "job.logs", "both-*", "--follow")
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[both-1] end", "[both-2] end"] and process.returncode == 1
    assert "2 of 2 jobs did not succeed: both-1, both-2\n" in err and "`inv job.why both-1`" in err


def test_last_is_the_job_submitted_last_from_this_folder(jobs, tmp_path):
    jobs.ok("job.sub", "echo mine; exit 5", "-j", "mine", *SMALL)
    assert jobs.inv("job.wait", "@last").code == 5
    assert jobs.ok("job.logs", "@last").out == "mine\n"
    assert jobs.ok("job.status", "@last", "-o", "json").json()["name"] == "mine"
    assert jobs.ok("job.why", "@last").out.startswith("mine failed: ")
    ran = jobs.run(*PAI, "job.stop", "@last", "-o", "json")
    assert [row["name"] for row in ran.json()] == ["mine"]


def test_outputs_of_several_jobs_go_into_folders_of_their_own(jobs):
    for name in ("out-1", "out-2"):
        jobs.ok("job.sub", f'echo {name} > "$PAI_OUTPUT_DIR/name.txt"', "-j", name, *SMALL, "-f")
    rows = jobs.ok("job.outputs", "out-*", "--to", "all-outputs", "-o", "json").json()
    assert [(row["job"], row["name"]) for row in rows] == [("out-1", "name.txt"), ("out-2", "name.txt")]
    for name in ("out-1", "out-2"):
        assert (jobs.project / "all-outputs" / name / "name.txt").read_text() == f"{name}\n"


def states(shell, pattern):
    rows = shell.ok("job.list", "--keyword", pattern, "-o", "json", "--fields", "name,state").json()
    assert all(list(row) == ["name", "state"] for row in rows)
    return {row["name"]: row["state"] for row in rows}


def test_stopping_by_pattern_asks_on_a_terminal(jobs, terminal, gate):
    for name in ("halt-1", "halt-2"):
        jobs.ok("job.sub", wait_for(gate), "-j", name, *SMALL)
    question = "stop 2 jobs: halt-1, halt-2? [y/N] "
    code, shown = terminal("job.stop", "halt-*", reactions=[(question, "n\n")])
    assert code == 120 and "nothing was stopped" in shown
    assert "STOPP" not in "".join(states(jobs, "halt").values())
    code, shown = terminal("job.stop", "halt-*", reactions=[(question, "y\n")])
    assert code == 0 and set(states(jobs, "halt").values()) <= {"STOPPING", "STOPPED"}


def test_stopping_by_the_beginning_of_a_name_needs_consent(jobs, terminal, gate):
    jobs.ok("job.sub", wait_for(gate), "-j", "precious", *SMALL)
    ran = jobs.inv("job.stop", "prec")
    assert ran.code == 122 and "did you mean 'precious'? --yes stops it" in ran.err
    code, _ = terminal("job.stop", "prec", reactions=[("stop precious? [y/N] ", "n\n")])
    assert code == 120 and states(jobs, "precious")["precious"] in ("WAITING", "RUNNING")
    jobs.ok("job.stop", "prec", "--yes")
    assert jobs.inv("job.wait", "prec").code == 143


@pytest.mark.parametrize(
    "variables, sequence",
    [
        ({}, "\x1b]9;job fails: failed: task main-0 exited with code 3\x07"),
        ({"VTE_VERSION": "1"}, "\x1b]777;notify;job fails;failed: task main-0 exited with code 3\x07"),
        ({"TERM": "linux"}, ""),
    ],
)
def test_notification_of_the_end_by_the_terminal(jobs, terminal, tmp_path, variables, sequence):
    tools = f"{tmp_path}{os.pathsep}{os.path.dirname(sys.executable)}"
    code, shown = terminal("job.wait", "fails", "--notify", PATH=tools, **variables)
    assert code == 3 and shown.count("\x07") == (2 if sequence else 1) and f"{sequence}\x07" in shown


def test_notification_of_the_end_by_the_desktop(jobs, terminal, tmp_path):
    program = tmp_path / "notify-send"
    program.write_text(f"#!/bin/sh\nprintf '%s|' \"$@\" > {tmp_path}/sent\n")
    program.chmod(0o755)
    tools = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code, shown = terminal("job.logs", "short", "--follow", "--notify", PATH=tools)
    assert code == 0 and re.fullmatch("\x07\x1b\\[32m✓\x1b\\[0m short succeeded in [\\d.]+ s\r\n", shown)
    assert (tmp_path / "sent").read_text() == "--app-name=pai|--|job short|SUCCEEDED|"
    (tmp_path / "sent").unlink()
    ran = jobs.ok("job.wait", "short", "--notify", PATH=f"{tmp_path}{os.pathsep}{jobs.environment['PATH']}")
    assert "\x07" not in ran.out + ran.err and not (tmp_path / "sent").exists()


def test_list_shows_a_commands_exit_code_before_anyone_looked_at_the_job(jobs):
    jobs.ok("job.sub", "exit 9", "-j", "unseen", *SMALL)
    while states(jobs, "unseen")["unseen"] != "FAILED":
        pass  # only lists
    [row] = jobs.ok("job.list", "--keyword", "unseen", "-o", "json").json()
    assert (row["exit_code"], row["platform_exit_code"]) == (9, 255)
    assert "255" not in jobs.ok("job.list", "--keyword", "unseen").out
    assert jobs.inv("job.wait", "unseen").code == 9
    header, row = jobs.ok("job.list", "--keyword", "unseen").out.splitlines()
    assert row[header.index("EXIT CODE") :].split()[0] == "9"


def test_programs_read_the_exit_code_of_the_command_beside_that_of_the_platform(jobs):
    status = jobs.ok("job.status", "fails", "-o", "json").json()
    ends = [(one["exit_code"], one["platform_exit_code"]) for one in (status, *status["tasks"])]
    assert ends == [(3, 255)] * 2 and "user_exit_code" not in str(status)
    fields = ("--fields", "exit_code,platform_exit_code", "--keyword", "fails")
    assert jobs.ok("job.list", *fields, "-o", "csv").out == "exit_code,platform_exit_code\n3,255\n"
    jobs.ok("job.sub", "sleep 1000", "-j", "stopped", *SMALL)
    jobs.ok("job.stop", "stopped")
    [row] = jobs.inv("job.wait", "stopped", "-o", "json").json()
    assert (row["exit_code"], row["platform_exit_code"]) == (None, -210)


def test_fields_and_summary(jobs):
    rows = jobs.ok("job.list", "--fields", "state,name", "--keyword", "fails").out
    assert rows == "STATE   NAME\nFAILED  fails\n"
    ran = jobs.inv("job.list", "--fields", "nmae")
    assert ran.code == 120 and ran.err.count("\n") == 1 and "did you mean 'name'?" in ran.err
    [row] = jobs.ok("job.list", "--user", "all", "--summary", "-o", "json").json()
    assert row["jobs"] >= 3 and row["failed"] >= 1 and row["gpu_hours"] == 0.0
    ran = jobs.inv("job.list", "--watch", "-o", "json")
    assert ran.code == 120 and "--watch shows a table" in ran.err
