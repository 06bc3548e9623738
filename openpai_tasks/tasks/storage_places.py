"""Which storage is worked on, and storages of one's own."""

from __future__ import annotations

import sys

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import chosen, say, show, task
from openpai_tasks.tasks.framework.prompts import answer

own_storages = lazy("openpai_tasks.sdk.files.user_storages")
render = lazy("openpai_tasks.render")
selecting = lazy("openpai_tasks.sdk.files.selecting")
storages = lazy("openpai_tasks.sdk.files.storages")

CHOICES = ("name", "type", "server", "permission", "default", "selected", "origin")
ADDED = ("name", "type", "server", "permission", "origin", "url")


@task(
    positional=["storage_name"],
    help={
        "storage-name": "the storage, as `storage.list` shows it; asked for on a terminal if not given",
        "workspace": "folder below yours that work is kept in; it is made",
    },
)
def select(c, storage_name=None, workspace="", cluster_alias=None, output=None):
    """Choose a cluster's storage, which pai://CLUSTER/0/ is then the root of, and your workspace on it."""
    given = chosen(c, cluster_alias)
    storage = storage_name or _asked(given, None)
    show(c, selecting.select(given, None, storage, workspace, say), render.facts, output)


@task(
    positional=["name", "options"],
    iterable=["option", "options"],
    help={
        "name": "the name you want to call it by; its type if not given",
        "options": "further options, NAME=VALUE, as the older clients took them",
        "type": "hdfs, local, nfs, samba, azurefile, azureblob or s3",  # the table of kinds loads later
        "address": "where it is: HOST, //HOST/SHARE, name nodes with commas between them, or a url",
        "path": "the folder to begin at; of s3 and Azure, the bucket, container or share comes first",
        "user": "your name, account or access key there",
        "option": "further option of this type, NAME=VALUE; repeat for more",
        "password-file": "file with the password or key; - for standard input",
        "read-only": "never write there",
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
    """Add a storage of your own to a cluster: connect, look, remember it."""
    words = [*([name] if name and "=" in name else []), *(options or ()), *(option or ())]
    called = name if name and "=" not in name else type
    own = own_storages.new(called or "", type or "", address, path, user, words, read_only)
    own_storages.refuse_missing(own)
    secret = secrets.for_storage(own, password_file)
    show(c, [selecting.add(chosen(c, cluster_alias), None, own, secret, say)], ADDED, output)


@task(positional=["names"], iterable=["names"], help={"names": "storages that you added"})
def forget(c, names, cluster_alias=None):
    """Forget storages of your own; the files on them stay."""
    selecting.forget(chosen(c, cluster_alias), None, names, say)
    for name in dict.fromkeys(names):
        say(f"forgot {name}")


def _asked(given, alias):
    """What a person answers who sees the choices."""
    if not sys.stdin.isatty():
        raise selecting.missing(given, alias, say)
    say(*render.text(storages.listed(given, alias, say), CHOICES, "table").split("\n"))
    chosen = answer("storage: ")
    if not chosen:
        raise selecting.missing(given, alias, say)
    return chosen
