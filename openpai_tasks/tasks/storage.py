"""Work with files on this machine and on the clusters' storages."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import say, settings, settings_for, show
from openpai_tasks.tasks.framework.task import task

STORAGES = (
    *("name", "type", "server", "mount_point", "permission"),
    *("default", "selected", "workspace", "origin", "url"),
)

PATH = "a local path, or pai://CLUSTER/STORAGE/PATH"
COPYING = {
    "checksum": "compare files by content, not by size and time",
    "workers": "number of files to copy at once",
    "preview": "only show what would be done",
}


@task(name="list", default=True, positional=["cluster_alias"])
def list_(c, cluster_alias=None, output=None):
    """List a cluster's storages that you may use, and those you added."""
    show(c, sdk.files.list_storages(settings_for(c, cluster_alias), None, say), STORAGES, output)


@task(
    aliases=("ls",),
    positional=["paths"],
    iterable=["paths"],
    help={
        "paths": f"{PATH} (default: this folder)",
        "all": "include partial files of running or interrupted copies",
    },
)
def listdir(c, paths=None, all=False, output=None):
    """List folders and files."""
    given = settings(c, output=output)
    found = sdk.known_names.note_paths(
        sdk.files.list_files(sdk.files.locate_all(paths or ["."], _storages(c)), all)
    )
    views.listings.show_files(found, given.output)


@task(
    aliases=("cp",),
    positional=["paths"],
    iterable=["paths"],
    kinds={"workers": int},
    help={
        **COPYING,
        "paths": f"the sources and, last, the target; each {PATH}. A single folder becomes TARGET, or "
        "TARGET/FOLDER if TARGET ends with /",
        "recursive": "ignored, for compatibility with `cp -r`: folders are always copied with their contents",
    },
)
def copy(c, paths, checksum=False, workers=8, preview=False, recursive=True, output=None):
    """Copy files and folders; run it again to continue."""
    *sources, target = sdk.files.require_two(paths)
    book, rules = _storages(c), sdk.files.copy_rules(workers, checksum, preview=preview)
    places = [sdk.files.locate(source, book) for source in sources]
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.copy(places, sdk.files.locate(target, book), rules, meter)
    _report(c, copied, output)


@task(
    positional=["source", "target"],
    kinds={"workers": int},
    help={
        **COPYING,
        "source": f"folder to copy from: {PATH}",
        "target": "folder to make identical to it",
        "delete": "remove files that the source does not have, after everything else was copied",
    },
)
def sync(c, source, target, delete=False, checksum=False, workers=8, preview=False, output=None):
    """Make a folder identical to another one, copying only what differs."""
    book, rules = _storages(c), sdk.files.copy_rules(workers, checksum, delete, preview)
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.sync(sdk.files.locate(source, book), sdk.files.locate(target, book), rules, meter)
    _report(c, copied, output)


@task(aliases=("mkdir", "makedirs"), positional=["paths"], iterable=["paths"], help={"paths": PATH})
def makedir(c, paths):
    """Create folders, with missing parents."""
    sdk.files.make_folders(paths, _storages(c))


@task(
    aliases=("rm", "delete"),
    positional=["paths"],
    iterable=["paths"],
    help={
        "paths": PATH,
        "recursive": "remove folders with their contents",
        "ask": "ask before removing anything; without a terminal, files of this machine need --yes",
        "yes": "do not ask",
    },
)
def remove(c, paths, recursive=False, ask=False, yes=False):
    """Remove files and folders."""
    removals = sdk.files.plan_removals(paths, _storages(c), recursive)
    if not yes and sys.stdin.isatty():
        views.listings.confirm_removals(removals, ask)
    elif not yes:
        sdk.files.refuse_guesses(removals, ask)
    sdk.files.remove(removals)


@task(
    aliases=("info",),
    positional=["path"],
    help={"path": PATH, "checksum": "include a checksum of the file's content"},
)
def getinfo(c, path, checksum=False, output=None):
    """Show details of a file or folder."""
    show(c, sdk.files.file_facts(sdk.files.locate(path, _storages(c)), checksum), render.facts, output)


@task(positional=["paths"], iterable=["paths"], help={"paths": PATH})
def cat(c, paths):
    """Print the contents of files."""
    views.listings.write_bytes(sdk.files.read_files(sdk.files.locate_all(paths, _storages(c))))


@task(positional=["path"], kinds={"lines": int}, help={"path": PATH, "lines": "number of lines"})
def head(c, path, lines=10):
    """Print the first lines of a file."""
    views.listings.write_bytes(sdk.files.head(sdk.files.locate(path, _storages(c)), lines))


@task(positional=["path"], help={"path": f"{PATH} (default: this folder)"})
def du(c, path=".", output=None):
    """Show the disk usage of everything in a folder."""
    found = sdk.files.disk_usage(sdk.files.locate(path, _storages(c)))
    views.listings.show_usage(found, settings(c, output=output).output)


@task(
    positional=["path"],
    kinds={"depth": int},
    help={"path": f"{PATH} (default: this folder)", "depth": "number of levels; 0 for all"},
)
def tree(c, path=".", depth=0, output=None):
    """Show a folder and everything below it as a tree."""
    place = sdk.files.locate(path, _storages(c))
    views.listings.show_tree(place.url, sdk.files.tree(place, depth), settings(c, output=output).output)


@task(
    positional=["path"],
    kinds={"min_size": str},
    help={
        "path": f"{PATH} (default: this folder)",
        "name": "pattern for names, such as '*.csv'",
        "type": "file or folder",
        "min-size": "only files of at least this size: bytes, or a size such as 64K or 1G",
    },
)
def find(c, path=".", name=None, type=None, min_size=0, output=None):
    """Find files and folders by name, type and size."""
    found = sdk.files.find_files(sdk.files.locate(path, _storages(c)), name, type, min_size)
    views.listings.show_files(found, settings(c, output=output).output)


def _storages(c):
    return sdk.files.ClusterStorages(settings(c), say)


def _report(c, copied, output):
    show(c, copied, views.listings.describe_copy, output)
    sdk.files.check_copied(copied)
