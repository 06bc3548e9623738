"""Suggest the task that was probably meant by an unknown word.

What a word means counts before how it is spelt, and a command that stops or removes something is suggested
only for a word that means that, or for an obvious slip of its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable

_STOPPING = "abort cancel end halt kill quit stop terminate"
_REMOVING = "clear del delete drop erase purge remove rm wipe"
DESTRUCTIVE = frozenset([*_STOPPING.split(), *_REMOVING.split(), *["clean", "forget", "unset", "untrust"]])

LIKENESS = 0.7  # of 1; with less, words are suggested that share only a few letters
RISKY = DESTRUCTIVE | {"force", "overwrite", "recursive", "yes"}  # in names of flags

MEANINGS = {
    _STOPPING: ("job.stop", "container.stop", "cluster.stop", "paddle.kill"),
    _REMOVING: ("job.stop", "cluster.delete", "storage.remove", "container.stop", "config.unset"),
    "create exec execute launch queue run start train": (
        "job.sub",
        "container.run",
        "notebook.run",
        "cluster.add",
    ),
    "follow tail": ("job.logs --follow",),
    "attach watch": ("job.connect", "container.ssh"),
    "log output print": ("job.logs",),
    "auth login signin": ("cluster.add",),
    "account clusters whoami": ("cluster.list",),
    "jobs list ps": ("job.list",),
    "describe show stat status": ("job.status", "cluster.info", "storage.getinfo", "config.show"),
    "download fetch": ("job.outputs", "storage.copy", "container.get"),
    "mv upload": ("storage.copy", "container.put"),
    "again rerun retry": ("job.resubmit", "notebook.resubmit"),
    "explain reason": ("job.why",),
    "enter shell": ("container.ssh",),
    "jupyter lab": ("notebook.serve",),
    "dashboard ui web": ("cluster.portal",),
    "switch use": ("cluster.select",),
    "gpus nodes": ("cluster.resources",),
    "init setup": ("config.init",),
    "check diagnose doctor": ("config.doctor",),
    "help": ("--help",),
    "version": ("--version",),
}
"""Words, and the commands that they can stand for; the first one that fits counts."""

SYNONYMS = {word: targets for words, targets in MEANINGS.items() for word in words.split()}


def closest_task(
    name: str, tasks: Collection[str], flat: Collection[str], collections: Collection[str]
) -> str:
    """Return the command that was probably meant, or an empty string.

    ``tasks`` are all names of tasks, ``flat`` the flat commands.
    """
    collection, _, word = name.rpartition(".")
    if not collection:
        collection, word = _hyphenated(name, collections)
    if not collection:
        return _anywhere(word, tasks, flat)
    if collection not in collections:
        collection = _closest(collection, collections)
    return _inside(collection, word, tasks) if collection else ""


def _hyphenated(name: str, collections: Collection[str]) -> tuple[str, str]:
    """Split `delete-job` or `jobs-list` into the collection and the rest."""
    first, hyphen, last = name.partition("-")
    for one, other in ((last, first), (first, last)):
        if hyphen and one.removesuffix("s") in collections:
            return one.removesuffix("s"), other
    return "", name


def _anywhere(word: str, tasks: Collection[str], flat: Collection[str]) -> str:
    """Return what a word without a collection stands for."""
    jobs_last = sorted(tasks, key=lambda task: task.startswith("job."))
    known = {task.rpartition(".")[2]: task for task in jobs_last}  # `logs` may stand for `job.logs`
    known |= {name: name for name in (*flat, *tasks)}
    similar = word if word in known else _most_similar(word, [*known, *SYNONYMS], is_destructive)
    return _synonym(word, tasks) or _synonym(similar, tasks) or known.get(similar, "")


def _inside(collection: str, word: str, tasks: Collection[str]) -> str:
    """Return what a word stands for in a collection: only the tasks of the collection count."""
    start = f"{collection}."
    own = {task.removeprefix(start): task for task in tasks if task.startswith(start)}
    if meant := _synonym(word, tasks, start) or own.get(word):
        return meant
    is_other = word in SYNONYMS or any(task.endswith(f".{word}") for task in tasks)
    if is_other and not is_destructive(word):  # no typo of one that is
        return own.get(_closest(word, [name for name in own if not is_destructive(name)]), "")
    return own.get(_most_similar(word, own, is_destructive), "")


def _synonym(word: str, tasks: Collection[str], within: str = "") -> str:
    for target in SYNONYMS.get(word, ()):
        is_known = target.partition(" ")[0] in tasks or (target.startswith("--") and not within)
        if is_known and target.startswith(within):
            return target
    return ""


def _most_similar(word: str, known: Iterable[str], is_risky: Callable[[str], bool]) -> str:
    """Return the name that is most similar; a risky one only for a typo of it."""
    names = list(known)
    typos = (name for name in names if is_risky(name) and _is_typo(word, name.rpartition(".")[2]))
    return next(typos, "") or _closest(word, [name for name in names if not is_risky(name)])


def is_destructive(name: str) -> bool:
    """Whether a command stops or removes something, by the words of its name."""
    return not DESTRUCTIVE.isdisjoint(name.rpartition(".")[2].split("-"))


def _is_typo(word: str, name: str) -> bool:
    """Whether a letter is missing or doubled, or two neighbours are swapped."""
    shorter, longer = sorted((word, name), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
    swapped = (word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1))
    return name in swapped


def _closest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    slips = [name for name in names if _is_typo(word, name)]
    return next(iter(slips or difflib.get_close_matches(word, names, 1, LIKENESS)), "")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean X?`` if a flag or another known word is similar, else ""."""
    near = _most_similar(word, known, lambda name: not RISKY.isdisjoint(name.split("-")))
    return f", did you mean {near}?" if near else ""
