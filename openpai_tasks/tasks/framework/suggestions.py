"""Suggest the task that was probably meant by an unknown word.

What a word means counts before how it is spelt, and a command that stops or removes something is suggested
only for a word that means that, or for an obvious slip of its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

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
    name: str, tasks: Mapping[str, str], flat: Collection[str], collections: Collection[str]
) -> str:
    """Return the command that was probably meant, or an empty string.

    ``tasks`` maps each name of a task to its primary one, ``flat`` are the flat commands.
    """
    words = KnownWords(tasks, flat)
    collection, _, tail = name.rpartition(".")
    if not collection:
        collection, tail = _hyphenated(name, collections)
    if not collection:
        return words.anywhere(name)
    if collection not in collections:
        collection = _closest(collection, collections)
    return words.inside(collection, tail) if collection else ""


def _hyphenated(name: str, collections: Collection[str]) -> tuple[str, str]:
    """Split `delete-job` or `jobs-list` into the collection and the rest."""
    first, hyphen, last = name.partition("-")
    for one, other in ((last, first), (first, last)):
        if hyphen and one.removesuffix("s") in collections:
            return one.removesuffix("s"), other
    return "", name


class KnownWords:
    """The words that can be suggested."""

    def __init__(self, tasks: Mapping[str, str], flat: Iterable[str]) -> None:
        self._tasks = tasks
        jobs_last = sorted(tasks, key=lambda task: task.startswith("job."))
        tails = {task.rpartition(".")[2]: task for task in jobs_last}  # `logs` may stand for `job.logs`
        self._known = tails | {name: name for name in (*flat, *tasks)}
        self._harmless = {word for word in (*tails, *SYNONYMS) if not is_destructive(word)}

    def anywhere(self, word: str) -> str:
        """Return what a word without a collection stands for."""
        spelt = self._most_similar(word, {**self._known, **dict.fromkeys(SYNONYMS, "")})
        return self._synonym(word) or self._synonym(spelt) or self._known.get(spelt, "")

    def inside(self, collection: str, word: str) -> str:
        """Return what a word stands for in a collection: only the tasks of the collection count."""
        own = {name.removeprefix(f"{collection}."): name for name in self._tasks}
        own = {tail: name for tail, name in own.items() if tail != name}
        return self._synonym(word, f"{collection}.") or own.get(self._most_similar(word, own), "")

    def _synonym(self, word: str, within: str = "") -> str:
        for target in SYNONYMS.get(word, ()):
            is_known = target.partition(" ")[0] in self._tasks or (target.startswith("--") and not within)
            if is_known and target.startswith(within):
                return target
        return ""

    def _most_similar(self, word: str, known: Iterable[str]) -> str:
        """Return the known word that is spelt most alike."""
        names = list(known)
        if word in names:
            return word
        if word not in self._harmless:
            for name in filter(is_destructive, names):
                if _is_typo(word, name.rpartition(".")[2]):
                    return name
        return _closest(word, [name for name in names if not is_destructive(name)])


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
    names = list(known)
    risky = [name for name in names if not RISKY.isdisjoint(name.split("-"))]
    slips = [name for name in risky if _is_typo(word, name)]
    near = slips[0] if slips else _closest(word, [name for name in names if name not in risky])
    return f", did you mean {near}?" if near else ""
