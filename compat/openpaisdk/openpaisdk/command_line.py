"""The commands of `opai` as a function: the words of a command in, its result as a value out."""

import argparse
import contextlib
import functools
import io
import json

TEXTS = ("--image -i", "--job-name -j", "--workspace -w", "--mem", "--memoryMB", "--python")
LISTS = ("--sources --src", "--pip-installs --pip")


class Engine:
    """Runs commands of the old command line."""

    def process(self, a):
        """Run a command and return its result; raise if it fails.

        A command that is not in ``ACTIONS`` runs as in a terminal, and has no result.
        """
        words = [str(word) for word in a]
        count = 1 if words[:1] == ["set"] else 2
        action = ACTIONS.get(" ".join(words[:count]))
        return action(words[count:]) if action else _run(words)


class Parser(argparse.ArgumentParser):
    """Reads the words of a command; raises for a mistake."""

    def __init__(self, action, *flags):
        super().__init__(prog=f"opai {action}", add_help=False)
        for names in flags:
            self.add_argument(*names.split())

    def error(self, message):
        from openpai_tasks.errors import ConfigError

        raise ConfigError(f"{self.prog}: {message}")


def _run(words):
    from openpai_tasks.magics import commands

    commands.run(words, lambda data: print(data["text/plain"]))


def _read(*words):
    """Return the values that a command prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        _run([*words, "--output", "json"])
    return json.loads(output.getvalue())


def _set(words):
    """Change settings; without any, return all of them by name."""
    from openpaisdk.defaults import get_defaults

    return _run(["set", *words]) if {*words} - {"-g", "--is-global"} else get_defaults()


def _list_clusters(words):
    """Return the known clusters by alias."""
    from openpai_tasks import sdk
    from openpai_tasks.api.connection import say, settings_here

    return {
        row.alias: {
            "cluster_alias": row.alias,
            "pai_uri": row.uri,
            "user": row.user,
            "virtual_clusters": list(row.virtual_clusters),
        }
        for row in sdk.clusters.list_clusters(settings_here(), say)
    }


def _show_resources(words):
    """Return what is free, by cluster and virtual cluster."""
    from openpaisdk.cluster import ClusterList

    return ClusterList().load().available_resources()


def _list_jobs(words):
    """Return the names of jobs, each with its state unless ``--name`` is given."""
    parser = Parser("job list", "--cluster-alias -a", "--user")
    parser.add_argument("--name", action="store_true")
    args = parser.parse_args(words)
    user = "all" if args.user == "__all__" else args.user
    jobs = _client(args).jobs(user=user)
    return [job.name if args.name else f"{job.name} [{job.state}]" for job in jobs]


def _show_job(words):
    """Return the status of a job, or its document (``config``)."""
    parser = Parser("job status", "--cluster-alias -a", "--user", "job_name")
    parser.add_argument("query", nargs="?", choices=["config", "ssh"])
    args = parser.parse_args(words)
    if args.query == "ssh":
        return _read("job", "status", *words)
    return _client(args).rest_api_job_info(args.job_name, args.query, args.user)


def _submit_file(words):
    """Submit a job file; return the address of the job's page and its name."""
    from openpaisdk.job import Job

    parser = _submitting("job submit", "config")
    parser.add_argument("--update", "-u", action="append")
    args = parser.parse_args(words)
    return _submit(Job().from_file(args.config, update=args.update), args)


def _submit_command(words):
    """Submit a command; return the address of the job's page and its name."""
    from openpaisdk.job import Job

    parser = _describing("job sub")
    parser.add_argument("commands", nargs=argparse.REMAINDER)
    args = parser.parse_args(words)
    command = " ".join(args.commands[args.commands[:1] == ["--"] :])
    return _submit(Job(args.job_name).one_liner(command, **_described(args)), args)


def _run_notebook(words):
    """Run a notebook or serve it; return the job's page, name and state, and the notebook's address."""
    from openpaisdk.job import Job

    parser = _describing("job notebook", "--notebook-token --token")
    parser.add_argument("notebook", nargs="?")
    parser.add_argument("--interactive", action="store_true")
    args = parser.parse_args(words)
    mode = "interactive" if args.interactive else "silent"
    job = Job(args.job_name)
    job.from_notebook(args.notebook, mode, args.notebook_token or "", **_described(args))
    found = _submit(job, args)
    return found if args.preview else {**found, **job.wait()}


def _connect(words):
    """Wait for a Jupyter server or the end of a job; return its state and address, or its status."""
    from openpaisdk.job import Job

    args = Parser("job connect", "--cluster-alias -a", "job_name").parse_args(words)
    return Job(args.job_name, args.cluster_alias).wait()


def _read_storage(action, words):
    """Return the storages of a cluster, the files in a folder, or the details of one."""
    return _read("storage", action, *words)


def _client(args):
    from openpaisdk.cluster import Cluster

    return Cluster(args.cluster_alias)


def _submitting(action, *flags):
    parser = Parser(action, "--cluster-alias -a", "--virtual-cluster --vc", *flags)
    parser.add_argument("--preview", action="store_true")
    return parser


def _describing(action, *flags):
    parser = _submitting(action, *TEXTS, *flags)
    for name in ("--cpu", "--gpu"):
        parser.add_argument(name, type=int)
    for names in LISTS:
        parser.add_argument(*names.split(), action="append")
    parser.add_argument("--no-browser", action="store_true", help="has no effect: none is opened")
    return parser


def _described(args):
    """Return what describes a job, as the methods of ``Job`` take it."""
    given = vars(args)
    return {
        "cluster": {name: given[name] for name in ("cluster_alias", "virtual_cluster", "workspace")},
        "resources": {name: given[name] for name in ("cpu", "gpu", "memoryMB", "mem")},
        **{name: given[name] for name in ("image", "sources", "pip_installs", "python")},
    }


def _submit(job, args):
    job.load(cluster_alias=args.cluster_alias or "")
    return job.get_config() if args.preview else job.submit(args.cluster_alias, args.virtual_cluster)


ACTIONS = {
    "cluster list": _list_clusters,
    "cluster resources": _show_resources,
    "job connect": _connect,
    "job list": _list_jobs,
    "job notebook": _run_notebook,
    "job status": _show_job,
    "job sub": _submit_command,
    "job submit": _submit_file,
    "set": _set,
    **{
        f"storage {name}": functools.partial(_read_storage, name)
        for name in ("list", "list-storage", "status")
    },
}
"""The commands that answer with values."""
