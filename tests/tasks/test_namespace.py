"""A project's tasks.py: our tasks, its own tasks, overrides and defaults."""

import pytest
from invoke import Context

from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.tasks import COLLECTIONS, namespace, task
from openpai_tasks.tasks.framework.contexts import Contexts
from openpai_tasks.tasks.framework.task import NICKNAMES

CORE = {"config", "debug", "dry", "echo", "help", "hide", "list", "pty", "version"}


@pytest.fixture
def contexts():
    return Contexts(namespace())


def test_the_namespace_has_every_collection_of_the_table():
    assert set(namespace().collections) == set(COLLECTIONS)


def test_every_task_and_flag_has_a_description(contexts):
    for name in namespace().task_names:
        assert contexts.collection[name].__doc__, name
        for flag, about in contexts[name].help_tuples():
            assert about, f"{name} {flag}"


def test_no_task_flag_hides_a_core_flag_of_invoke(contexts):
    for name in namespace().task_names:
        assert not CORE & set(contexts[name].args), name


def test_flag_nicknames_are_the_same_in_every_task(contexts):
    """Tasks of PaddleCloud have those of its program."""
    for name in namespace().task_names:
        if name.startswith("paddle."):
            continue
        for argument in contexts[name].args.values():
            assert argument.nicknames == NICKNAMES.get(argument.names[0], ()), (name, argument)


def test_a_flag_keeps_its_short_name_when_another_flag_is_added():
    @task
    def one(c, output=None):
        pass

    @task
    def two(c, only=None, outer=None, output=None):
        pass

    for item in (one, two):
        [names] = [argument.names for argument in item.get_arguments() if argument.name == "output"]
        assert names == ("output", "o")


def test_expected_error_is_one_line_with_its_exit_code(project):
    project.tasks(
        "from openpai_tasks.errors import NotFound\n"
        "@task\ndef look(c):\n    raise NotFound('no job named x')\nns.add_task(look)\n"
    )
    ran = project.inv("look")
    assert (ran.code, ran.out, ran.err) == (NotFound.exit_code, "", "error: no job named x\n")


def test_unexpected_error_keeps_its_traceback(project):
    project.tasks("@task\ndef look(c):\n    raise KeyError('bug')\nns.add_task(look)\n")
    with pytest.raises(KeyError):
        project.inv("look")


def test_two_namespaces_do_not_share_overrides():
    first, second = namespace(), namespace()
    first.override("config.show", lambda c: print("mine"))
    assert first["config.show"] is not second["config.show"]


def test_override_keeps_aliases_and_the_default_and_returns_the_original(capsys):
    ns = namespace()

    @task
    def mine(c):
        print("mine")

    ours = ns.override("config.show", mine)
    assert ours.name == "show"
    ns["config"](Context())
    assert capsys.readouterr().out == "mine\n"


def test_overriding_an_unknown_task_names_the_known_tasks():
    with pytest.raises(ConfigError, match=r"no task named 'config.shwo' to override \(known: .*config.show"):
        namespace().override("config.shwo", lambda c: None)


def test_public_names_of_the_package_exist():
    import openpai_tasks

    assert openpai_tasks.namespace is namespace
    assert openpai_tasks.PaiError.__name__ == "PaiError"
    for name in ("Client", "JobRequest", "validate"):
        assert name in dir(openpai_tasks) and getattr(openpai_tasks, name)
    with pytest.raises(AttributeError):
        openpai_tasks.nothing  # noqa: B018


def test_ctrl_c_ends_with_130(shell):
    import signal

    (shell.project / "tasks.py").write_text(
        "import time\nfrom openpai_tasks.tasks import namespace, task\n"
        "@task\ndef wait(c):\n    print('waiting', flush=True)\n    time.sleep(60)\nns = namespace(wait)\n"
    )
    for program in ("inv", "pai"):
        process = shell.start(program, "wait")
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (130, "", "")


def test_closed_output_pipe_prints_no_error(shell):
    (shell.project / "tasks.py").write_text(
        "from openpai_tasks.tasks import namespace, task\n"
        "@task\ndef many(c):\n    [print('line', i) for i in range(100000)]\nns = namespace(many)\n"
    )
    for line in ("inv many", "pai many"):
        ran = shell.run("bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}")
        assert (ran.code, ran.out, ran.err) == (141, "line 0\n", "")


def test_modules_of_the_project_are_compiled_once(shell):
    (shell.project / "tasks.py").write_text(
        "from openpai_tasks.tasks import namespace\nimport helper\n\nns = namespace()\n"
    )
    (shell.project / "helper.py").write_text("")
    process = shell.start("inv", "--list", fresh=True)  # forked commands do not load the package
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert list((shell.project / "__pycache__").glob("helper*.pyc"))


def test_job_flags_match_the_flags_that_build_a_request():
    from openpai_tasks.sdk.jobs import flags
    from openpai_tasks.tasks.views import job_flags

    assert set(job_flags.FLAGS) == flags.NAMES and set(flags.SETTINGS) < flags.NAMES
