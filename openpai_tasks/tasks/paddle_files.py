"""Files on PFS, the storage of PaddleCloud."""

from __future__ import annotations

import sys

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, settings_for, show
from openpai_tasks.tasks.framework.task import task
from openpai_tasks.tasks.paddle import ALIAS_HELP

PFS = "a path such as /pfs/DATACENTER/home/USER/PATH"


@task(
    name="pfs-cp",
    positional=["paths"],
    iterable=["paths"],
    kinds={"chunksize": int},
    nicknames={"verbose": "v"},
    help={
        "paths": f"the sources and, last, the target: one side on this machine, the other {PFS}",
        "recursive": "ignored, for compatibility with `cp -r`: folders are always copied with their contents",
        "verbose": "also list files that are unchanged",
        "chunksize": "size of the pieces that travel, in KiB",
        "workers": "number of files to copy at once",
        "cluster-alias": ALIAS_HELP,
    },
)
def pfs_cp(
    c, paths, recursive=True, verbose=False, chunksize=None, workers=8, cluster_alias=None, output=None
):
    """Copy files and folders to or from PFS; run it again to continue."""
    sdk.paddlecloud.check_pair(paths)
    sdk.paddlecloud.check_chunk_size(chunksize)
    sources, target = _places(c, cluster_alias).locate_pair(paths)
    done = "Uploaded" if target.origin else "Downloaded"
    with views.paddle.copying(done, sources[0].origin, verbose) as meter:
        copied = sdk.files.copy(sources, target, sdk.files.copy_rules(workers), meter)
    views.paddle.report_failures(copied)
    show(c, copied, views.listings.describe_copy, output)
    sdk.files.check_copied(copied)


@task(
    name="pfs-ls",
    positional=["paths"],
    iterable=["paths"],
    help={
        "paths": PFS,
        "recursive": "list everything below a folder",
        "names": "only the names",
        "cluster-alias": ALIAS_HELP,
    },
)
def pfs_ls(c, paths, recursive=False, names=False, cluster_alias=None, output=None):
    """List files and folders on PFS."""
    sdk.paddlecloud.check_pfs(paths)
    found = sdk.paddlecloud.list_pfs(_places(c, cluster_alias).locate_all(paths), recursive)
    show(c, found, views.paddle.names if names else views.paddle.listings, output)


@task(
    name="pfs-rm",
    positional=["paths"],
    iterable=["paths"],
    help={
        "paths": PFS,
        "recursive": "remove folders with their contents",
        "yes": "do not ask",
        "cluster-alias": ALIAS_HELP,
    },
)
def pfs_rm(c, paths, recursive=False, yes=False, cluster_alias=None):
    """Remove files and folders on PFS."""
    sdk.paddlecloud.check_pfs(paths)
    removals = _places(c, cluster_alias).plan_removals(paths, recursive)
    if not yes and sys.stdin.isatty():
        views.listings.confirm_removals(removals)
    elif not yes:
        sdk.files.refuse_guesses(removals)
    for removal in removals:
        sdk.files.remove([removal])
        terminal.put(f"rm {removal.place.url}")


@task(
    name="pfs-mkdir",
    positional=["paths"],
    iterable=["paths"],
    help={"paths": PFS, "cluster-alias": ALIAS_HELP},
)
def pfs_mkdir(c, paths, cluster_alias=None):
    """Create folders on PFS, with missing parents."""
    sdk.paddlecloud.check_pfs(paths)
    places = _places(c, cluster_alias)
    for place in [places.locate(path) for path in paths]:
        sdk.paddlecloud.make_folder(place)
        terminal.put(f"mkdir {place.url}")


def _places(c, cluster_alias):
    given = settings_for(c, cluster_alias)
    return sdk.paddlecloud.PfsPlaces(sdk.paddlecloud.connect(given, cluster_alias, say), given, say)
