"""The commands of the program, their options, and the tasks that they run."""

from __future__ import annotations

from typing import NamedTuple

from openpai_tasks.paddlecloud import request
from openpai_tasks.paddlecloud.request import Option

SUBMIT = (
    *request.OPTIONS,
    Option("preview", bool, "only show what would be uploaded and sent", "dry_run"),
)
ALL = Option(
    "all", bool, "also ended and killed jobs, those of pai, workers of all jobs, every resource", "a"
)
OUTPUT = Option("output", str, "output format: table, json, yaml or csv", "o", "table")
RECURSIVE = Option("r", bool, "folders with everything in them", "recursive")
VERBOSE = Option("v", bool, "also list files that are unchanged", "verbose")
COPY = (
    Option("r", bool, "accepted for `cp -r`: folders are always copied with everything in them", "recursive"),
    VERBOSE,
    Option("chunksize", int, "size of the chunks to transfer, in KiB", shown="4096"),
)
YES = Option("y", bool, "do not ask", "yes")
REMOVE = (RECURSIVE, YES)
LOGS = (
    Option("n", int, "number of lines of each trainer", "lines", "10"),
    Option("w", str, "only this worker", "worker"),
    Option("f", bool, "follow the output until the job ends", "follow"),
)
KILL = (Option("rm", bool, "also remove the job's folder with its package, output and logs", "remove"), YES)
REGISTRY = tuple(
    Option(name, str, f"the registry's {name}") for name in ("name", "username", "password", "server")
)
EVERYWHERE = (
    Option("datacenter", str, "datacenter or cluster to use", "dc", "the current one"),
    Option("help", bool, "show the options of the command", "h"),
)
IGNORED = tuple(
    Option(name, kind, "ignored: of the logs of the Go client")
    for name, kind in {
        "logtostderr": bool,
        "alsologtostderr": bool,
        "log_dir": str,
        "stderrthreshold": str,
        "vmodule": str,
        "log_backtrace_at": str,
    }.items()
)


class Verb(NamedTuple):
    """A command: its words, the task that it runs, and the other words that it takes.

    ``words`` are the names of the task's arguments: ``name?`` may be missing, ``name*`` takes all the rest.
    """

    name: str
    task: str
    words: tuple[str, ...]
    options: tuple[Option, ...]
    summary: str
    fixed: tuple[tuple[str, object], ...] = ()
    older: tuple[str, ...] = ()
    """Other spellings of the command."""

    @property
    def usage(self) -> str:
        marks = {"?": "[{}]", "*": "{}..."}
        shown = [marks.get(word[-1], "{}").format(word.rstrip("?*").upper()) for word in self.words]
        return " ".join(["paddlecloud", self.name, *(["[options]"] if self.options else []), *shown])


VERBS = (
    Verb("submit", "submit", ("package",), SUBMIT, "Upload a folder and start it as a job."),
    Verb("jobs", "jobs", (), (ALL, OUTPUT), "List your running jobs; all with -a."),
    Verb("logs", "logs", ("job?",), LOGS, "Show the output of a job, or of the newest one."),
    Verb("kill", "kill", ("job",), KILL, "Stop a job and take it off the list."),
    Verb("get jobs", "get", (), (ALL, OUTPUT), "List your running jobs; all with -a.", (("what", "jobs"),)),
    Verb(
        "get workers", "get", ("job?",), (ALL, OUTPUT), "List the workers of a job.", (("what", "workers"),)
    ),
    Verb("get quota", "get", (), (ALL, OUTPUT), "Show what you may use.", (("what", "quota"),)),
    Verb("pfs cp", "pfs_cp", ("paths*",), COPY, "Copy files and folders to or from PFS.", older=("cp",)),
    Verb("pfs ls", "pfs_ls", ("paths*",), (RECURSIVE, OUTPUT), "List files on PFS.", older=("ls",)),
    Verb("pfs rm", "pfs_rm", ("paths*",), REMOVE, "Remove files on PFS.", older=("rm",)),
    Verb("pfs mkdir", "pfs_mkdir", ("paths*",), (), "Create folders on PFS.", older=("mkdir",)),
    Verb("file put", "pfs_cp", ("source", "target"), COPY, "Copy a file or folder into a folder of PFS."),
    Verb("file get", "pfs_cp", ("source", "target"), COPY, "Copy from PFS to this machine."),
    Verb("file ls", "pfs_ls", ("paths*",), (), "List the names in a folder of PFS.", (("names", True),)),
)
"""Every command; those that the program answers itself are in program.py."""

SECRETS = "the secrets of registries are managed by the administrators of the cluster"
INSTEAD = {
    "registry": f"{SECRETS}; `paddlecloud submit -registry NAME` uses one",
    "get registry": SECRETS,
    "delete registry": SECRETS,
    "publish": "files are not published; `paddlecloud pfs cp` and `pai storage.copy` take them elsewhere",
}
"""Commands of the Go client that have no task, and what to do instead."""

OPTIONS = tuple(
    {
        option.name: option for verb in VERBS for option in (*verb.options, *EVERYWHERE, *IGNORED, *REGISTRY)
    }.values()
)
