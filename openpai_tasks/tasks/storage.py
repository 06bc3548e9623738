"""Files here and on the clusters' storages."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import chosen, say, settings, show, task

STORAGES = (
    *("name", "type", "server", "mount_point", "permission"),
    *("default", "selected", "workspace", "origin", "url"),
)

PATH = "a path of this machine, or pai://CLUSTER/STORAGE/PATH"
COPYING = {
    "checksum": "compare contents, not size and time, to see what is there already",
    "workers": "how many files travel at once",
    "preview": "only tell what would be done",
}


@task(name="list", default=True, positional=["cluster_alias"])
def list_(c, cluster_alias=None, output=None):
    """Show the storages that a cluster grants you, and those you added."""
    show(c, sdk.files.list_storages(chosen(c, cluster_alias), None, say), STORAGES, output)


@task(
    aliases=("ls",),
    positional=["paths"],
    iterable=["paths"],
    help={
        "paths": f"{PATH}; this folder if none",
        "all": "also parts of files that are being copied, or were when the copy was killed",
    },
)
def listdir(c, paths=None, all=False, output=None):
    """List folders and files."""
    given = settings(c, output=output)
    found = sdk.known_names.note_paths(
        sdk.files.list_files(sdk.files.locate_all(paths or ["."], _book(c)), all)
    )
    views.listings.stream(found, given.output)


@task(
    aliases=("cp",),
    positional=["paths"],
    iterable=["paths"],
    kinds={"workers": int},
    help={
        **COPYING,
        "paths": f"the sources and, last, the target; each {PATH}",
        "recursive": "folders are always copied with all that is in them; for fingers that write `cp -r`",
    },
)
def copy(c, paths, checksum=False, workers=8, preview=False, recursive=True, output=None):
    """Copy files and folders, by the rules of `cp -r`; run again, it continues."""
    *sources, target = sdk.files.require_two(paths)
    book, rules = _book(c), sdk.files.copy_rules(workers, checksum, preview=preview)
    places = [sdk.files.locate(source, book) for source in sources]
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.copy(places, sdk.files.locate(target, book), rules, meter)
    _report(c, copied, output)


@task(
    positional=["source", "target"],
    kinds={"workers": int},
    help={
        **COPYING,
        "source": f"the folder to copy from: {PATH}",
        "target": "the folder that shall become like it",
        "delete": "remove what the source does not have, once everything else has arrived",
    },
)
def sync(c, source, target, delete=False, checksum=False, workers=8, preview=False, output=None):
    """Make a folder hold what another one holds; what is there already is skipped."""
    book, rules = _book(c), sdk.files.copy_rules(workers, checksum, delete, preview)
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.sync(sdk.files.locate(source, book), sdk.files.locate(target, book), rules, meter)
    _report(c, copied, output)


@task(aliases=("mkdir", "makedirs"), positional=["paths"], iterable=["paths"], help={"paths": PATH})
def makedir(c, paths):
    """Make folders, and what is missing above them."""
    sdk.files.make_folders(paths, _book(c))


@task(
    aliases=("rm", "delete"),
    positional=["paths"],
    iterable=["paths"],
    help={"paths": PATH, "recursive": "folders with all that is in them", "yes": "do not ask"},
)
def remove(c, paths, recursive=False, yes=False):
    """Remove files and folders."""
    removals = sdk.files.plan_removals(paths, _book(c), recursive)
    if not yes and sys.stdin.isatty():
        views.listings.confirm_removals(removals)
    elif not yes:
        sdk.files.refuse_guesses(removals)
    sdk.files.remove(removals)


@task(
    aliases=("info",),
    positional=["path"],
    help={"path": PATH, "checksum": "also tell the fingerprint of a file's content"},
)
def getinfo(c, path, checksum=False, output=None):
    """Show what is known of a file or folder."""
    show(c, sdk.files.file_facts(sdk.files.locate(path, _book(c)), checksum), render.facts, output)


@task(positional=["paths"], iterable=["paths"], help={"paths": PATH})
def cat(c, paths):
    """Print files."""
    views.listings.pour(sdk.files.read_files(sdk.files.locate_all(paths, _book(c))))


@task(positional=["path"], kinds={"lines": int}, help={"path": PATH, "lines": "how many lines"})
def head(c, path, lines=10):
    """Print the first lines of a file."""
    views.listings.pour(sdk.files.head(sdk.files.locate(path, _book(c)), lines))


@task(positional=["path"], help={"path": f"{PATH}; this folder if none"})
def du(c, path=".", output=None):
    """Show how much space each thing in a folder takes up."""
    found = sdk.files.disk_usage(sdk.files.locate(path, _book(c)))
    views.listings.usage(found, settings(c, output=output).output)


@task(
    positional=["path"],
    kinds={"depth": int},
    help={"path": f"{PATH}; this folder if none", "depth": "how many levels; 0 for all"},
)
def tree(c, path=".", depth=0, output=None):
    """Show a folder and all below it as a tree."""
    place = sdk.files.locate(path, _book(c))
    views.listings.tree(place.url, sdk.files.tree(place, depth), settings(c, output=output).output)


@task(
    positional=["path"],
    kinds={"min_size": str},
    help={
        "path": f"{PATH}; this folder if none",
        "name": "a pattern that the name must fit, such as '*.csv'",
        "type": "file or folder",
        "min-size": "only files as large or larger: bytes, or a size such as 64K or 1G",
    },
)
def find(c, path=".", name=None, type=None, min_size=0, output=None):
    """Find files and folders by name, type and size."""
    found = sdk.files.find_files(sdk.files.locate(path, _book(c)), name, type, min_size)
    views.listings.stream(found, settings(c, output=output).output)


def _book(c):
    return sdk.files.ClusterStorages(settings(c), say)


def _report(c, copied, output):
    show(c, copied, views.listings.summary, output)
    sdk.files.check_copied(copied)
