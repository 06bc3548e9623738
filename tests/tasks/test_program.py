"""`pai`: needs no tasks.py, honours one, knows the classic commands, completes without starting Python."""

import errno
import os
import re
import shlex
import shutil
import subprocess

import pytest

from openpai_tasks import __main__, compat
from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework import invoke_patches
from openpai_tasks.tasks.pai.flat_names import CLASSIC
from openpai_tasks.tasks.pai.help_pages import TOPICS
from openpai_tasks.tasks.program import PaiProgram, TasksLoader

RUN = """
@task(positional=["command"])
def sub(c, command=None, job_name=None, image=None, cluster_alias=None):
    print(repr(command), job_name, image, cluster_alias)


ns.add_collection(Collection("job", sub))
"""


def test_pai_alone_shows_the_everyday_commands_on_one_screen(project):
    ran = project.pai()
    lines = ran.out.splitlines()
    assert ran.code == 0 and 15 <= len(lines) <= 23 and max(map(len, lines)) < 80
    known = {*namespace().task_names, *CLASSIC, "help"}
    assert {name for name in re.findall(r"pai ([a-z]\S*)", ran.out)} <= known
    assert "config.trust" not in ran.out and "config.trust" in project.pai("--list").out


@pytest.mark.parametrize("columns", [40, 80])
def test_the_front_page_and_help_fit_the_terminal(project, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, project.pai().out.splitlines())) <= columns
    monkeypatch.setattr(invoke_patches, "pty_size", lambda: (columns, 24))
    lines = project.pai("help", "container.forward").out.splitlines()[1:]
    assert max(map(len, lines)) <= columns and len(lines) > 10


def test_pai_alone_names_the_projects_own_commands(project):
    project.write("tasks.py", "from invoke import task\n\n@task\ndef bench(c):\n    pass\n")
    assert "This project's own commands: bench" in project.pai().out


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_list_names_each_task_once_and_fits_the_terminal(project, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(invoke_patches, "pty_size", lambda: (columns, 24))
    listed, _, others = project.pai("--list").out.partition("Other names: ")
    assert max(map(len, listed.splitlines())) <= columns
    assert sorted(re.findall(r"^  ([a-z][\w-]*\.[\w-]+)", listed, re.MULTILINE)) == sorted(
        namespace().task_names
    )
    assert listed.startswith("Every day:\n") and re.search(r"job\.sub \(run\)", listed)
    assert "storage.cp = storage.copy" in others and "storage.cp" not in listed


def test_short_names_run_the_everyday_commands(project):
    tasks = {"run": "job.sub", "ls": "job.list", "logs": "job.logs", "why": "job.why", "stop": "job.stop"}
    tasks |= {"ssh": "container.ssh", "top": "container.top", "cp": "storage.copy"}
    assert {short: CLASSIC[short].target for short in tasks} == tasks
    assert f"`run` is short for `job.sub`.\n\n{'Usage: pai job.sub'}" in project.pai("help", "run").out


def test_a_topic_has_examples_that_can_be_pasted(project):
    for topic, (about, *examples) in TOPICS.items():
        shown = project.pai("help", topic).out
        assert about.split(",")[0] in " ".join(shown.split())
        assert all(f"  pai {example}\n" in shown for example in examples) and len(examples) == 3
        for example in examples:
            program = PaiProgram(binary="pai", loader_class=TasksLoader)
            program.create_config()
            program.parse_core(["pai", *shlex.split(example)])
            program.parse_collection()
            program.parse_tasks()


def test_help_of_a_collection_has_its_examples_and_its_tasks(project):
    shown = project.pai("help", "storage").out
    assert shown.startswith("Storages are named pai://") and "  storage.tree  " in shown


def test_flags_of_invoke_have_their_own_page(project):
    assert "--prompt-for-sudo-password" in project.pai("help", "invoke").out
    assert "--prompt-for-sudo-password" not in project.pai("--help").out


@pytest.mark.parametrize(
    "words, shown",
    [
        (["job.stop"], "Usage: pai job.stop NAMES ..."),
        (["job", "stop"], "Usage: pai job.stop NAMES ..."),
        (["job", "sub"], "Usage: pai job.sub [COMMAND]"),
        (["sub"], "Usage: pai job.sub [COMMAND]"),
        (["doctor"], "Usage: pai config.doctor"),
        (["job"], "Stop jobs, by name or pattern."),
        ([], "usage: pai COMMAND"),
    ],
)
def test_help_explains_a_command_or_a_collection(project, words, shown):
    ran = project.pai("help", *words)
    assert ran.code == 0 and shown in ran.out


def test_help_for_an_unknown_word_is_an_error(project):
    ran = project.pai("help", "cancel")
    assert (ran.code, ran.err) == (120, "error: no task named 'cancel', did you mean job.stop?\n")


def test_a_projects_own_help_task_counts(project):
    project.write("tasks.py", "from invoke import task\n\n@task\ndef help(c):\n    print('mine')\n")
    assert project.pai("help").out == "mine\n"


def test_pai_needs_no_tasks_file_but_reads_the_settings_of_a_parent_folder(project, monkeypatch):
    project.write("invoke.yaml", "openpai:\n  image: from-above\n")
    project.write("deep/er/x", "")
    monkeypatch.chdir(project.folder / "deep" / "er")
    assert "from-above" in project.pai("config.show").out


def test_tasks_of_a_plain_tasks_file_and_built_in_tasks_are_both_available(project):
    project.write("tasks.py", "from invoke import task\n\n@task\ndef hello(c):\n    print('hello')\n")
    assert project.pai("hello").out == "hello\n"
    assert project.pai("config.show").code == 0


def test_tasks_file_with_our_namespace_is_used_unchanged(project):
    project.write(
        "tasks.py",
        "from openpai_tasks.tasks import namespace\n\nns = namespace(image='mine')\n"
        "ns.override('config.set', lambda c: print('replaced'))\n",
    )
    assert "mine" in project.pai("config.show").out
    assert project.pai("config.set").out == "replaced\n"


def test_tasks_file_of_another_program_is_ignored(project):
    project.write("tasks.py", "import celery_that_is_not_installed\n")
    assert project.pai("config.show").code == 0


def test_missing_collection_that_was_requested_is_an_error(project):
    ran = project.pai("-c", "nope", "config.show")
    assert ran.code == 120
    assert ran.err.startswith("error: no tasks file 'nope' in ")


@pytest.mark.parametrize(
    "words, command",
    [
        (["python", "train.py", "--lr", "0.1"], "'python train.py --lr 0.1'"),
        (["python train.py --lr 0.1"], "'python train.py --lr 0.1'"),
        (["echo", "a b", "$HOME"], "\"echo 'a b' '$HOME'\""),
        (["sh", "-c", "x", "--", "-i"], "'sh -c x -- -i'"),
        (["--", "python", "-c", "print(1)"], "\"python -c 'print(1)'\""),
        (["env", "job.sub", "sub"], "'env job.sub sub'"),
    ],
)
def test_sub_takes_everything_from_the_first_word_as_the_command(project, words, command):
    project.tasks(RUN)
    ran = project.pai("sub", "-a", "lab", "-i", "img", "-j", "name", *words)
    assert (ran.code, ran.out) == (0, f"{command} name img lab\n")


def test_flag_of_ours_inside_a_bare_command_is_pointed_out_unless_two_dashes_are_before_it(cluster):
    ran = cluster.pai("sub", "-j", "dd", "-f", "echo", "hi", "--preview", "--gpu=1", "--lr=1", "-c", "3")
    assert (ran.code, ran.out) == (0, "hi --preview --gpu=1 --lr=1 -c 3\n")
    [line] = [line for line in ran.err.splitlines() if line.startswith("warning: --")]
    assert line == (
        "warning: --preview, --gpu were taken as part of the command; flags of `pai sub` go before it, "
        "and `--` there silences this line"
    )
    ran = cluster.pai("job", "sub", "-f", "--", "echo", "hi", "--preview")
    assert (ran.out, "taken as part" in ran.err) == ("hi --preview\n", False)
    ran = cluster.pai("--complete", "--", "pai sub echo hi --preview")
    assert (ran.code, ran.err) == (0, "")


def test_only_the_first_word_can_be_a_classic_command(project):
    project.tasks(
        RUN + "@task(positional=['name'])\ndef stop(c, name=None):\n    print(name)\nns.add_task(stop)\n"
    )
    assert project.pai("stop", "submit").out == "submit\n"


def test_classic_commands_have_help(project):
    assert "Usage: pai job.sub [COMMAND] [--options]" in project.pai("sub", "--help").out
    assert "Usage: pai job.sub [COMMAND] [--options]" in project.pai("--help", "sub").out


def test_classic_command_whose_task_is_missing_is_an_error(project):
    project.tasks(RUN)
    ran = project.pai("copy", "a", "b")
    assert ran.code == 120
    assert ran.err == "error: 'copy' runs `storage.copy`, which this project's tasks do not include\n"


def test_every_classic_command_has_its_task():
    assert {row.target for row in CLASSIC.values()} <= set(namespace().task_names)


def test_core_flag_with_an_invalid_number_is_a_one_line_error(project):
    ran = project.pai("-T", "two", "config.show")
    assert (ran.code, ran.err) == (120, "error: -T needs a whole number, got 'two'\n")


def test_unknown_job_state_is_a_usage_error_that_names_the_states(project):
    ran = project.pai("job.list", "--state", "nonsense")
    known = "WAITING, RUNNING, STOPPING, RETRYING, SUCCEEDED, FAILED, STOPPED, UNKNOWN"
    assert (ran.code, ran.out) == (120, "")
    assert ran.err == f"error: --state: no state named 'nonsense' (known: {known})\n"


def test_error_for_an_unknown_shell_names_the_known_shells(project):
    ran = project.pai("--print-completion-script", "tcsh")
    assert (ran.code, ran.err) == (120, "error: no completion for 'tcsh' (known: bash, fish, zsh)\n")


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts_contain_names_and_flags(project, shell_name):
    script = project.pai("--print-completion-script", shell_name).out
    assert "config.unset" in script and "list-clusters" in script and "is-global" in script
    assert all(name in script for name in CLASSIC)
    if shutil.which(shell_name):
        subprocess.run([shell_name, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    "words, expected",
    [
        (["config.uns"], "config.unset"),
        (["config.set", "--is"], "--is-global"),
        (["set", "--is"], "--is-global"),
        (["--vers"], "--version"),
        (["select-c"], "select-cluster"),
    ],
)
def test_bash_completes_from_the_script_alone(project, words, expected):
    script = project.pai("--print-completion-script", "bash").out
    quoted = " ".join(f"'{word}'" for word in ["pai", *words])
    script += f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _pai_complete; echo ${{COMPREPLY[@]}}"
    bash = shutil.which("bash") or "bash"
    done = subprocess.run([bash, "-c", script], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_installed_program_runs_and_a_closed_pipe_is_not_an_error(shell):
    assert shell.pai("--version").out.startswith("pai ")
    ran = shell.run("bash", "-c", "pai --list | true; exit ${PIPESTATUS[0]}")
    assert ran.code in (0, 141) and ran.err == ""


def test_invalid_settings_file_of_the_user_is_an_error(project):
    home = os.environ["HOME"]
    os.makedirs(home)
    with open(os.path.join(home, ".invoke.yaml"), "w") as file:
        file.write("a: [\n")
    ran = project.pai("config.show")
    assert ran.code == 120
    assert ran.err.startswith(f"error: cannot read {home}/.invoke.yaml, line 2: ")


def test_program_that_finds_no_descriptor_while_it_loads_ends_with_one_line(monkeypatch, capsys):
    def load():
        raise OSError(errno.EMFILE, "Too many open files", "/lib/a.py")

    monkeypatch.setattr(compat, "load_invoke", load)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().err) == (125, "error: Too many open files: /lib/a.py\n")
