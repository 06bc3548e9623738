"""Commands whose output or messages cannot be written, of all programs."""

import contextlib
import os

import pytest

LINES = (
    "pai",
    "pai --version",
    "pai --list",
    "opai job list -o json",
    "inv --list",
    "inv --complete -- inv job",
    "fab --help job.sub",
    "fab job.list",
    "paddlecloud help",
)
PROGRAMS = ("pai --version", "opai job list -o json", "inv --list", "fab job.list", "paddlecloud help")
GONE = "exec 4> >(true); wait $!; "  # a pipe whose reader has ended
FULL = "error: cannot write the output: No space left on device\n"


@pytest.fixture(scope="module")
def project(cluster):
    (cluster.project / "fabfile.py").write_text("from tasks import ns\n")
    cluster.ok("job.sub", "true", "-j", "listed")
    return cluster


def bash(shell, script):
    return shell.run("bash", "-c", script)


@contextlib.contextmanager
def unread_pipe():
    """A pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as file:
        yield file


def printed_to(shell, line, file):
    """Return the exit code and the messages of a command that writes its output to the file."""
    process = shell.start(*line.split(), stdout=file.fileno())
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


@pytest.mark.parametrize("line", LINES)
def test_command_ends_quietly_when_nobody_reads_and_in_one_line_on_a_full_disk(project, line):
    with unread_pipe() as gone, open("/dev/full", "w") as full:
        assert printed_to(project, line, gone) == (141, "")
        assert printed_to(project, line, full) == (1 if line.startswith("paddlecloud") else 123, FULL)


@pytest.mark.parametrize("line", ["pai --version", "opai job list", "paddlecloud help"])
def test_command_in_a_removed_folder_ends_in_one_line(project, line):
    ran = bash(project, f"mkdir gone && cd gone && rmdir ../gone && {line}")
    assert ran.code == (1 if line.startswith("paddlecloud") else 123)
    assert ran.err.splitlines()[-1] == (
        "error: the current folder cannot be used: No such file or directory; change to another one"
    )
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("program", PROGRAMS)
def test_command_runs_without_stdin_and_stdout(project, program):
    ran = bash(project, f"{program} <&- >&-")
    assert (ran.code, ran.err) == (0, "")


def test_work_is_done_even_if_nobody_reads_about_it(project):
    ran = bash(project, f"{GONE}pai job.sub true -j unread --sweep x=1,2 >&4 2>&4")
    assert ran.code == 141
    ran = bash(project, f"{GONE}pai job.sub true -j unheard --follow 2>&4")
    assert (ran.code, ran.err) == (0, "")
    for number, streams in enumerate(("2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-")):
        assert bash(project, f"pai job.sub true -j closed-{number} --sources tasks.py {streams}").code == 0
    names = [f"closed-{number}" for number in range(3)]
    ended = project.ok("job.wait", "unread-x-1", "unread-x-2", "unheard", *names, "-o", "json").json()
    assert {job["state"] for job in ended} == {"SUCCEEDED"} and len(ended) == 6


def test_error_counts_more_than_output_that_nobody_reads(project):
    for output in (f"{GONE}%s >&4", "%s > /dev/full"):
        ran = bash(project, output % "pai job.status nosuch")
        assert (ran.code, ran.err.count("\n")) == (122, 1)
    assert bash(project, "pai job.status nosuch 2> /dev/full").code == 122


def test_output_of_a_projects_command_can_lose_its_reader(project):
    (project.project / "tasks.py").write_text(
        "from openpai_tasks.tasks import namespace, task\n"
        "@task\ndef count(c):\n    c.run('seq 100000')\nns = namespace(count)\n"
    )
    for program in ("inv", "pai", "fab"):
        ran = bash(project, f"{program} count | head -n 1; exit ${{PIPESTATUS[0]}}")
        assert (ran.code, ran.out, ran.err) == (141, "1\n", "")
