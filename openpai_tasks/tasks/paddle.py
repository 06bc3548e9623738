"""Run jobs on PaddleCloud with the commands of its own client."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import paddlecloud, sdk
from openpai_tasks.paddlecloud.request import OPTIONS
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import prompts, terminal
from openpai_tasks.tasks.framework.base import say, settings_for, show
from openpai_tasks.tasks.framework.task import PaiTask, typed_task, with_flags

if TYPE_CHECKING:
    from openpai_tasks.paddlecloud.pfs_places import PfsPlaces

ALIAS_HELP = "the datacenter or cluster (default: the current one of ~/.paddle/config, else `local`)"
JOB_HELP = "the job's name"
PFS_HELP = "a path such as /pfs/DATACENTER/home/USER/PATH"
ALL_HELP = (
    "also jobs that have ended, killed jobs whose folder is left, and those of pai as Foreign;"
    " the workers of all jobs; every resource"
)


def task(help: Mapping[str, str], **options: Any) -> Callable[[Callable[..., Any]], PaiTask]:
    """Make a task whose flags can be written with one dash."""
    return typed_task(single_dash=True, help={"cluster-alias": ALIAS_HELP, **help}, **options)


@task(
    nicknames={one.name: one.short for one in OPTIONS if one.short},
    help={
        "package": "the folder to upload and run",
        **{one.name.replace("_", "-"): one.help(one.default) for one in OPTIONS},
        "preview": "only show what would be uploaded and sent",
    },
)
@with_flags(
    inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.kind)
    for one in OPTIONS
)
def submit(
    c: Context,
    package: str,
    preview: bool = False,
    cluster_alias: str | None = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Upload a folder and start it as a job."""
    request = paddlecloud.PaddleRequest(package, **flags)
    collected = paddlecloud.prepare(request)
    is_preview = views.submitting.is_preview(c, {"preview": preview})
    given = settings_for(c, cluster_alias)
    client = paddlecloud.connect(given, cluster_alias, say)
    training = paddlecloud.plan_training(client, request)
    if is_preview:
        body = training.body(client.datacenter, client.home)
        views.paddle.show_preview(collected, training.package(client.home), client.cluster.uri, body)
        return
    terminal.put("Collecting package ... Done")
    places = paddlecloud.PfsPlaces(client, given, say)
    with views.transfers.copying() as meter:
        views.paddle.report_failures(copied := places.upload(collected, training.package(client.home), meter))
    sdk.files.check_copied(copied)
    terminal.put("Uploading package ... Done")
    sdk.jobs.report_notices(client, client.submit_training(training))
    terminal.put("Starting kubernetes job ... Done")
    terminal.put(f"{training.name} submitted.")


@task(
    help={
        "job": JOB_HELP,
        "remove": "also remove the job's folder, with its package, output and logs",
    },
    nicknames={"remove": "rm"},
)
def kill(
    c: Context, job: str, remove: bool = False, yes: bool = False, cluster_alias: str | None = None
) -> None:
    """Stop a job and take it off the list; its folder stays, unless it is removed with --rm."""
    given = settings_for(c, cluster_alias)
    paddlecloud.check_job_name(job)
    client = paddlecloud.connect(given, cluster_alias, say)
    name = paddlecloud.known_job(client, job)
    paddlecloud.check_own(client, name)
    folder = paddlecloud.job_folder(client, name)
    if remove and not yes and sys.stdin.isatty():
        prompts.confirm(f"kill {name} and remove {folder} with everything in it?", "nothing was done")
    paddlecloud.kill(client, name, is_folder_enough=remove)
    if remove:
        paddlecloud.wait_for_end(client, name)
        paddlecloud.PfsPlaces(client, given, say).remove_folder(folder)


@task(nicknames={"all": "a"}, help={"all": ALL_HELP})
def jobs(c: Context, all: bool = False, cluster_alias: str | None = None, output: str | None = None) -> None:
    """List your jobs that have not ended, newest first; all with -a."""
    client = paddlecloud.connect(settings_for(c, cluster_alias), cluster_alias, say)
    show(c, paddlecloud.list_jobs(client, all), views.paddle.short_table, output)


@task(
    positional=["what", "job"],
    nicknames={"all": "a"},
    help={
        "what": "jobs, workers or quota",
        "job": "with `workers`: the job",
        "all": ALL_HELP,
    },
)
def get(
    c: Context,
    what: str,
    job: str = "",
    all: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List jobs, the workers of a job, or your quota."""
    rows = paddlecloud.parse_resource(what, job, all)
    client = paddlecloud.connect(settings_for(c, cluster_alias), cluster_alias, say)
    show(c, rows(client), getattr(views.paddle, f"{what}_table"), output)


@task(
    positional=["job"],
    nicknames={"worker": "w"},
    help={
        "job": f"{JOB_HELP} (default: the newest job)",
        "lines": "number of lines of each trainer",
        "worker": "only this worker, as `paddle.get workers JOB` lists them",
        "follow": "follow the output until the job ends, and exit with its exit code",
    },
)
def logs(
    c: Context,
    job: str = "",
    lines: int = 10,
    worker: str = "",
    follow: bool = False,
    cluster_alias: str | None = None,
) -> None:
    """Show the output of a job's trainers."""
    paddlecloud.check_logs(lines, worker, follow)
    client = paddlecloud.connect(settings_for(c, cluster_alias), cluster_alias, say)
    if follow:
        views.paddle.follow_logs(client, job or paddlecloud.newest_job(client), lines)
    else:
        views.paddle.show_logs(*paddlecloud.read_logs(client, job, lines, worker))


@task(
    name="pfs-cp",
    nicknames={"verbose": "v"},
    help={
        "paths": f"the sources and, last, the target: one side on this machine, the other {PFS_HELP}",
        "recursive": "ignored, for compatibility with `cp -r`: folders are always copied with their contents",
        "verbose": "also list files that are unchanged",
        "chunksize": "size of the chunks to transfer, in KiB",
        "workers": "number of files to copy at once",
    },
)
def pfs_cp(
    c: Context,
    paths: list[str],
    recursive: bool = True,
    verbose: bool = False,
    chunksize: int | None = None,
    workers: int = 8,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Copy files and folders to or from PFS; run it again to continue."""
    paddlecloud.check_pair(paths)
    chunk = paddlecloud.check_chunk_size(chunksize)
    sources, target = _places(c, cluster_alias, paths, chunk).locate_pair(paths)
    done = "Uploaded" if target.origin else "Downloaded"
    with views.transfers.copying(views.paddle.file_lines(done, sources[0].origin, verbose)) as meter:
        copied = sdk.files.copy(sources, target, sdk.files.copy_rules(workers), meter)
    views.paddle.report_failures(copied)
    show(c, copied, views.paddle.copy_summary, output)
    sdk.files.check_copied(copied)


@task(
    name="pfs-ls",
    help={
        "paths": PFS_HELP,
        "recursive": "list everything below a folder",
        "names": "only the names",
    },
)
def pfs_ls(
    c: Context,
    paths: list[str],
    recursive: bool = False,
    names: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List files and folders on PFS."""
    paddlecloud.check_pfs(paths)
    found = paddlecloud.list_pfs(_places(c, cluster_alias, paths).locate_all(paths), recursive)
    show(c, found, views.paddle.names if names else views.paddle.pfs_listings, output)


@task(
    name="pfs-rm",
    help={
        "paths": PFS_HELP,
        "recursive": "remove folders with their contents",
    },
)
def pfs_rm(
    c: Context, paths: list[str], recursive: bool = False, yes: bool = False, cluster_alias: str | None = None
) -> None:
    """Remove files and folders on PFS."""
    paddlecloud.check_pfs(paths)
    removals = _places(c, cluster_alias, paths).plan_removals(paths, recursive)
    if not yes and sys.stdin.isatty():
        views.listings.confirm_removals(removals)
    elif not yes:
        sdk.files.check_guesses(removals)
    for removal in removals:
        sdk.files.remove([removal])
        terminal.put(f"rm {removal.place.url}")


@task(name="pfs-mkdir", help={"paths": PFS_HELP})
def pfs_mkdir(c: Context, paths: list[str], cluster_alias: str | None = None) -> None:
    """Create folders on PFS, with missing parents."""
    paddlecloud.check_pfs(paths)
    places = _places(c, cluster_alias, paths)
    for place in [places.locate(path) for path in paths]:
        paddlecloud.make_folder(place)
        terminal.put(f"mkdir {place.url}")


def _places(c: Context, cluster_alias: str | None, paths: list[str], chunk: int | None = None) -> PfsPlaces:
    given = settings_for(c, cluster_alias)
    return paddlecloud.PfsPlaces(paddlecloud.connect(given, cluster_alias, say, paths), given, say, chunk)
