"""After a job: its diff, files, web page and diagnosis; whole commands on a real embedded cluster."""

import copy
import os
import re
import stat
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import PROJECT_TASKS, Shell
from tests.e2e.test_container import SECONDS, open_terminal
from tests.portal.conftest import Web
from tests.server.workshop import until
from tests.terminals import on_terminal


def submit(shell, command, *flags, **environment):
    return shell.ok("job.sub", command, *flags, "-o", "json", **environment).json()[0]["name"]


def run(shell, command, name, *flags):
    """Submit a job and wait for it in one command."""
    shell.inv("job.sub", command, "-j", name, "--follow", *flags)
    return name


def storage(shell):
    [folder] = (shell.home / "local" / "storage" / "home").iterdir()
    return folder


FAILURES = {
    "fails-plainly": ("exit 3", ["exit code 3"]),
    "fails-import": (
        "echo about to; python3 -c 'import nothing_such'",
        ["nothing_such", "--pip-installs", "about to"],
    ),
    "fails-command": ("no-such-command-here", ["no-such-command-here", "image"]),
    "fails-file": ("python3 lost.py", ["--sources"]),
    "fails-signal": ("kill -SEGV $$", ["139", "SIGSEGV"]),
    "fails-variable": ("echo $NOT_SET_ANYWHERE", ["set -u", "--env"]),
    "steers": (r"printf '\033[2J\033]0;title\007boo\n'; exit 1", ["boo"]),
}
COMMANDS = {
    **{name: command for name, (command, _) in FAILURES.items()},
    "succeeds": "true",
    "writer-1": 'cd "$PAI_OUTPUT_DIR"; echo 1 > a.txt; mkdir -p sub/deep; printf xyz > sub/deep/b.bin',
    "linker": 'cd "$PAI_OUTPUT_DIR"; ln -s /etc/hostname out; echo in > real; ln -s real inside; mkfifo pipe',
    "nested": 'mkdir "$PAI_OUTPUT_DIR/sub"; echo > "$PAI_OUTPUT_DIR/sub/f"',
    "away": 'rmdir "$PAI_OUTPUT_DIR"; ln -s / "$PAI_OUTPUT_DIR"',
}


@pytest.fixture(scope="module")
def finished(cluster):
    """The cluster with finished jobs; one command submits them all, as starting a command is slow."""
    words = [("job.sub", command, "-j", name, "--memoryMB", "64") for name, command in COMMANDS.items()]
    cluster.ok(*(word for line in words for word in line))
    cluster.inv("job.wait", *COMMANDS)
    return cluster


@pytest.fixture
def other(cluster, tmp_path):
    """Another project of the same user."""
    (tmp_path / "tasks.py").write_text(PROJECT_TASKS)
    return Shell(tmp_path, cluster.home)


def test_error_names_an_unknown_job(cluster):
    for task in ("resubmit", "why"):
        ran = cluster.inv(f"job.{task}", "no-such-job")
        assert ran.code == 122 and "no-such-job" in ran.err, task


# Diff


def test_diff_shows_only_the_differences(cluster, twin):
    submit(cluster, "echo one", "-j", "diff-a")
    submit(cluster, "echo two", "-j", "diff-b", "--memoryMB", "128")
    lines = cluster.ok("job.diff", "diff-a", f"{twin}:diff-b").out.splitlines()
    assert lines[:2] == ["--- local:diff-a", "+++ twin:diff-b"]
    changed = {line.strip("-+ ") for line in lines[2:] if line[0] in "+-"}
    assert {"echo one", "echo two", "memoryMB: 1024", "memoryMB: 128"} <= changed
    assert not [line for line in changed if line.startswith("gpu")]
    same = cluster.ok("job.diff", "diff-a", "local:diff-a")
    assert same.out.strip() == "" and "are the same" in same.err
    assert cluster.ok("job.diff", "diff-a", "diff-a", "-o", "json").json()["same"] is True


def test_generated_shell_is_folded_in_differences_and_left_out_of_plans(cluster):
    (cluster.project / "folded.py").write_text("")
    flags = ("--sources", "folded.py", "--max-time", "1m")
    submit(cluster, "python3 folded.py 1", "-j", "fold-a", *flags)
    submit(cluster, "python3 folded.py 2", "-j", "fold-b", *flags, "--pip-installs", "x")
    folded = cluster.ok("job.diff", "fold-a", "fold-b").out
    assert (
        "python3 folded.py 2" in folded and "+      - '# openpai-tasks: python3 -m pip install x'" in folded
    )
    assert "pai_" not in folded and "pai_" in cluster.ok("job.diff", "fold-a", "fold-b", "--all").out
    assert "pai_" in cluster.ok("job.diff", "fold-a", "fold-b", "-o", "json").out
    words = [sys.executable, "-m", "invoke", "job.sub", "echo hi", "--sources", "folded.py", "--preview"]
    where = {"cwd": cluster.project, **cluster.environment}
    plan, whole = (on_terminal([*words, *more], 120, **where)[1] for more in ((), ("-o", "yaml")))
    assert "folded.py, " in plan and "nothing was sent" in plan and "pai_stop" not in plan
    assert "pai_stop" in whole and "pai_stop" in cluster.ok(*words[3:]).out
    assert cluster.ok(*words[3:], "-o", "json").json()["taskRoles"]["main"]["commands"] == ["echo hi"]
    assert re.search(r"^COMMAND +echo hi$", cluster.ok(*words[3:], "-o", "table").out, re.MULTILINE)
    refused = cluster.inv(*words[3:], "-o", "csv")
    assert refused.code == 120 and "a preview is a table, yaml or json, not csv" in refused.err


# Outputs


def test_outputs_are_listed_and_downloaded(finished):
    rows = finished.ok("job.outputs", "writer-1", "-o", "json").json()
    assert [(row["name"], row["size"]) for row in rows] == [("a.txt", 2), ("sub/deep/b.bin", 3)]
    ran = finished.ok("job.outputs", "writer-1", "--to", "results/new")
    assert "a.txt" in ran.out and "2 files" in ran.err
    target = finished.project / "results" / "new"
    assert (target / "a.txt").read_text() == "1\n" and (target / "sub/deep/b.bin").read_text() == "xyz"
    assert not list(target.rglob(".pai-part-*"))
    for _ in range(2):
        inner = finished.ok("job.outputs", "writer-1", "--to", "results/")
        assert inner.err.endswith("copied to results/writer-1\n")
    assert {path.name for path in (finished.project / "results").iterdir()} == {"new", "writer-1"}


def test_cloned_job_writes_to_its_own_output_folder(cluster):
    run(cluster, 'echo "$PAI_JOB_NAME" > "$PAI_OUTPUT_DIR/name"', "own-a", "--workspace", "team")
    cluster.ok("job.resubmit", "own-a", "-j", "own-b", "--follow")
    for name in ("own-a", "own-b"):
        cluster.ok("job.outputs", name, "--to", f"out-{name}")
        assert (cluster.project / f"out-{name}" / "name").read_text().strip().endswith(f"~{name}")
    assert (storage(cluster) / "team" / "jobs" / "own-b" / "output" / "name").exists()


def test_links_cannot_escape_the_output_or_the_target_folder(finished):
    ran = finished.ok("job.outputs", "linker", "--to", "linked")
    assert "left out" in ran.err and ran.err.rstrip().splitlines()[0].endswith("out, pipe")
    target = finished.project / "linked"
    assert sorted(path.name for path in target.iterdir()) == ["inside", "real"]
    assert (target / "inside").read_text() == "in\n" and not (target / "inside").is_symlink()
    (target / "sub").symlink_to(finished.project)
    ran = finished.inv("job.outputs", "nested", "--to", "linked")
    assert ran.code == 123 and not (finished.project / "f").exists()
    ran = finished.inv("job.outputs", "away")
    assert ran.code == 123 and "link" in ran.err


def test_sources_come_back_and_are_compared(cluster):
    for name, text in (("first-code", "1"), ("second-code", "2")):
        (cluster.project / "coded.txt").write_text(text)
        cluster.ok("job.sub", "true", "--sources", "coded.txt", "-j", name)
    ran = cluster.ok("job.sources", "second-code", "--to", "sent", "-o", "json")
    assert ran.json() == [{"name": "coded.txt", "size": 1}]
    assert (cluster.project / "sent/coded.txt").read_text() == "2"
    refused = cluster.inv("job.sources", "first-code", "--to", "sent")
    assert refused.code and refused.err.endswith(
        "error: sent is not empty, and has other files: choose a new folder\n"
    )
    assert (
        "+++ local:second-code/coded.txt" in cluster.ok("job.diff", "first-code", "second-code", "--code").out
    )
    same = cluster.ok("job.diff", "first-code", "first-code", "--code")
    assert same.err == "local:first-code and local:first-code have the same sources\n"
    cluster.ok("storage.remove", "pai://local/home/sources", "--recursive", "--yes")
    gone = cluster.inv("job.sources", "first-code")
    assert gone.code and "the sources of job 'first-code' are gone: pai://local/home/sources/" in gone.err


def test_job_without_output_is_reported(finished):
    assert finished.ok("job.outputs", "succeeds", "-o", "json").json() == []
    ran = finished.inv("job.outputs", "succeeds", "--to", "nothing")
    assert ran.code == 122 and "has not written anything" in ran.err
    assert not (finished.project / "nothing").exists()


# Web page


def test_link_that_signs_in_is_no_argument_of_the_browser(finished):
    """Every user of the machine can read arguments: the browser gets a private page that leads there."""
    browser, opened = finished.project / "shows", finished.project / "shown"
    browser.write_text('#!/bin/sh\nprintf "%s" "$*" >part; mv part shown\n')
    browser.chmod(0o755)
    shell = copy.copy(finished)
    shell.environment = {**finished.environment, "BROWSER": f"{browser} %s", "DISPLAY": ":99"}
    for command in (["cluster.portal"], ["job.open", "succeeds"]):
        with open_terminal(shell, "inv", *command) as terminal:
            assert terminal.process.wait(SECONDS) == 0
        until(opened.exists)
        page = Path(unquote(urlsplit(opened.read_text()).path))
        assert page.parent == finished.home / "browser" and stat.S_IMODE(page.stat().st_mode) == 0o600
        [link] = re.findall(r'location.replace\("(.*)"\)', page.read_text())
        assert "/open/" in link and "<h1>" in Web().get(link, timeout=60).text
        opened.unlink()


def test_open_prints_the_page_and_opens_it(finished, twin):
    name, cluster = "succeeds", finished
    local = cluster.ok("job.open", name).out.strip()
    page = Web().get(local, timeout=60)
    assert re.search(r"/c/local/jobs/[\w-]+~succeeds$", page.url) and "<h1>succeeds</h1>" in page.text
    browser = cluster.project / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s" "$1" > opened\n')
    browser.chmod(0o755)
    shown = cluster.ok("job.open", name, "-a", twin, "--no-browser", BROWSER=str(browser)).out
    assert not (cluster.project / "opened").exists()
    cluster.ok("job.open", name, "-a", twin, BROWSER=str(browser))
    deadline = time.monotonic() + 60
    opened = cluster.project / "opened"
    while not (opened.exists() and opened.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert opened.read_text() == shown.strip()
    assert re.search(r"/job-detail\.html\?username=[\w-]+&jobName=succeeds$", shown.strip())
    through = Web().get(shown.strip(), headers={"accept": "text/html"}, timeout=60)
    assert "/sign-in?" in through.url and "job-detail" in through.url
    assert cluster.pai("cluster.portal", "--stop").code == 0


# Diagnosis


@pytest.mark.parametrize("name", FAILURES)
def test_why_explains_a_failure(finished, name):
    output = finished.ok("job.why", name).out
    assert output.startswith(f"{name} failed: ")
    for word in (*FAILURES[name][1], "what to do:", f"job.resubmit {name}"):
        assert word in output, (word, output)
    assert "\x1b" not in output and "\x07" not in output  # output cannot control the terminal


def test_why_explains_waiting_running_and_stopped_jobs(cluster):
    cpus = str(4 * (os.cpu_count() or 1))
    first = submit(cluster, "sleep 600", "-j", "greedy", "--cpu", cpus, "--memoryMB", "64")
    second = submit(cluster, "sleep 600", "-j", "patient", "--cpu", cpus, "--memoryMB", "64")
    until(lambda: cluster.ok("job.why", first).out.startswith("greedy is RUNNING: it runs"))
    deadline = time.monotonic() + 60
    while "more than" not in (waiting := cluster.ok("job.why", second, "-o", "json").json())["why"]:
        assert time.monotonic() < deadline, waiting  # the scheduler has not looked at it yet
    assert waiting["state"] == "WAITING" and "more than the cluster has" in waiting["why"]
    assert any(f"{cpus} CPUs" in fact for fact in waiting["facts"])
    assert waiting["advice"]
    cluster.ok("job.stop", first, second)
    cluster.inv("job.wait", first, "--timeout", "60")
    assert "stopped on request" in cluster.ok("job.why", first).out


def test_why_reports_a_success(finished):
    assert finished.ok("job.why", "succeeds").out.startswith("succeeds succeeded in ")


def test_page_commands_run_in_order(other):
    shell = other
    page = (Path(__file__).parents[2] / "docs" / "afterwards.md").read_text()
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```", page, re.S)
    for line in "".join(blocks).splitlines():
        ran = shell.run("sh", "-c", line)
        assert ran.code == 0 and "Traceback" not in ran.err, (line, ran)
    assert (shell.project / "results" / "accuracy.txt").read_text() == "0.97\n"
