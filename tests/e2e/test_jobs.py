"""Jobs from the command line, on a real embedded cluster."""

import json
import os
import re
import shlex
import signal

import pytest
import yaml

from tests.server.workshop import until


def submit(shell, command, *flags):
    return shell.ok("job.sub", command, *flags, "-o", "json").json()[0]["name"]


def test_a_followed_job_shows_its_output_and_nothing_else_on_stdout(cluster):
    seen = "until grep -q {} ../logs/all; do sleep 0.05; done"
    command = f"echo one; {seen.format('one')}; echo two >&2; {seen.format('two')}; echo three"
    ran = cluster.ok("job.sub", command, "--follow")
    assert ran.out.splitlines() == ["one", "two", "three"]
    assert "submitted to local" in ran.err
    name = re.search(r"job (\S+) submitted", ran.err)[1]
    assert re.search(rf"\n✓ {name} succeeded in [\d.]+ s\n$", ran.err)


def test_the_last_line_of_a_followed_job_has_the_next_command(cluster):
    code = "from openpai_tasks import runtime; runtime.log_metric('loss', 1.0)"
    jobs = {"measured": f"python3 -c {shlex.quote(code)}", "written": "echo > $PAI_OUTPUT_DIR/a"}
    cluster.ok(*(word for name, line in jobs.items() for word in ("job.sub", line, "-j", name)))
    cluster.ok("job.wait", *jobs)  # a job that waits longer than usual is reported, too
    for name, task in (("measured", "metrics"), ("written", "outputs")):
        ran = cluster.ok("job.logs", name, "--follow")
        assert re.fullmatch(rf"✓ {name} succeeded in [\d.]+ s · inv job.{task} {name}\n", ran.err)
    ran = cluster.ok("job.logs", "written", "--follow", PYTHONIOENCODING="ascii")
    assert re.fullmatch(r"OK: written succeeded in [\d.]+ s - inv job.outputs written\n", ran.err)
    assert cluster.pai("-q", "job.logs", "written", "--follow").err == ""


@pytest.mark.parametrize("code", [1, 3, 42, 127, 200])
def test_following_ends_with_the_jobs_own_exit_code(cluster, code):
    ran = cluster.inv("job.sub", f"exit {code}", "--follow")
    assert ran.code == code
    assert " failed: " in ran.err.splitlines()[-1] and "Traceback" not in ran.err


def test_wait_ends_with_the_jobs_own_exit_code(cluster):
    good, bad = submit(cluster, "true"), submit(cluster, "exit 9")
    assert cluster.inv("job.wait", good).code == 0
    assert cluster.inv("job.wait", bad).code == 9


def test_wait_that_times_out_exits_124_and_the_job_continues(cluster):
    name = submit(cluster, "sleep 60")
    ran = cluster.inv("job.wait", name, "--timeout", "0.3")
    assert ran.code == 124
    assert "still" in ran.err and "continues" in ran.err
    assert cluster.ok("job.stop", name, "-o", "json").json()[0]["name"] == name
    assert cluster.inv("job.wait", name, "--timeout", "60").code == 143
    assert cluster.ok("job.stop", name).err == f"already ended: {name}\n"


def test_quoting_survives_in_all_three_spellings(cluster):
    expected = "a  b|$HOME|it's\n"
    argv = ["printf", "%s|%s|%s\\n", "a  b", "$HOME", "it's"]
    assert cluster.ok("job.sub", "--follow", "--", *argv).out == expected
    assert cluster.pai("sub", "--follow", *argv).out == expected
    assert cluster.ok("job.sub", r"""printf '%s|%s|%s\n' 'a  b' '$HOME' "it's" """, "-f").out == expected


def test_two_equal_submissions_on_one_line_are_two_jobs(cluster):
    before = len(cluster.ok("job.list", "-o", "json").json())
    cluster.ok("job.sub", "true", "job.sub", "true")
    assert len(cluster.ok("job.list", "-o", "json").json()) == before + 2


def test_sources_reach_the_job_without_ignored_files(cluster):
    project = cluster.project
    (project / "train.py").write_text("import lib.model; print(lib.model.NAME)\n")
    (project / "lib").mkdir()
    (project / "lib" / "model.py").write_text("NAME = 'from the sources'\n")
    (project / "lib" / "weights.bin").write_bytes(b"x" * 1000)
    (project / "lib" / ".paiignore").write_text("*.bin\n")
    ran = cluster.ok("job.sub", "python3 train.py; ls lib", "--sources", "train.py", "--sources", "lib", "-f")
    assert ran.out.startswith("from the sources\n")
    assert "weights.bin" not in ran.out
    assert "sources: 3 files" in ran.err


def test_job_changes_only_its_own_copy_of_the_sources(cluster):
    (cluster.project / "data.txt").write_text("before")
    cluster.ok("job.sub", "echo after > data.txt", "--sources", "data.txt", "--follow")
    assert (cluster.project / "data.txt").read_text() == "before"


def test_preview_shows_what_would_be_sent_and_sends_nothing(cluster):
    before = names(cluster)
    ran = cluster.ok("job.sub", "echo hi", "-j", "looked-at", "--gpu", "2", "--preview")
    document = yaml.safe_load(ran.out)
    assert document["name"] == "looked-at"
    assert document["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 2
    assert "nothing was sent" in ran.err
    assert names(cluster) == before


def names(cluster):
    """Return the names of all jobs; other fields change while jobs of earlier tests still run."""
    return [job["name"] for job in cluster.ok("job.list", "-o", "json").json()]


def test_output_of_preview_can_be_submitted_as_a_file(cluster):
    text = cluster.ok("job.sub", "echo from a file", "-j", "from-file", "--preview").out
    (cluster.project / "job.yaml").write_text(text)
    assert cluster.ok("job.validate", "job.yaml").code == 0
    assert cluster.ok("job.submit", "job.yaml", "--follow").out == "from a file\n"


def test_v1_file_is_converted_and_reported(cluster):
    role = {"name": "main", "command": "echo v1 $PAI_TASK_INDEX", "taskNumber": 1}
    (cluster.project / "v1.json").write_text(
        json.dumps({"jobName": "old-style", "image": "python:3", "taskRoles": [role]})
    )
    ran = cluster.ok("job.submit", "v1.json", "--follow")
    assert ran.out == "v1 0\n"
    assert "v1 job" in ran.err


TWO_WORKERS = ("--role", "worker:2", "--cpu", "1", "--mem", "64")


def test_the_output_of_several_tasks_is_labelled(cluster):
    command = "echo I am $PAI_TASK_INDEX of $PAI_TASK_ROLE_TASK_COUNT_worker"
    ran = cluster.ok("job.sub", command, "-j", "two-tasks", *TWO_WORKERS, "--follow")
    assert sorted(ran.out.splitlines()) == ["[worker-0] I am 0 of 2", "[worker-1] I am 1 of 2"]
    one = cluster.ok("job.logs", "two-tasks", "--role", "worker", "--index", "1")
    assert one.out == "I am 1 of 2\n"


def test_progress_bar_of_carriage_returns_is_shown_while_it_grows(cluster):
    gate = cluster.project / "gate-of-bars"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    command = rf"printf '\033[32m\r 10%%\r 50%%'; {wait}; printf '\r100%%'"
    submit(cluster, command, "-j", "bars", *TWO_WORKERS)
    with cluster.start("pai", "job.logs", "bars", "--follow") as following:
        shown = ""
        while not ("[worker-0]  50%" in shown and "[worker-1]  50%" in shown):
            shown += following.stdout.read(1)
        gate.touch()
        shown += following.stdout.read()
        assert following.wait() == 0
    assert "[worker-0] 100%" in shown and "[worker-1] 100%" in shown and shown.endswith("%\n")
    plain = cluster.ok("job.logs", "bars", "--plain", "--index", "0").out
    assert plain == "\n 10%\n 50%\n100%"
    assert cluster.ok("job.logs", "bars", "--index", "0").out.startswith("\x1b[32m")


def test_logs_choose_stream_and_lines(cluster):
    name = submit(cluster, "for i in 1 2 3; do echo out $i; done; echo err >&2")
    cluster.inv("job.wait", name)
    assert cluster.ok("job.logs", name, "--stderr").out == "err\n"
    assert cluster.ok("job.logs", name, "--stdout").out == "out 1\nout 2\nout 3\n"
    assert cluster.ok("job.logs", name, "--stdout", "-n", "1").out == "out 3\n"


def test_long_output_arrives_complete_and_fast(cluster):
    ran = cluster.ok("job.sub", "seq 1 1000000", "--follow", timeout=100)  # a quadratic reader takes minutes
    assert len(ran.out) == 6888896 and ran.out.endswith("\n1000000\n")


def test_status_config_and_list_support_three_formats(cluster):
    name = submit(cluster, "echo hi")
    cluster.inv("job.wait", name)
    assert cluster.ok("job.status", name, "-o", "json").json()["state"] == "SUCCEEDED"
    assert yaml.safe_load(cluster.ok("job.status", name, "-o", "yaml").out)["tasks"][0]["role"] == "main"
    table = cluster.ok("job.status", name).out
    assert "SUCCEEDED" in table and "main" in table
    assert yaml.safe_load(cluster.ok("job.config", name).out)["name"] == name
    assert name in {
        job["name"] for job in cluster.ok("job.list", "--state", "succeeded", "-o", "json").json()
    }


def test_stop_takes_names_and_patterns(cluster):
    names = [submit(cluster, "sleep 100", "-j", f"pattern-{i}") for i in range(3)]
    other = submit(cluster, "sleep 100", "-j", "other-one")
    stopped = cluster.ok("job.stop", "pattern-*", "-o", "json").json()
    assert {job["name"] for job in stopped} == set(names)
    for name in names:
        assert cluster.inv("job.wait", name, "--timeout", "60").code == 143
    assert cluster.ok("job.status", other, "-o", "json").json()["state"] in ("WAITING", "RUNNING")
    cluster.ok("job.stop", other)


def test_stop_of_an_unknown_name_stops_nothing(cluster):
    name = submit(cluster, "sleep 100")
    ran = cluster.inv("job.stop", name, "no-such-job")
    assert ran.code == 122 and "no-such-job" in ran.err
    assert cluster.ok("job.status", name, "-o", "json").json()["state"] in ("WAITING", "RUNNING")
    cluster.ok("job.stop", name)


def test_connect_prints_a_line_for_every_change_and_ends_with_the_jobs_code(cluster):
    name = submit(cluster, "sleep 0.5; exit 5")
    ran = cluster.inv("job.connect", name)
    assert ran.code == 5
    lines = ran.out.splitlines()
    assert lines[-1].startswith(f"{name} FAILED")
    assert len(lines) == len(set(lines))


def test_ctrl_c_while_following_leaves_the_job_running_and_says_so(cluster):
    process = cluster.start("inv", "job.sub", "echo started; sleep 60", "-j", "goes-on", "--follow")
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes-on continues" in err and "Traceback" not in err
    assert cluster.ok("job.status", "goes-on", "-o", "json").json()["state"] == "RUNNING"
    cluster.ok("job.stop", "goes-on")


def test_environment_of_a_job_matches_openpai(cluster):
    ran = cluster.ok(
        "job.sub",
        "echo $PAI_USER_NAME $PAI_JOB_NAME $PAI_CURRENT_TASK_ROLE_NAME $PAI_HOST_IP_main_0",
        "-j",
        "env",
        "-f",
    )
    user = cluster.ok("cluster.credentials", "local", "-o", "json").json()["user"]
    assert ran.out.split() == [user, f"{user}~env", "main", "127.0.0.1"]


def test_a_generated_job_carries_no_credentials(cluster):
    secrets = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    text = cluster.ok("job.sub", "true", "--sources", "tasks.py", "--preview").out
    assert secrets["password"] not in text and secrets["token"] not in text


def test_output_of_every_quick_attempt_is_shown(cluster):
    ran = cluster.inv("job.sub", "echo one try; exit 9", "--retries", "3", "--follow")
    assert (ran.code, ran.out) == (9, "one try\n" * 4)


def test_following_a_job_reports_its_retry(cluster):
    gate = cluster.project / "gate-again"
    second = f"[ ! -e {gate} ] || {{ echo began; exit 0; }}"
    waits = f"{second}; echo began; while [ ! -e {gate} ]; do sleep 0.1; done; exit 9"
    process = cluster.start("inv", "job.sub", waits, "-j", "again", "--retries", "1", "--follow")
    assert process.stdout.readline() == "began\n"
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "began\n")
    assert "job again failed and is retried: attempt 1 (--attempt 1, counted from 0)" in err.splitlines()


def test_following_a_job_reports_what_it_waits_for(cluster):
    much = ("--cpu", str(4 * (os.cpu_count() or 1)), "--memoryMB", "64")
    cluster.ok("job.sub", "sleep 600", "-j", "greedy-one", *much)
    process = cluster.start("inv", "job.sub", "echo begun", "-j", "queued-one", *much, "--follow")
    lines = iter(process.stderr.readline, "")
    reason = "job queued-one is WAITING: it asks for more than the cluster has"
    assert any(line.startswith(reason) for line in lines)  # it may be merely queued before that
    cluster.ok("job.stop", "greedy-one")
    out, rest = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "begun\n")
    starting = "job queued-one is WAITING: it starts"  # may be missed between two polls
    assert {line for line in rest.splitlines() if "WAITING" in line} <= {starting}


def test_a_waiting_job_has_a_place_and_can_be_moved_to_the_front(cluster):
    much = ("--cpu", str(4 * (os.cpu_count() or 1)), "--memoryMB", "64")
    cluster.ok("job.sub", "sleep 600", "-j", "greedy-two", *much)
    until(lambda: cluster.ok("job.status", "greedy-two", "-o", "json").json()["state"] == "RUNNING")
    cluster.ok("job.sub", "true {x}", "--sweep", "x=1,2", "-j", "turns", "--detach", *much)
    cluster.ok("job.sub", "true now", "-j", "turns-last", "--priority", "low", *much)
    assert "place 3 of 3 in virtual cluster default; 2 jobs of a higher priority first" in (
        cluster.ok("job.why", "turns-last").out
    )
    for _ in range(2):
        (moved,) = cluster.ok("job.move", "turns-last", "--first", "-o", "json").json()
        assert moved["place"] == "place 1 of 3 in virtual cluster default"
    assert "`inv job.move turns-last --first`" in cluster.inv("job.move", "turns-last").err
    refused = cluster.inv("job.move", "greedy-two", "--first")
    assert refused.code and "job greedy-two is RUNNING: only a job that waits" in refused.err
    assert "--priority needs low, normal or high, got 'urgent'" in (
        cluster.inv("job.sub", "true x", "--priority", "urgent").err
    )
    changed = cluster.ok("job.resubmit", "turns-last", "--priority", "high", "--preview", "-o", "yaml").out
    assert "jobPriorityClass: prod" in changed
    cluster.ok("job.stop", "-y", "greedy-two", "turns*")


def test_environment_of_cluster_start_reaches_no_job(shell):
    shell.ok("cluster.start", PRIVATE_WORD="do not tell")
    assert shell.ok("job.sub", "echo ${PRIVATE_WORD-nothing}", "--follow").out == "nothing\n"


def test_v1_names_are_adapted_and_reported(cluster):
    role = {"name": "my.role", "command": "echo $PAI_OUTPUT_DIR", "taskNumber": 1}
    document = {"jobName": "a.b", "image": "python:3", "outputDir": "/out/$PAI_JOB_NAME", "taskRoles": [role]}
    (cluster.project / "dots.json").write_text(json.dumps(document))
    ran = cluster.ok("job.submit", "dots.json", "--follow")
    assert ran.out == "/out/a_b\n"
    assert "jobName 'a.b' becomes 'a_b'" in ran.err and "'my.role' becomes 'my_role'" in ran.err


def test_resubmitted_job_keeps_its_tags(cluster):
    name = submit(cluster, "true", "--tag", "one", "--tag", "two")
    again = cluster.ok("job.resubmit", name, "-j", "tagged-again", "-o", "json").json()[0]
    assert sorted(again["tags"]) == ["one", "two"]


def test_tags_are_refused_before_submission_to_a_cluster_without_tags(shell):
    ran = shell.inv("job.sub", "true", "-j", "untagged", "--tag", "x", INVOKE_OPENPAI_LOCAL_PROFILE="0.18")
    assert ran.code == 120 and "tags" in ran.err
    assert "untagged" not in shell.ok("job.list", INVOKE_OPENPAI_LOCAL_PROFILE="0.18").out
