"""Select a cluster's storage, and add or remove your own storages."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import say, settings_for, show
from openpai_tasks.tasks.framework.prompts import answer
from openpai_tasks.tasks.framework.task import task

CHOICES = ("name", "type", "server", "permission", "default", "selected", "origin")
ADDED = ("name", "type", "server", "permission", "origin", "url")


@task(
    positional=["storage_name"],
    help={
        "storage-name": "the storage, as storage.list shows it; asked for on a terminal if not given",
        "workspace": "folder for your work on the storage; created if missing",
    },
)
def select(c, storage_name=None, workspace="", cluster_alias=None, output=None):
    """Select a cluster's storage (pai://CLUSTER/0/) and your workspace on it."""
    given = settings_for(c, cluster_alias)
    storage = storage_name or _ask_storage(given, None)
    show(c, sdk.files.select_storage(given, None, storage, workspace, say), render.facts, output)


@task(
    positional=["name", "options"],
    iterable=["option", "options"],
    help={
        "name": "your name for the storage (default: its type)",
        "options": "options as NAME=VALUE, the way the older clients took them",
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
    c,
    name=None,
    options=None,
    type=None,
    address="",
    path="",
    user="",
    option=None,
    password_file=None,
    read_only=False,
    cluster_alias=None,
    output=None,
):
    """Add your own storage to a cluster: connect to it and save it."""
    words = [*([name] if name and "=" in name else []), *(options or ()), *(option or ())]
    chosen_name = name if name and "=" not in name else type
    own = sdk.files.parse_storage(chosen_name or "", type or "", address, path, user, words, read_only)
    sdk.files.check_installed(own)
    secret = secrets.storage_secret(own, password_file)
    show(c, [sdk.files.add_storage(settings_for(c, cluster_alias), None, own, secret, say)], ADDED, output)


@task(positional=["names"], iterable=["names"], help={"names": "storages that you added"})
def forget(c, names, cluster_alias=None):
    """Remove storages that you added from the list; their files stay."""
    sdk.files.forget_storages(settings_for(c, cluster_alias), None, names, say)
    for name in dict.fromkeys(names):
        say(f"removed storage {name}; its files stay")


def _ask_storage(given, alias):
    """Show the storages and ask for one."""
    if not sys.stdin.isatty():
        raise sdk.files.no_storage_named(given, alias, say)
    rows = render.format_values(sdk.files.list_storages(given, alias, say), CHOICES, "table")
    say(*rows.split("\n"), always=True)
    chosen = answer("storage: ")
    if not chosen:
        raise sdk.files.no_storage_named(given, alias, say)
    return chosen
