"""The program finds its commands in both spellings, and refuses mistakes before anything is sent."""

import pytest

from openpai_tasks import __version__
from openpai_tasks.paddlecloud.program import PARAMETERS
from openpai_tasks.paddlecloud.verbs import EVERYWHERE, IGNORED, OPTIONS, VERBS


def test_help_lists_every_command_once(laptop):
    ran = laptop.paddlecloud("help")
    assert (ran.code, ran.err) == (0, "")
    rows = [line for line in ran.out.splitlines() if line.startswith("  ")]
    assert [row[2:15].strip() for row in rows] == [verb.name for verb in VERBS]
    assert laptop.paddlecloud("-help").out == laptop.paddlecloud("commands").out == ran.out


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_each_command_explains_its_options(laptop, verb):
    ran = laptop.paddlecloud("help", *verb.name.split())
    assert ran.code == 0 and f"usage: {verb.usage}" in ran.out
    assert all(f"  -{option.name}" in ran.out for option in (*verb.options, *EVERYWHERE))
    assert (
        laptop.paddlecloud(*verb.name.split(), "-h")
        == laptop.paddlecloud("--help", *verb.name.split())
        == ran
    )


def test_each_option_is_an_argument_of_its_task():
    from inspect import signature

    from openpai_tasks.tasks import paddle

    for verb in VERBS:
        known = signature(getattr(paddle, verb.task).body).parameters
        given = {PARAMETERS.get(option.name, option.name) for option in (*verb.options, EVERYWHERE[0])}
        words = {word.rstrip("?*") for word in verb.words} - {"source", "target"}
        assert given | words | {name for name, _ in verb.fixed} <= known.keys(), verb.name


def test_options_have_one_meaning_in_all_commands():
    """Options may stand before the command, so whether they take a value cannot depend on it."""
    kinds: dict[str, type] = {}
    for option in [option for verb in VERBS for option in verb.options] + [*OPTIONS, *IGNORED]:
        for name in filter(None, (option.name, option.short)):
            assert kinds.setdefault(name, option.kind) is option.kind, name


def test_the_version_is_ours(laptop):
    assert laptop.paddlecloud("version").out == f"{__version__}\n"


def test_no_command_shows_the_commands_as_an_error(laptop):
    ran = laptop.paddlecloud()
    assert ran.code == 2 and ran.out == "" and "submit" in ran.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("subnit pkg", "no command 'subnit', did you mean submit?"),
        ("pfs", "pfs: the commands are pfs cp, pfs ls, pfs rm, pfs mkdir"),
        ("get pods", "get pods: the commands are get jobs, get workers, get quota"),
        ("submit", "submit needs PACKAGE (usage: paddlecloud submit [options] PACKAGE)"),
        ("submit pkg other", "submit: unexpected word 'other'"),
        ("submit nothing -entry true", "the package 'nothing' cannot be submitted: no such folder"),
        ("submit pkg/train.py -entry true", "the package 'pkg/train.py' cannot be submitted: it is not"),
        ("submit pkg -t other.py", "-topology: no file 'other.py' in the package 'pkg'"),
        ("submit pkg -entry true -jobname a_b", "invalid job name 'a_b'"),
        ("submit pkg -entry true -m 10GB", "-memory needs a quantity"),
        ("submit pkg -entry true -c 0", "-cpu must be at least 1"),
        ("submit pkg -entry true -c two", "-cpu needs a whole number, got 'two'"),
        ("submit pkg -entry true -rm", "submit has no option -rm"),
        ("kill", "kill needs JOB"),
        ("kill ../x -rm", "invalid job name '../x'"),
        ("get workers", "name the job whose workers to list"),
        ("logs -n -1", "-n must be at least 0, got -1"),
        ("logs -f -w pod job", "-f follows all trainers: leave out -w"),
        ("cp a", "name the sources and, last, the target"),
        ("cp a b", "one side of a copy is on PFS"),
        ("cp /pfs/local/home/x /pfs/local/home/y", "one side of a copy is on PFS"),
        ("cp a /pfs/local/home/x -chunksize 2", "-chunksize is between 4 and 32768 KiB, got 2"),
        ("ls /tmp", "'/tmp' is not on PFS"),
        ("rm -r .", "'.' is not on PFS"),
        ("mkdir x", "'x' is not on PFS"),
        ("file get /pfs/local/home/x pkg/train.py", "file get does not replace pkg/train.py"),
    ],
)  # fmt: skip
def test_mistakes_end_with_2_before_anything_starts(laptop, line, message):
    ran = laptop.paddlecloud(*line.split())
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith(f"error: {message}") and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "line", ["registry -name a -password hunter2", "publish x", "get registry", "delete registry a"]
)
def test_commands_that_are_not_offered_say_what_to_do(laptop, line):
    ran = laptop.paddlecloud(*line.split())
    assert ran.code == 1 and ran.err.count("\n") == 1 and "hunter2" not in ran.err


def test_flags_of_the_go_client_for_its_logs_are_ignored(laptop):
    assert laptop.paddlecloud("-logtostderr", "-v=3", "--log_dir", "/tmp", "version").code == 0
