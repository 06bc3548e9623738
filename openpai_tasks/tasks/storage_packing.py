"""Pack many small files into a few large ones, and unpack them."""

from __future__ import annotations

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import say, settings, show
from openpai_tasks.tasks.framework.task import task
from openpai_tasks.tasks.storage import COPYING, PATH


@task(
    positional=["folder", "target"],
    kinds={"workers": int},
    help={
        "folder": f"folder to pack: {PATH}",
        "target": "folder for the shards and their index; created if missing, must hold nothing else",
        "format": "tar, tfrecord or sequencefile",
        "shard-size": "size of a shard, such as 64M or 1G",
        "name": "prefix of the shards' names (default: the folder's name)",
        "replace": "replace the packed files in the target, once the new ones are complete",
        "workers": "number of files to read at once",
    },
)
def pack(
    c, folder, target, format="tar", shard_size="256M", name=None, replace=False, workers=8, output=None
):
    """Pack a folder into a few large files with an index, written directly to the storage."""
    tree, place = _located(c, folder, target)
    rules = sdk.files.packing_rules(tree, format, shard_size, name, replace, workers)
    with (
        views.transfers.metered() as meter,
        views.transfers.ended_by(lambda: "nothing was written; run it again"),
    ):
        packed = sdk.files.pack(tree, place, rules, meter)
    show(c, packed, views.listings.describe_pack, output)


@task(
    positional=["source", "target"],
    kinds={"workers": int},
    help={
        **COPYING,
        "source": f"folder with the index; or shards without an index, also as a pattern: {PATH}",
        "target": "folder for the files",
    },
)
def unpack(c, source, target, checksum=False, workers=8, preview=False, output=None):
    """Unpack packed files; run it again to continue."""
    packed, place = _located(c, source, target)
    rules = sdk.files.copy_rules(workers, checksum, preview=preview)
    with views.transfers.copying(c, output, preview) as meter:
        copied = sdk.files.unpack(packed, place, rules, meter)
    show(c, copied, views.listings.describe_copy, output)
    sdk.files.check_copied(copied)


def _located(c, *texts):
    book = sdk.files.ClusterStorages(settings(c), say)
    return [sdk.files.locate(text, book) for text in texts]
