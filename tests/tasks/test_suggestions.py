"""A word that is not a task: what it means counts before its spelling, and nothing leads to a loss."""

import os
import pty

import pytest

from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework.contexts import Contexts
from openpai_tasks.tasks.framework.suggestions import SYNONYMS, closest_task, is_destructive
from openpai_tasks.tasks.pai.flat_names import CLASSIC

COLLECTIONS = namespace().collections
TASKS = Contexts(namespace()).names


def suggested(word, flat=CLASSIC):
    return closest_task(word, TASKS, flat, COLLECTIONS)


MEANT = [
    *((word, "job.stop") for word in ("cancel", "kill", "rm", "terminate", "delte", "remvoe", "stpo")),
    *((word, "job.stop") for word in ("job.delete", "job.rm", "job.kill", "delete-job", "jobs-kill")),
    ("tail", "job.logs --follow"),
    ("job.tail", "job.logs --follow"),
    ("job.run", "job.sub"),
    ("job.start", "job.sub"),
    ("login", "cluster.add"),
    ("cluster.login", "cluster.add"),
    ("list", "job.list"),
    ("lsit", "job.list"),
    ("jobs.lst", "job.list"),
    ("job.confi", "job.config"),  # `config` alone is a task, too
    ("jbo.stpo", "job.stop"),
    ("container.kill", "container.stop"),
    ("container.exec", "container.run"),
    ("cluster.rm", "cluster.delete"),
    ("cluster.kill", "cluster.stop"),
    ("storage.remvoe", "storage.remove"),
    ("storage.cpy", "storage.copy"),
    ("list-job", "job.list"),
    ("jobs", "job.list"),
    ("select-clusters", "cluster.select"),
    ("upload", "storage.copy"),
    ("shell", "container.ssh"),
    ("helpp", "--help"),
    ("whoami", "cluster.list"),
    ("nothere", ""),
]


def test_the_command_that_was_probably_meant_is_suggested():
    assert {word: suggested(word) for word, _ in MEANT} == dict(MEANT)


HARMLESS = [
    "job.top",
    "job.shop",
    "job.step",
    "job.clone",
    "job.move",
    "storage.move",
    "storage.clone",
    "storage.start",
    "storage.clear-cache",
    "container.step",
    "cluster.step",
    "cluster.dele",
    "move",
    "clone",
    "step",
    "shop",
    "stats",
    "config.reset",
    "untrusted",
]


def test_a_destructive_command_is_never_suggested_for_a_harmless_word():
    assert [word for word in HARMLESS if is_destructive(suggested(word))] == []


@pytest.mark.parametrize("collection", [name for name in COLLECTIONS])
def test_only_tasks_of_the_collection_are_suggested_inside_it(collection):
    found = {suggested(f"{collection}.{word}") for word in (*SYNONYMS, *CLASSIC)}
    assert all(name.startswith(f"{collection}.") for name in found if name)


def test_no_synonym_of_a_harmless_word_is_destructive():
    harmless = [word for word in SYNONYMS if not is_destructive(word)]
    assert len(harmless) > 50
    assert [word for word in harmless if is_destructive(suggested(word, ()))] == []


@pytest.mark.parametrize("flag, is_slip", [("--depth", False), ("--deep", False), ("--dleete", True)])
def test_a_destructive_flag_is_suggested_only_for_a_slip(project, flag, is_slip):
    ran = project.pai("storage.sync", "a", "b", flag)
    assert ran.code == 120 and ("did you mean --delete?" in ran.err) is is_slip


def test_inv_suggests_what_only_pai_has_as_flat_commands(project):
    project.write("tasks.py", "from openpai_tasks.tasks import namespace\nns = namespace()\n")
    for word, command in {"init": "config.init", "doctor": "config.doctor", "help": "--help"}.items():
        assert f"did you mean {command}?" in project.inv(word).err


def test_an_unknown_word_after_a_collection_is_read_in_it(project):
    ran = project.pai("job", "delete", "t1")
    assert (ran.code, ran.err) == (120, "error: no task named 'job.delete', did you mean job.stop?\n")
    ran = project.pai("job.zzzz")
    assert ran.err == "error: no task named 'job.zzzz' (`pai --list job` shows its tasks)\n"


@pytest.mark.parametrize("name", ["delete", "remove"])
def test_flat_removal_of_a_local_file_needs_yes_without_a_terminal(project, name):
    project.write("t1", "data")
    ran = project.pai(name, "t1")
    assert ran.code == 120 and "--yes removes it (`pai job.stop t1` stops a job)" in ran.err
    assert (project.folder / "t1").read_text() == "data"
    assert project.pai(name, "t1", "--yes").code == 0
    assert not (project.folder / "t1").exists()


def test_storage_remove_removes_a_named_file_without_asking(project):
    project.write("t1", "data")
    assert project.pai("storage.remove", "t1").code == 0
    assert not (project.folder / "t1").exists()


def answered(shell, keys, *words):
    """Run `pai` on a terminal on which the keys are typed ahead; return the exit code and the messages."""
    ours, theirs = pty.openpty()
    os.write(ours, keys)
    with shell.start("pai", *words, stdin=theirs) as process:
        _, messages = process.communicate(timeout=100)
    os.close(ours)
    os.close(theirs)
    return process.returncode, messages


@pytest.mark.parametrize("line", ["delete t1", "remove t1"])
def test_flat_removal_asks_on_a_terminal(shell, line):
    (shell.project / "t1").write_text("data")
    code, shown = answered(shell, b"n\n", *line.split())
    assert (code, shown) == (120, f"remove {shell.project}/t1? [y/N] error: nothing was removed\n")
    assert (shell.project / "t1").exists()


def test_flat_removal_goes_on_after_yes(shell):
    (shell.project / "t1").write_text("data")
    assert answered(shell, b"y\n", "delete", "t1")[0] == 0
    assert not (shell.project / "t1").exists()


def test_deleting_a_cluster_by_its_flat_name_asks_on_a_terminal(shell):
    assert shell.pai("cluster.add", "lab", "http://127.0.0.1:1", "--user", "ann", "--no-check").code == 0
    code, shown = answered(shell, b"n\n", "delete-cluster", "lab")
    assert code == 120 and "remove lab and the login from the list of known clusters? [y/N]" in shown
    assert "lab" in shell.pai("list-clusters").out
    assert shell.pai("delete-cluster", "lab").code == 0  # without a terminal, as in a script
    assert "lab" not in shell.pai("list-clusters").out
