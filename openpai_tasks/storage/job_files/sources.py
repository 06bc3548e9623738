"""The files to send with a job: the named ones, without those that ignore files exclude."""

from __future__ import annotations

import os
import shlex
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import RUNTIME
from openpai_tasks.settings.trust import ConfinedSources
from openpai_tasks.storage.job_files.ignore_rules import IgnoreRules, read_lines
from openpai_tasks.text.plurals import name_some

if TYPE_CHECKING:
    from typing_extensions import Self

IGNORE_FILES = (".gitignore", ".paiignore")  # the later file has priority
NEVER = IgnoreRules([".git/", "__pycache__/", ".openpai/", ".pai-runtime/", "*.pyc"])

LONGEST_SHOWN = 200  # characters of a path in an error
DEEPEST = 200  # folders in one another
MOST_LINKS = 100  # ways to one folder: links to folders with links to folders would never end


RUNTIME_PACKAGES: list[Path] = []
"""Folders of other packages that every job can import; a package that is loaded here may add itself."""
OLD_SDK = "openpaisdk"
"""Its scripts import it in their jobs, too, so every job can if it is installed here."""


@dataclass(frozen=True)
class SourceFile:
    """A file to send, and its relative name in the job's working folder."""

    path: Path
    name: str
    size: int
    fence: str = ""
    """The folder, or the file itself, that symlinks must not lead out of; empty if they may."""
    content: bytes | None = field(default=None, repr=False)
    """What is sent instead of the bytes of the file ``path``, which need not exist."""

    @classmethod
    def from_bytes(cls, content: bytes, name: str, path: Path | None = None) -> Self:
        """Return a file with this content; ``path`` is the file that it was generated from, if any."""
        return cls(path or Path(name), name, len(content), content=content)


@dataclass(frozen=True)
class Collected:
    """The files to send, and a warning about what cannot be sent, if there is any."""

    files: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()


def collect(paths: Sequence[str], root: Path) -> Collected:
    """Return every file in ``paths`` (relative to ``root``) once, sorted by name.

    A path that is named itself is taken even if an ignore file lists it; inside a named folder the ignore
    rules apply. A path outside ``root`` keeps only its last name. Symlinks are followed, but not out of a
    fence. Broken symlinks, links to a folder above, and pipes are left out.
    """
    found: dict[str, SourceFile] = {}
    left_out = list[str]()
    for given in paths:
        for source in _find(given, root, left_out.append):
            if isinstance(paths, ConfinedSources):
                source = _confine(source, root, paths)
            other = found.setdefault(source.name, source)
            if other.path.resolve() != source.path.resolve():
                raise PathError(f"two sources would both be {source.name!r}: {other.path} and {source.path}")
    why = "broken symlinks, links to a folder above, or no regular files"
    notes = (f"warning: left out of the sources: {name_some(left_out)} ({why})",) if left_out else ()
    return Collected(tuple(found[name] for name in sorted(found)), notes)


def runtime_files() -> tuple[SourceFile, ...]:
    """Return the files with which a job's program can import ``openpai_tasks.runtime``."""
    package = Path(__file__).parents[2]
    shim = package / "sdk" / "payloads" / "runtime_shim.py"
    files = {"openpai_tasks/__init__.py": shim, "openpai_tasks/runtime.py": package / "runtime.py"}
    packages = [Path(sysconfig.get_path("purelib"), OLD_SDK), *RUNTIME_PACKAGES]
    files |= {f"{one.name}/{path.name}": path for one in packages for path in one.glob("*.py")}
    return tuple(_source(path, f"{RUNTIME}/{name}") for name, path in files.items())


def _find(given: str, root: Path, leave_out: Callable[[str], object]) -> Iterator[SourceFile]:
    if not given.strip():
        raise PathError("a source is empty: name a file or a folder, `.` for this one")
    path = Path(os.path.normpath(root / given))
    if not path.exists():
        raise PathError(f"source {given!r}: no such file or folder in {root}")
    name = os.path.relpath(path, root)
    if name.startswith(os.pardir):
        name = path.name
    if path.is_file():
        yield _source(path, name)
    elif path.is_dir():
        rules = _inherited_rules(path, root) if path.is_relative_to(root) else []
        within = [one for one in (path, *path.parents) if one.is_relative_to(root) and one != root]
        is_ignored = any(_is_ignored(one, True, _inherited_rules(one, root)) for one in within)
        name = "" if name == os.curdir else name
        yield from _walk(path, name, rules, is_ignored, frozenset(), Counter(), leave_out)
    else:
        raise PathError(f"a source must be a file or a folder, and {given!r} is neither")


def _confine(source: SourceFile, root: Path, fence: ConfinedSources) -> SourceFile:
    """Confine a source that the user did not name; raise if a symlink leads it out of the fence."""
    path = source.path
    if boundary := fence.boundary_of(path, root):
        return replace(source, fence=boundary)
    why = f"{path} leads to {path.resolve()}, and the sources are those of the project's settings"
    hint = shlex.join(word for given in fence for word in ("--sources", given))
    raise PathError(f"{why}; to send it anyway, use `{hint}`")


def _source(path: Path, name: str) -> SourceFile:
    if not os.access(path, os.R_OK):
        raise PathError(f"cannot read the source {path}: permission denied")
    return SourceFile(path, name, path.stat().st_size)


Rules = list[tuple[Path, IgnoreRules]]


def _inherited_rules(folder: Path, root: Path) -> Rules:
    """Return the rules of the folders between ``root`` and ``folder``, which also apply inside it."""
    between = [parent for parent in folder.parents if parent.is_relative_to(root)]
    return [rule for parent in reversed(between) for rule in _rules_in(parent)]


def _rules_in(folder: Path) -> Rules:
    files = (folder / name for name in IGNORE_FILES)
    lines = [line for file in files if file.is_file() for line in read_lines(file)]
    return [(folder, IgnoreRules(lines))] if lines else []


def _walk(
    folder: Path,
    name: str,
    rules: Rules,
    is_ignored: bool,
    above: frozenset[Path],
    visits: Counter[str],
    leave_out: Callable[[str], object],
) -> Iterator[SourceFile]:
    """Yield the files; with ``is_ignored``, only those that a rule includes again."""
    real = folder.resolve()
    if real in above:  # a symlink to a folder above
        leave_out(name)
        return
    check_visit(str(folder), str(real), len(above), visits)
    rules = [*rules, *_rules_in(folder)]
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as err:
        raise PathError(f"cannot read the source folder {folder}: {err.strerror}") from err
    for entry in entries:
        path, is_folder = folder / entry.name, os.path.isdir(entry)  # False for a symlink to itself
        if NEVER.verdict(entry.name, is_folder) or _is_ignored(path, is_folder, rules, is_ignored):
            continue
        inner = os.path.join(name, entry.name)
        if is_folder:
            yield from _walk(path, inner, rules, False, above | {real}, visits, leave_out)
        elif os.path.isfile(entry):
            yield _source(path, inner)
        else:
            leave_out(inner)


def check_visit(folder: str, real: str, depth: int, visits: Counter[str]) -> None:
    """Raise if the folder is too deep, or too many links lead to it; ``visits`` counts them."""
    visits[real] += 1
    shown = folder if len(folder) <= LONGEST_SHOWN else f"{folder[:LONGEST_SHOWN]}…"
    if depth > DEEPEST:
        raise PathError(f"{shown}: there are more than {DEEPEST} folders in one another")
    if visits[real] > MOST_LINKS:
        raise PathError(f"{shown}: more than {MOST_LINKS} links lead to {real}")


def _is_ignored(path: Path, is_folder: bool, rules: Rules, verdict: bool = False) -> bool:
    """Decide like git: the last pattern that matches the path wins, the nearest file last."""
    for folder, ours in rules:
        found = ours.verdict(os.path.relpath(path, folder), is_folder)
        verdict = verdict if found is None else found
    return verdict
