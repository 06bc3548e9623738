"""Command lines are parsed as users expect, without Invoke's pitfalls, in both `inv` and `pai`."""

import json

import pytest

TASKS = """
@task(positional=["words"], iterable=["words"], kinds={"seconds": float, "count": int}, optional=["log"],
      help={"words": "what to say"})
def say(c, words, count=None, seconds=None, name="x", loud=True, log=None, off=False, output=None):
    '''Say words.'''
    print("say", words, count, seconds, name, loud, log, off, output)


@task(positional=["alias"])
def pick(c, alias=None, command=None):
    '''Pick one.'''
    print("pick", alias, command)


@task
def run(c, command, gpu=0):
    print("run", repr(command), gpu, remainder())


@task
def one(c, n=1):
    print("one", n)


@task
def prepare(c):
    print("prepare")


@task(prepare)
def build(c):
    print("build")


ns.add_task(say)
ns.add_task(pick)
ns.add_task(build)
ns.add_task(one)
ns.add_collection(Collection("inner", run))
ns.collections["inner"].add_task(pick, name="choose")
"""


@pytest.fixture(params=["inv", "pai"])
def line(request, project):
    project.tasks(TASKS)
    return getattr(project, request.param)


@pytest.mark.parametrize(
    "words, printed",
    [
        (["pick"], "pick None None"),
        (["pick", "lab"], "pick lab None"),
        (["pick", "--alias", "lab"], "pick lab None"),
        (["pick", "--command", "-1"], "pick None -1"),
        (["pick", "--command=--alias"], "pick None --alias"),
        (["pick", "--command="], "pick None "),
        (["pick", "--command", "a", "--command", "b"], "pick None b"),
        (["pick", "-"], "pick - None"),
        (["pick", "-5"], "pick -5 None"),
        (["pick", "pick"], "pick None None\npick None None"),
        (["pick", "a", "pick", "a"], "pick a None\npick a None"),
        (["pick", "inner.choose", "b"], "pick None None\npick b None"),
        (["one", "-n", "2", "one", "--n=3", "one", "-n4"], "one 2\none 3\none 4"),
        (["build", "build"], "prepare\nbuild\nbuild"),
        (["say", "a"], "say ['a'] None None x True None False None"),
        (["say", "a", "b", "--off", "c*"], "say ['a', 'b', 'c*'] None None x True None True None"),
        (["say", "--words", "a", "b"], "say ['a', 'b'] None None x True None False None"),
        (["say", "pick", "pick"], "say ['pick'] None None x True None False None\npick None None"),
        (["say", "a", "--count=3", "--seconds", "1.5"], "say ['a'] 3 1.5 x True None False None"),
        (["say", "a", "--no-loud", "--log"], "say ['a'] None None x False True False None"),
        (["say", "a", "--log", "file"], "say ['a'] None None x True file False None"),
        (["say", "a", "-ojson"], "say ['a'] None None x True None False json"),
        (["say", "a", "-o=json"], "say ['a'] None None x True None False json"),
        (["inner.run", "pick"], "run 'pick' 0 []"),
        (["inner.run", "--gpu", "2", "--dry", "a b"], "run 'a b' 2 []"),
        (["inner.run", "--", "echo", "a b", "$x"], "run \"echo 'a b' '$x'\" 0 ['echo', 'a b', '$x']"),
        (["inner.run", "--", "echo a b"], "run 'echo a b' 0 ['echo a b']"),
        (["say", "--", "a b", "--off"], "say ['a b', '--off'] None None x True None False None"),
    ],
)
def test_command_line_is_parsed_as_expected(line, words, printed):
    ran = line(*words)
    assert (ran.code, ran.out.rstrip("\n"), ran.err) == (0, printed, "")


@pytest.mark.parametrize(
    "words, message",
    [
        (["inner.run", "a", "--gpu", "two"], "error: --gpu needs a whole number, got 'two'"),
        (["say", "a", "--seconds=soon"], "error: --seconds needs a number, got 'soon'"),
        (["say", "a", "--nmae", "b"], "error: say has no flag --nmae, did you mean --name?"),
        (["say", "--qqqq", "b"], "error: say has no flag --qqqq"),
        (["say", "a", "--off=1"], "error: --off takes no value, got '1'"),
        (["say", "a", "--name"], "error: --name needs a value"),
        (
            ["say", "a", "--name", "--off"],
            "error: --name needs a value, but --off is a flag (for this value, write --name=--off)",
        ),
        (["say"], "error: say needs WORDS (usage: say WORDS ...)"),
        (["inner.run", "a", "b"], "error: inner.run: unexpected word 'b' (quote values that contain spaces)"),
        (["pikc"], "error: no task named 'pikc', did you mean pick?"),
        (["choose"], "error: no task named 'choose', did you mean inner.choose?"),
        (["zzzz"], "error: no task named 'zzzz' (`{program} --list` shows all tasks)"),
        (["say", "a", "--hlep"], "error: say has no flag --hlep, did you mean --help?"),
        (["--help", "pikc"], "error: no task named 'pikc', did you mean pick?"),
        (["--nonsense"], "error: unknown flag --nonsense (flags of a task follow its name)"),
        (["--list", "iner"], "error: no collection named 'iner', did you mean inner?"),
        (["--list", "-F", "xml"], "error: --list-format must be one of flat, nested, json, got 'xml'"),
    ],
)
def test_invalid_command_line_is_a_one_line_error_with_exit_code_120(line, words, message):
    ran = line(*words)
    message = message.replace("{program}", line.__name__)
    assert (ran.code, ran.out, ran.err) == (120, "", message + "\n")


@pytest.mark.parametrize("words", [["inner"], ["inner", "--help"], ["inner", "-h"], ["--help", "inner"]])
def test_the_name_of_a_collection_lists_its_tasks(line, words):
    ran = line(*words)
    assert ran.code == 0
    assert ".choose   Pick one." in ran.out and ".run" in ran.out


@pytest.mark.parametrize("words", [["say", "--help"], ["--help", "say"], ["say", "a", "-h"]])
def test_help_shows_arguments_flags_and_descriptions(line, words):
    ran = line(*words)
    assert ran.code == 0
    assert "say WORDS ... [--options]" in ran.out
    assert "--words=STRING" in ran.out and "what to say" in ran.out
    assert (
        "--seconds=NUMBER" in ran.out and "--[no-]loud" in ran.out and "-o STRING, --output=STRING" in ran.out
    )


def test_json_list_names_tasks_as_they_are_called(line):
    listed = json.loads(line("--list", "-F", "json").out)
    inner = next(item for item in listed["collections"] if item["name"] == "inner")
    assert [task["name"] for task in inner["tasks"]] == ["choose", "run"]


def test_only_the_tasks_on_the_line_have_their_arguments_built(project, monkeypatch):
    from openpai_tasks.tasks.framework.task import PaiTask

    built = []
    original = PaiTask.get_arguments

    def noted(self, ignore_unknown_help=None):
        built.append(self.name)
        return original(self, ignore_unknown_help)

    monkeypatch.setattr(PaiTask, "get_arguments", noted)
    project.tasks(TASKS)
    assert project.inv("--list").code == 0
    assert built == []
    assert project.inv("pick", "lab").code == 0
    assert built == ["pick"]


def test_words_after_a_double_dash_keep_their_quoting_for_plain_invoke_tasks(project):
    project.write(
        "tasks.py",
        "from invoke import task\nfrom openpai_tasks.tasks import namespace\n"
        "@task\ndef test(c):\n    pass\nns = namespace(test)\n",
    )
    assert project.inv("test", "--", "-k", "b c").code == 0
    assert project.program.core.remainder == "-k 'b c'"


def test_completion_by_invoke_itself_still_works(project):
    project.tasks(TASKS)
    assert "--command" in project.inv("--complete", "--", "inv pick --").out.split()
    assert "inner.choose" in project.inv("--complete", "--", "inv ").out.split()


def test_output_without_watchers_is_not_joined_at_every_chunk(project):
    from invoke import Context
    from invoke.runners import Local

    class Untouched(list):
        def __iter__(self):
            raise AssertionError("the whole output was read again")

    runner = Local(Context())
    runner.watchers = []
    runner.respond(Untouched(["x"]))
