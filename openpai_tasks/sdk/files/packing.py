"""Check the flags, and pack a folder into a few large files or unpack it."""

from __future__ import annotations

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.files.operations import existing
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying import plan
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.location import Book, Location, clean_path, locate
from openpai_tasks.storage.packing import har
from openpai_tasks.storage.packing import pack as packs
from openpai_tasks.storage.packing.formats import find_format
from openpai_tasks.storage.packing.pack import Packed, Packing
from openpai_tasks.storage.packing.packed_set import open_set
from openpai_tasks.storage.packing.packed_store import PackedStore
from openpai_tasks.storage.store import is_below
from openpai_tasks.text import hints

DEFAULT_NAME = "data"
"""What the shards of a storage's root are called."""


def packing_rules(
    tree: Location,
    format: str,
    shard_size: str,
    name: str | None = None,
    replace: bool = False,
    workers: int = copying.WORKERS,
) -> Packing:
    """How to pack, from the flags; the shards are named like the folder unless a name is given."""
    find_format(format)
    chosen = (tree.name or DEFAULT_NAME) if name is None else name
    if not chosen or "/" in chosen or "\0" in chosen or chosen.startswith("."):
        raise ConfigError(f"--name {chosen!r} cannot begin the names of shards")
    shard = amounts.read("shard_size", amounts.size(least=1), shard_size)
    return Packing(format, shard, chosen, replace, amounts.workers(workers))


def pack(tree: Location, target: Location, rules: Packing, watch: Watch) -> Packed:
    """Pack the folder's content into shards and an index in the target folder."""
    if not existing(tree).is_folder:
        raise PathError(f"{tree.url} is a file, not a folder: pack takes folders")
    suffix = find_format(rules.format).folder_suffix
    if not target.name.endswith(suffix):
        fixed = hints.command("storage.pack", tree.url, f"{target.url}{suffix}", "--format", rules.format)
        raise PathError(f"Hadoop only reads archives whose name ends with {suffix}: {fixed}")
    here, there = tree.store.address(tree.path), target.store.address(target.path)
    if is_below(there, here) or plan.is_within(target, tree):
        raise PathError(f"{tree.url} cannot be packed into itself ({target.url})")
    return packs.pack(tree, target, rules, watch)


def unpack(source: Location, target: Location, rules: Rules, watch: Watch) -> Copied:
    """Unpack the files into the target folder, by the rules of a copy."""
    if source.store.address(source.path) == target.store.address(target.path):
        raise PathError(f"{source.url} cannot be unpacked into itself")
    packed = open_set(source)
    items = plan.plan_sync(Location(PackedStore(packed), "/", packed.url), target)
    return copying.copy(items, rules, watch)


def locate_in_archive(url: str, book: Book) -> Location:
    """Return the location of a file or folder in a Hadoop archive."""
    archive, path = har.split_url(url)
    store = PackedStore(open_set(locate(archive, book)))
    clean, is_content = clean_path(path, url)
    return Location(store, clean, url.removesuffix(path) + clean, url.endswith("/"), is_content)
