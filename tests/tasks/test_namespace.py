"""A project's tasks.py: our tasks, its own tasks, overrides and defaults."""

import dataclasses
import inspect

import pytest
from invoke import Context

from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.tasks import COLLECTIONS, namespace, task
from openpai_tasks.tasks.framework.contexts import Contexts
from openpai_tasks.tasks.framework.task import NICKNAMES, typed_task, with_flags

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
        "@task\ndef wait(c):\n    print('waiting', flush=True)\n"
        "    while True:  # Ctrl-C just before one long wait would not end it\n        time.sleep(0.01)\n"
        "ns = namespace(wait)\n"
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


@pytest.mark.parametrize("program", ["inv", "pai"])
def test_compiled_modules_of_the_project_are_never_writable_by_others(shell, program):
    (shell.project / "tasks.py").write_text(
        "from invoke import task\nfrom openpai_tasks.tasks import namespace\nimport helper\n\n"
        "@task\ndef hello(c):\n    print('hello')\n"
    )
    (shell.project / "helper.py").write_text("")
    (shell.project / "invoke.py").write_text("openpai = {'cpu': 2}\n")
    twice = f"umask 000; {program} hello && {program} hello && pai hello"
    ran = shell.run("bash", "-c", twice, PYTHONDONTWRITEBYTECODE="")
    assert (ran.code, ran.out, ran.err) == (0, "hello\n" * 3, "")


def test_flags_of_jobs_are_the_options_of_jobs():
    from openpai_tasks.sdk.jobs import options
    from openpai_tasks.tasks.views import job_flags

    names = {field.name for field in dataclasses.fields(options.JobOptions)}
    declared = {"command", "ssh", "template", "parameter", "notify", "keep_failed"}  # by their commands
    assert set(job_flags.FLAGS) - {"preview"} == names - declared
    assert set(options.READERS) == names > set(options.SETTINGS)


def test_flags_of_our_tasks_have_the_types_that_the_signature_declares():
    @typed_task()
    def train(c, names: "list[str]", epochs: "int | None" = None, rate: "float | None" = None, tag: str = ""):
        """Train."""

    kinds = {argument.name: argument.kind for argument in train.get_arguments()}
    assert kinds == {"names": list, "epochs": int, "rate": float, "tag": str}
    assert train.positional == ["names"]


def test_a_body_gets_the_flags_that_differ_from_their_defaults():
    def other(c, count=1, check=True, name=None, tags=None):
        pass

    @with_flags([*inspect.signature(other).parameters.values()][1:])
    def body(c, *, flags):
        return flags

    assert body(None, count=1, check=True, name=None, tags=[]) == {}
    assert body(None, count=0, check=False, name="", tags=["a"]) == {
        "count": 0,
        "check": False,
        "name": "",
        "tags": ["a"],
    }
