"""Work with files on this machine and on the clusters' storages."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets, terminal
from openpai_tasks.tasks.framework.base import connect, say, settings, settings_for, show
from openpai_tasks.tasks.framework.prompts import answer
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.tasks.views.job_flags import COPY_HELP
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.files.job_folders import Home
    from openpai_tasks.sdk.files.storages import ClusterStorages
    from openpai_tasks.settings.config import Settings
    from openpai_tasks.storage.location import Location

STORAGES = (
    *("name", "type", "server", "mount_point", "permission"),
    *("default", "selected", "workspace", "origin", "url"),
)

PATH_HELP = "a local path, or pai://CLUSTER/STORAGE/PATH"
CHOICES = ("name", "type", "server", "permission", "default", "selected", "origin")
ADDED = ("name", "type", "server", "permission", "origin", "url")

WORKSPACE_HELP = "folder on the storage (default: the selected workspace, or yours on the default storage)"
STATE_HELP = "only files of jobs in this state (SUCCEEDED, FAILED, STOPPED, GONE); repeat for more"


@task(name="list", default=True, positional=["cluster_alias"])
def list_(c: Context, cluster_alias: str | None = None, output: str | None = None) -> None:
    """List a cluster's storages that you may use, and those you added."""
    show(c, sdk.files.list_storages(settings_for(c, cluster_alias), None, say), STORAGES, output)


@task(
    aliases=("ls",),
    positional=["paths"],
    help={
        "paths": f"{PATH_HELP} (default: this folder)",
        "all": "include partial files of running or interrupted copies",
    },
)
def listdir(c: Context, paths: list[str] | None = None, all: bool = False, output: str | None = None) -> None:
    """List folders and files."""
    given = settings(c, output=output)
    found = sdk.known_names.note_paths(
        sdk.files.list_files(sdk.files.locate_all(paths or ["."], _storages(c)), all)
    )
    views.listings.show_files(found, given.output)


@task(
    aliases=("cp",),
    help={
        **COPY_HELP,
        "paths": f"the sources and, last, the target; each {PATH_HELP}. A single folder becomes TARGET, or "
        "TARGET/FOLDER if TARGET ends with /",
        "recursive": "ignored, for compatibility with `cp -r`: folders are always copied with their contents",
    },
)
def copy(
    c: Context,
    paths: list[str],
    checksum: bool = False,
    workers: int = 8,
    preview: bool = False,
    recursive: bool = True,
    output: str | None = None,
) -> None:
    """Copy files and folders; run it again to continue."""
    wanted, rules = sdk.files.require_two(paths), sdk.files.copy_rules(workers, checksum, preview=preview)
    *sources, target = _locate(c, *wanted)
    views.transfers.run_copy(c, partial(sdk.files.copy, sources, target, rules), output, preview)


@task(
    help={
        **COPY_HELP,
        "source": f"folder to copy from: {PATH_HELP}",
        "target": "folder to make identical to it",
        "delete": "remove files that the source does not have, after everything else was copied",
    },
)
def sync(
    c: Context,
    source: str,
    target: str,
    delete: bool = False,
    checksum: bool = False,
    workers: int = 8,
    preview: bool = False,
    output: str | None = None,
) -> None:
    """Make a folder identical to another one, copying only what differs."""
    rules = sdk.files.copy_rules(workers, checksum, delete, preview)
    original, place = _locate(c, source, target)
    views.transfers.run_copy(c, partial(sdk.files.sync, original, place, rules), output, preview)


@task(aliases=("mkdir", "makedirs"), help={"paths": PATH_HELP})
def makedir(c: Context, paths: list[str]) -> None:
    """Create folders, with missing parents."""
    sdk.files.make_folders(paths, _storages(c))


@task(
    aliases=("rm", "delete"),
    help={
        "paths": PATH_HELP,
        "recursive": "remove folders with their contents",
        "ask": "ask before removing anything; without a terminal, files of this machine need --yes",
    },
)
def remove(
    c: Context, paths: list[str], recursive: bool = False, ask: bool = False, yes: bool = False
) -> None:
    """Remove files and folders."""
    removals = sdk.files.plan_removals(paths, _storages(c), recursive)
    if not yes and sys.stdin.isatty():
        views.listings.confirm_removals(removals, ask)
    elif not yes:
        sdk.files.check_guesses(removals, ask)
    sdk.files.remove(removals)


@task(aliases=("info",), help={"path": PATH_HELP, "checksum": "include a checksum of the file's content"})
def getinfo(c: Context, path: str, checksum: bool = False, output: str | None = None) -> None:
    """Show details of a file or folder."""
    show(c, sdk.files.file_facts(sdk.files.locate(path, _storages(c)), checksum), render.facts, output)


@task(help={"paths": PATH_HELP})
def cat(c: Context, paths: list[str]) -> None:
    """Print the contents of files."""
    terminal.write_bytes(sdk.files.read_files(sdk.files.locate_all(paths, _storages(c))))


@task(help={"path": PATH_HELP, "lines": "number of lines"})
def head(c: Context, path: str, lines: int = 10) -> None:
    """Print the first lines of a file."""
    terminal.write_bytes(sdk.files.head(sdk.files.locate(path, _storages(c)), lines))


@task(positional=["path"], help={"path": f"{PATH_HELP} (default: this folder)"})
def du(c: Context, path: str = ".", output: str | None = None) -> None:
    """Show the disk usage of everything in a folder."""
    found = sdk.files.disk_usage(sdk.files.locate(path, _storages(c)))
    views.listings.show_usage(found, settings(c, output=output).output)


@task(
    positional=["path"],
    help={"path": f"{PATH_HELP} (default: this folder)", "depth": "number of levels; 0 for all"},
)
def tree(c: Context, path: str = ".", depth: int = 0, output: str | None = None) -> None:
    """Show a folder and everything below it as a tree."""
    place = sdk.files.locate(path, _storages(c))
    views.listings.show_tree(place.url, sdk.files.tree(place, depth), settings(c, output=output).output)


@task(
    positional=["path"],
    help={
        "path": f"{PATH_HELP} (default: this folder)",
        "name": "pattern for names, such as '*.csv'",
        "type": "file or folder",
        "min-size": "only files of at least this size: bytes, or a size such as 64K or 1G",
    },
)
def find(
    c: Context,
    path: str = ".",
    name: str | None = None,
    type: str | None = None,
    min_size: str = "0",
    output: str | None = None,
) -> None:
    """Find files and folders by name, type and size."""
    found = sdk.files.find_files(sdk.files.locate(path, _storages(c)), name, type, min_size)
    views.listings.show_files(found, settings(c, output=output).output)


def _storages(c: Context) -> ClusterStorages:
    return sdk.files.ClusterStorages(settings(c), say)


def _locate(c: Context, *texts: str) -> list[Location]:
    storages = _storages(c)
    return [sdk.files.locate(text, storages) for text in texts]


@task(
    positional=["storage_name"],
    help={
        "storage-name": "the storage, as storage.list shows it; asked for on a terminal if not given",
        "workspace": "folder for your work on the storage; created if missing",
    },
)
def select(
    c: Context,
    storage_name: str | None = None,
    workspace: str = "",
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Select a cluster's storage (pai://CLUSTER/0/) and your workspace on it."""
    given = settings_for(c, cluster_alias)
    storage = storage_name or _ask_storage(given)
    show(c, sdk.files.select_storage(given, None, storage, workspace, say), render.facts, output)


@task(
    positional=["name", "options"],
    help={
        "name": "your name for the storage (default: its type)",
        "options": "options as NAME=VALUE, as in older clients",
        "type": "hdfs, local, nfs, samba, azurefile, azureblob or s3",  # the table of kinds loads later
        "address": "its address: HOST, //HOST/SHARE, name nodes separated by commas, or a URL",
        "path": "root folder; for s3 and Azure it begins with the bucket, container or share",
        "user": "your user name, account or access key there",
        "option": "option of this storage type, NAME=VALUE; repeat for more",
        "password-file": "file with the password or key; - for standard input",
        "read-only": "never write to it",
    },
)
def add(
    c: Context,
    name: str | None = None,
    options: list[str] | None = None,
    type: str | None = None,
    address: str = "",
    path: str = "",
    user: str = "",
    option: list[str] | None = None,
    password_file: str | None = None,
    read_only: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Add your own storage to a cluster: connect to it and save it."""
    words = [*([name] if name and "=" in name else []), *(options or ()), *(option or ())]
    chosen_name = name if name and "=" not in name else type
    own = sdk.files.parse_storage(chosen_name or "", type or "", address, path, user, words, read_only)
    sdk.files.check_installed(own)
    secret = secrets.storage_secret(own, password_file)
    show(c, [sdk.files.add_storage(settings_for(c, cluster_alias), None, own, secret, say)], ADDED, output)


@task(help={"names": "storages that you added"})
def forget(c: Context, names: list[str], cluster_alias: str | None = None) -> None:
    """Remove storages that you added from the list; their files stay."""
    sdk.files.forget_storages(settings_for(c, cluster_alias), None, names, say)
    for name in dict.fromkeys(names):
        say(f"removed storage {name}; its files stay")


def _ask_storage(given: Settings) -> str:
    """Show the storages and ask for one."""
    chosen = ""
    if sys.stdin.isatty():
        rows = render.format_values(sdk.files.list_storages(given, None, say), CHOICES, "table")
        say(*rows.split("\n"), always=True)
        chosen = answer("storage: ")
    if not chosen:
        raise sdk.files.no_storage_named(given, None, say)
    return chosen


@task(
    help={
        "folder": f"folder to pack: {PATH_HELP}",
        "target": "folder for the shards and their index; created if missing; it must contain nothing else",
        "format": "tar, tfrecord, sequencefile, or har (a Hadoop archive)",
        "shard-size": "size of a shard, such as 64M or 1G",
        "name": "prefix of the shards' names (default: the folder's name)",
        "replace": "replace the packed files in the target, once the new ones are complete",
        "workers": "number of files to read at once",
    },
)
def pack(
    c: Context,
    folder: str,
    target: str,
    format: str = "tar",
    shard_size: str = "256M",
    name: str | None = None,
    replace: bool = False,
    workers: int = 8,
    output: str | None = None,
) -> None:
    """Pack a folder into a few large files with an index, written directly to the storage."""
    tree, place = _locate(c, folder, target)
    rules = sdk.files.packing_rules(tree, format, shard_size, name, replace, workers)
    with (
        contextlib.closing(views.transfers.Meter()) as meter,
        views.transfers.report_interrupt(lambda: "nothing was written; run it again"),
    ):
        packed = sdk.files.pack(tree, place, rules, meter)
    show(c, packed, views.listings.describe_pack, output)


@task(
    help={
        **COPY_HELP,
        "source": f"folder with the index; or shards without an index, also as a pattern: {PATH_HELP}",
        "target": "folder for the files",
    },
)
def unpack(
    c: Context,
    source: str,
    target: str,
    checksum: bool = False,
    workers: int = 8,
    preview: bool = False,
    output: str | None = None,
) -> None:
    """Unpack packed files; run it again to continue."""
    rules = sdk.files.copy_rules(workers, checksum, preview=preview)
    packed, place = _locate(c, source, target)
    views.transfers.run_copy(c, partial(sdk.files.unpack, packed, place, rules), output, preview)


@task(
    help={
        "source": "a folder of a storage: pai://CLUSTER/STORAGE/PATH, or another URL",
        "folder": "an empty or a new folder of this machine",
        "write": "let programs change files, too",
        "background": "return once it is mounted, until `storage.unmount`",
    },
)
def mount(c: Context, source: str, folder: str, write: bool = False, background: bool = False) -> None:
    """Show a storage as a folder of this machine, read-only unless --write is given."""
    start = sdk.files.mount_in_background if background else sdk.files.mount
    start(sdk.files.locate(source, _storages(c)), folder, write, say)


@task(aliases=("umount",), help={"folder": "where the storage is mounted"})
def unmount(c: Context, folder: str) -> None:
    """Unmount a folder that `storage.mount --background` mounted."""
    sdk.files.unmount(folder)


@task(help={"workspace": WORKSPACE_HELP})
def usage(
    c: Context, workspace: str | None = None, cluster_alias: str | None = None, output: str | None = None
) -> None:
    """Show the files that jobs left on the storage, and their size."""
    client, home = _home(c, cluster_alias, workspace)
    show(c, sdk.files.find_leftovers(client, home), views.listings.storage_usage, output)


@task(
    positional=["paths"],
    help={
        "paths": "remove what interrupted copies left below these folders, instead of files of jobs",
        "older-than": "only files of jobs that ended, or parts of copies of other machines that changed, "
        "longer ago than this: 30d, 12h, 90m",
        "state": STATE_HELP,
        "preview": "only show what would be removed",
        "workspace": WORKSPACE_HELP,
    },
)
def clean(
    c: Context,
    paths: list[str] | None = None,
    older_than: str | None = None,
    state: list[str] | None = None,
    yes: bool = False,
    preview: bool = False,
    workspace: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Remove outputs and sources of ended jobs or, in given folders, what interrupted copies left."""
    age = None if older_than is None else sdk.amounts.read("older_than", sdk.amounts.seconds, older_than)
    if paths:
        if state or workspace or cluster_alias:
            raise ConfigError(
                "--state, --workspace and --cluster-alias are for files of jobs, not for a path"
            )
        places = sdk.files.locate_all(paths, _storages(c))
        parts = sdk.files.clean_parts(places, age, preview)
        show(c, parts, views.listings.cleaned_parts, output)
        return sdk.files.check_parts(parts)
    if age is None:
        raise ConfigError("--older-than is required, for example --older-than 30d")
    client, home = _home(c, cluster_alias, workspace)
    cleaning = sdk.files.plan_cleanup(sdk.files.find_leftovers(client, home), age, state or ())
    if not preview and not yes and (cleaning.jobs or cleaning.archives):
        jobs, archives = counted(len(cleaning.jobs), "job"), counted(len(cleaning.archives), "archive")
        count = f"{jobs} and {archives} of sources"
        views.listings.confirm_cleanup(
            views.listings.leftovers_table(cleaning.jobs),
            f"remove the files of {count} ({render.size(cleaning.size)}) from {home.url}?",
            f"not removed from {home.url}: {count}; add --yes to remove or --preview to list them",
        )
    cleaned = sdk.files.clean_up(client, home, cleaning, preview)
    show(c, cleaned, views.listings.cleaned, output)
    sdk.files.check_cleaned(cleaned)


def _home(c: Context, cluster_alias: str | None, workspace: str | None) -> tuple[Backend, Home]:
    given = settings(c, workspace=workspace)
    client = connect(c, cluster_alias)
    home = sdk.files.require_home(client, given.workspace, sdk.files.mounts(given))
    if home.note:
        say(home.note)
    return client, home
