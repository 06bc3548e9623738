"""Many small files as a few large ones, and back."""

from __future__ import annotations

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import say, settings, show, task
from openpai_tasks.tasks.storage import COPYING, PATH


@task(
    positional=["folder", "target"],
    kinds={"workers": int},
    help={
        "folder": f"the folder to pack: {PATH}",
        "target": "the folder for the shards and their index; it is made, and must hold nothing else",
        "format": "tar, tfrecord or sequencefile",
        "shard-size": "how large a shard shall be, such as 64M or 1G",
        "name": "what the names of the shards begin with, before their mark; else the folder's name",
        "replace": "pack anew in the place of the packed files there, which stay until the new ones are",
        "workers": "how many small files are read at once",
    },
)
def pack(
    c, folder, target, format="tar", shard_size="256M", name=None, replace=False, workers=8, output=None
):
    """Pack a folder into a few large files with an index, streamed straight into the store."""
    tree, place = _located(c, folder, target)
    rules = sdk.files.packing_rules(tree, format, shard_size, name, replace, workers)
    with (
        views.transfers.metered() as meter,
        views.transfers.ended_by(lambda: "nothing of it stays; run it again"),
    ):
        packed = sdk.files.pack(tree, place, rules, meter)
    show(c, packed, views.listings.packed, output)


@task(
    positional=["source", "target"],
    kinds={"workers": int},
    help={
        **COPYING,
        "source": f"the folder with the index; or shards without one, also by a pattern: {PATH}",
        "target": "the folder for the files",
    },
)
def unpack(c, source, target, checksum=False, workers=8, preview=False, output=None):
    """Restore the files that were packed; run again, it continues."""
    packed, place = _located(c, source, target)
    rules = sdk.files.copy_rules(workers, checksum, preview=preview)
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.unpack(packed, place, rules, meter)
    show(c, copied, views.listings.summary, output)
    sdk.files.check_copied(copied)


def _located(c, *texts):
    book = sdk.files.ClusterStorages(settings(c), say)
    return [sdk.files.locate(text, book) for text in texts]
