"""Command lines of the older clients, as they were printed, and the tasks that they run."""

import json

import pytest

from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework.task import PaiTask
from openpai_tasks.tasks.pai.flat_names import CLASSIC, SPACED
from openpai_tasks.tasks.pai.old_commands import is_given


@pytest.fixture
def calls(project, monkeypatch):
    """Run a line of `pai`, and return the task that it calls with its words and flags."""
    real = PaiTask.__call__
    noted = []

    def note(self, c, *words, **flags):
        home = self.body.__module__.rpartition(".")[2]
        if home == "old_commands":
            return real(self, c, *words, **flags)
        given = {key: value for key, value in flags.items() if is_given(value)}
        noted.append((f"{home.partition('_')[0]}.{self.name}", *words, given))

    monkeypatch.setattr(PaiTask, "__call__", note)

    def run(*words):
        noted.clear()
        ran = project.pai(*words)
        assert (ran.code, ran.err) == (0, ""), ran
        return list(noted) if len(noted) > 1 else noted[0]

    return run


LAB = {"cluster_alias": "lab"}
NEW = {"cluster_alias": "lab", "pai_uri": "u", "token": "t", "type": "openpai", "check": True}


@pytest.mark.parametrize(
    "line, called",
    [
        ("job-status train", ("job.status", "train", {})),
        ("job-status train config", ("job.config", "train", {})),
        ("job-status -a lab --user ann train ssh", ("container.list", "ann~train", LAB)),
        ("job status train config -o json", ("job.config", "train", {"output": "json"})),
        ("list-jobs -a lab", ("job.list", LAB)),
        ("list-jobs -a lab train", ("job.status", "train", LAB)),
        ("job list --user ann train", ("job.status", "ann~train", {})),
        ("job list --user all", ("job.list", {"user": "all"})),
        ("ssh-container -a lab --job-name train --user ann", ("container.ssh", "ann~train", LAB)),
        ("ssh-container train", ("container.ssh", "train", {})),
        ("notebook-job -a lab x.ipynb", ("notebook.run", "x.ipynb", LAB)),
        ("notebook x.ipynb", ("notebook.run", "x.ipynb", {})),
        ("notebook -a lab x.ipynb", ("notebook.run", "x.ipynb", LAB)),
        ("job notebook --interactive x.ipynb", ("notebook.serve", "x.ipynb", {})),
        ("job notebook --interactive", ("notebook.serve", {})),
        ("notebook-job --interactive --token t0 x.ipynb", ("notebook.serve", "x.ipynb", {"token": "t0"})),
        ("notebook-job --notebook-token t0 --inter x.ipynb", ("notebook.serve", "x.ipynb", {"token": "t0"})),
        ("sub --gpu 0 x", ("job.sub", "x", {"gpu": 0})),
        ("sub --pip-path /b/pip3 x --pip_path y", ("job.sub", "x --pip_path y", {"python": "/b/python3"})),
        ("job sub -i img python a.py --lr 1", ("job.sub", "python a.py --lr 1", {"image": "img"})),
        ("job sub --pip x --pip-path pip a", ("job.sub", "a", {"pip_installs": ["x"], "python": "python"})),
        ("cluster select lab", ("cluster.select", {"cluster_alias": "lab"})),
        ("cluster add -a lab --pai-uri u --toke t", ("cluster.add", NEW)),
        ("add-cluster -a lab --pai-uri u --authen-token t", ("cluster.add", NEW)),
        ("storage list-storage -a lab", ("storage.list", LAB)),
        ("storage list lab", ("storage.list", "lab", {})),
        ("storage list pai://lab/home", ("storage.listdir", ["pai://lab/home"], {})),
        ("storage list /data", ("storage.listdir", ["pai://local/0/data"], {})),
        ("storage list -a lab -s disk /data", ("storage.listdir", ["pai://lab/disk/data"], {})),
        ("storage status -a lab /data/x", ("storage.getinfo", "pai://lab/0/data/x", {})),
        ("storage upload -a lab -s disk a /b", ("storage.copy", ["a", "pai://lab/disk/b"], {})),
        ("storage download -a lab -s disk /b a", ("storage.copy", ["pai://lab/disk/b", "a"], {})),
        ("storage delete -a lab /b", ("storage.remove", ["pai://lab/0/b"], {"ask": True})),
        ("storage delete b --yes", ("storage.remove", ["pai://local/0/b"], {"ask": True, "yes": True})),
        ("storage status /data", ("storage.getinfo", "pai://local/0/data", {})),
        ("set", ("config.show", {})),
        ("set -g -o json", ("config.show", {"output": "json"})),
        ("set -g cpu=1", ("config.set", ["cpu=1"], {"is_global": True})),
        ("delete b", ("storage.remove", {"paths": ["b"], "ask": True})),
        ("delete-cluster lab", ("cluster.delete", {"cluster_aliases": ["lab"], "ask": True})),
    ],
)  # fmt: skip
def test_old_line_runs_our_task(calls, line, called):
    assert calls(*line.split()) == called


def test_attached_hdfs_is_added_and_selected(calls):
    line = "cluster attach-hdfs --cluster-alias lab --storage-alias h --web-hdfs-uri http://n:50070 --default"
    added = ("storage.add", "h", LAB | {"type": "hdfs", "address": "http://n:50070"})
    assert calls(*line.split()) == [added, ("storage.select", "h", LAB)]


@pytest.mark.parametrize(
    "line, error",
    [
        ("job-status train logs", "job-status shows config, ssh or, without a word, the status; got 'logs'"),
        ("ssh-container", "ssh-container needs the job: --job-name NAME"),
        ("sub --pip-path /x/conda a", "--pip-path /x/conda: give the python that installs packages instead"),
        ("notebook-job --interactive --kernel x a.ipynb", "--kernel cannot be used with --interactive"),
        ("job notebook", "a notebook is needed, except with --interactive"),
        ("job-status", "job.status needs NAME"),
    ],
)
def test_wrong_use_of_an_old_command_is_a_one_line_error(project, line, error):
    ran = project.pai(*line.split())
    assert ran.code == 120 and ran.err.startswith(f"error: {error}") and ran.err.count("\n") == 1


def test_token_without_interactive_is_ignored_and_explained(project, monkeypatch):
    ran = project.pai("notebook-job", "--token", "t0", "missing.ipynb")
    assert ran.err.startswith("--token is ignored without --interactive\nerror: ")


def test_a_projects_own_task_counts_for_old_commands_too(project):
    project.write(
        "tasks.py",
        "from openpai_tasks.tasks import namespace, task\nns = namespace()\n"
        "@task(positional=['name'])\ndef status(c, name):\n    print('mine', name)\n"
        "ns.override('job.status', status)\n",
    )
    assert project.pai("list-jobs", "train").out == "mine train\n"
    assert project.pai("job-status", "--user", "ann", "train").out == "mine ann~train\n"


def test_spaces_for_dots_are_read_by_pai_alone(project):
    project.write("tasks.py", "from openpai_tasks.tasks import namespace\nns = namespace()\n")
    assert json.loads(project.pai("config", "show", "-o", "json").out)
    assert project.inv("config", "show").code == 120


def test_two_tasks_in_one_line_still_run_one_after_the_other(project):
    assert project.pai("config", "cluster.list").out.count("NAME") + 1 == 2


def test_abbreviated_flags_are_only_for_old_commands(project):
    ran = project.pai("cluster.add", "lab", "u", "--toke", "t")
    assert (ran.code, ran.err) == (120, "error: cluster.add has no flag --toke, did you mean --token?\n")
    ran = project.pai("add-cluster", "lab", "u", "--p", "t")  # --pai-uri or --password
    assert ran.code == 120 and ran.err.startswith("error: cluster.add has no flag --p")


@pytest.mark.parametrize("name", ["container-sdk-branch", "sdk-branch", "image-list", "web-default-form"])
def test_settings_of_older_clients_are_accepted_and_explained(project, name):
    ran = project.pai("set", f"{name}=x", "cpu=1")
    assert ran.code == 0
    assert ran.err.startswith(f"{name} is not needed here, and was not set: ") and "set cpu in " in ran.err
    assert project.pai("unset", name).code == 0


@pytest.mark.parametrize(
    "line, old", [("job-status --help", "job-status"), ("help job status", "job status"), ("help sub", "sub")]
)
def test_help_of_an_old_command_is_that_of_the_new_one(project, line, old):
    new = CLASSIC.get(old) or SPACED[old]
    first, rest = project.pai(*line.split()).out.split("\n\n", 1)
    assert first == f"`{old}` is the old spelling of `{new.target}`."
    assert rest.startswith(project.pai("help", new.target).out)
    assert f"Only `{old}` has:" in rest and "--token" in project.pai("notebook-job", "--help").out
    assert project.pai("help", "init").out.startswith("`init` is short for `config.init`.\n")


def test_every_old_command_has_its_task_and_every_flag_its_help():
    rows = [*CLASSIC.values(), *SPACED.values()]
    assert {row.target for row in rows} <= set(namespace().task_names)
    for row in rows:
        if row.task:
            assert row.task().get_arguments()


def test_opai_is_another_name_of_pai(project):
    from openpai_tasks.tasks.program import PaiProgram, TasksLoader

    program = PaiProgram(name="pai", binary="pai", binary_names=["pai", "opai"], loader_class=TasksLoader)
    ran = project._run(program, "opai", ("job", "delete"))
    assert ran.err == "error: no task named 'job.delete', did you mean job.stop?\n"
