"""Many small files as a few large ones, and back."""

from __future__ import annotations

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework.base import say, settings, show, task
from openpai_tasks.tasks.storage import COPYING, PATH

files = lazy("openpai_tasks.sdk.files.operations")
listings = lazy("openpai_tasks.tasks.views.listings")
locations = lazy("openpai_tasks.storage.location")
packing = lazy("openpai_tasks.sdk.files.packing")
storages = lazy("openpai_tasks.sdk.files.storages")
transfers = lazy("openpai_tasks.tasks.views.transfers")


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
    rules = packing.rules(tree, format, shard_size, name, replace, workers)
    with transfers.metered() as meter, transfers.ended_by(lambda: "nothing of it stays; run it again"):
        packed = packing.pack(tree, place, rules, meter)
    show(c, packed, listings.packed, output)


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
    rules = files.rules(workers, checksum, preview=preview)
    with transfers.copying(c, output, preview) as meter:
        copied = packing.unpack(packed, place, rules, meter)
    show(c, copied, listings.summary, output)
    files.check(copied)


def _located(c, *texts):
    book = storages.Clusters(settings(c), say)
    return [locations.locate(text, book) for text in texts]
