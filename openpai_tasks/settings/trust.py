"""Which project folders may reach further than their jobs; kept in ``~/.openpai/trust.yaml``.

What a project's files ask for beyond a job is a list of claims, each trusted on its own by the digest of
what it says: a claim that changes, or a new one, has to be trusted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.ownership import VARIABLE, is_vouched, problem, project_of

LARGEST_CA = 1 << 20  # bytes
LONGEST = 300  # characters of a claim in an error
UNTOLD = ("password", "token")  # which move to the credentials store
HARMLESS = ("info", "virtual_clusters", "workspace", "storage_name")
"""Of a cluster in clusters.yaml: what does not matter for where things are sent."""


@dataclass(frozen=True)
class Claim:
    """One thing that a file of a project asks for: ``shown`` to people, trusted by its ``content``."""

    file: str
    setting: str
    shown: str
    content: str
    part: str = ""  # of a setting with several claims, which one it is

    @property
    def folder(self) -> str:
        return os.path.realpath(project_of(self.file))

    @property
    def key(self) -> tuple[str, str, str]:
        name = os.path.relpath(os.path.abspath(self.file), project_of(self.file))
        return self.folder, name, f"{self.setting} {self.part}".strip()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content.encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def line(self) -> str:
        """All of it."""
        return f"{self.setting} ({self.shown})" if " " in self.setting else f"{self.setting}={self.shown}"

    def __str__(self) -> str:
        return self.line if len(self.line) <= LONGEST else self.line[:LONGEST] + "…"


class Untrusted(ConfigError):
    """Raised when a project reaches further than its jobs and its folder is not trusted."""

    def __init__(self, claims: Iterable[Claim], program: str = "pai") -> None:
        self.claims = tuple(claims)
        given = "; ".join(f"{file} sets {', '.join(lines)}" for file, lines in by_file(self.claims))
        super().__init__(f"{given}; this counts only in a folder that you trust: `{program} config.trust`")


class Fenced(tuple[str, ...]):
    """Sources that a project names and nobody typed: no link in them may lead out of its ``folder``."""

    folder: str = ""

    @classmethod
    def within(cls, folder: str, paths: Iterable[str]) -> Fenced:
        fenced = cls(paths)
        fenced.folder = os.path.realpath(folder)
        return fenced

    def holds(self, path: Path, root: Path) -> bool:
        """Whether a file is in the folder, or in a source (of ``root``) that was trusted to be elsewhere."""
        real = os.path.realpath(path)
        named = (os.path.realpath(os.path.normpath(root / source)) for source in self)
        return _is_plainly_inside(real, self.folder) or any(
            Path(real).is_relative_to(place) for place in named if not _is_plainly_inside(place, self.folder)
        )


def by_file(claims: Iterable[Claim]) -> list[tuple[str, list[str]]]:
    """What each file asks for, in words."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        found.setdefault(claim.file, []).append(str(claim))
    return list(found.items())


def is_project_file(path: Path) -> bool:
    """Whether a file of ours belongs to a project and not to the user's own settings."""
    return path.parent.name == ".openpai" and os.path.realpath(path.parent) != os.path.realpath(home())


def untrusted(claims: Iterable[Claim]) -> list[Claim]:
    """Those that neither ``OPENPAI_TRUST`` nor the user's own list allows."""
    left = [claim for claim in claims if not is_vouched(claim.folder)]
    if left:
        _check_variable()
    return _not_remembered(left)


def _not_remembered(claims: Sequence[Claim]) -> list[Claim]:
    known = _read() if claims else {}
    return [claim for claim in claims if _get(known, claim.key) != claim.digest]


def remember(claims: Iterable[Claim]) -> None:
    """Trust these from now on."""
    wanted = list(claims)
    if not wanted:
        return
    with locked(_path()):
        known = _read()
        for claim in wanted:
            folder, file, name = claim.key
            known.setdefault(folder, {}).setdefault(file, {})[name] = claim.digest
        _write(known)


def forget(folder: str | Path) -> bool:
    """Trust the folder no more; whether it was trusted."""
    if not _path().exists():
        return False
    with locked(_path()):
        known = _read()
        was_there = known.pop(os.path.realpath(folder), None) is not None
        if was_there:
            _write(known)
    return was_there


def folders() -> list[str]:
    """The folders that are trusted with something."""
    return sorted(_read())


def setting_claim(file: str, name: str, value: Any) -> Claim:
    """The claim of a setting that reaches further than a job."""
    shown = (
        ", ".join(value)
        if isinstance(value, tuple)
        else {True: "true", False: "false"}.get(value, str(value))
    )
    return Claim(file, name, shown, repr(value))


def sources_claims(file: str, paths: Iterable[str], base: Path) -> list[Claim]:
    """One claim for each source that is not in the project's folder, or is in its .git or .openpai."""
    folder, found = os.path.realpath(project_of(file)), []
    for path in paths:
        places = {os.path.realpath(os.path.normpath(base / path)), os.path.realpath(base / path)}
        if path.startswith("~") or any(not _is_plainly_inside(place, folder) for place in places):
            where = ", ".join(sorted(places))
            shown = path if path == where else f"{path} ({where})"
            found.append(Claim(file, "sources", shown, where, path))
    return found


def links_claim(file: str, paths: Iterable[str]) -> Claim:
    """The claim that links among these sources are followed; who types the sources allows it."""
    told = tuple(paths)
    return Claim(file, "sources", "", repr(told), f"links in {', '.join(told)}")


def fenced(file: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The sources of a project's file, behind a fence unless the user typed them."""
    if not untrusted([links_claim(file, paths)]):
        return paths
    return Fenced.within(str(project_of(file)), paths)


def _is_plainly_inside(place: str, folder: str) -> bool:
    path = Path(place)
    return path.is_relative_to(folder) and not {".git", ".openpai"} & {*path.relative_to(folder).parts}


# The clusters of a project


def cluster_claims(path: Path) -> list[Claim]:
    """One claim for each cluster in a project's clusters.yaml."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        records = yaml.safe_load(text) or []
    except OSError:
        return []
    except (yaml.YAMLError, ValueError):
        records = None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return [Claim(str(path), "clusters", "what is no list of clusters", text)]
    return [_cluster_claim(path, record) for record in records]


def used_clusters(folder: Path, is_needed: bool = True) -> list[Claim]:
    """What the clusters.yaml of the folder asks for, where that file is the one that counts."""
    path = folder / ".openpai" / "clusters.yaml"
    if not is_project_file(path):
        return []
    found = problem(path)
    if found and is_needed:
        raise ConfigError(f"{path} cannot be used: {found}")
    return cluster_claims(path)


def _cluster_claim(path: Path, record: dict[Any, Any]) -> Claim:
    import yaml

    kept = {str(key): value for key, value in record.items() if key not in (*UNTOLD, *HARMLESS)}
    ca = _word(record.get("ca"))
    content = yaml.safe_dump(kept, allow_unicode=True) + (
        _digest_of(path.parent / os.path.expanduser(ca)) if ca else ""
    )
    shown = _word(record.get("pai_uri")) or "?"
    shown += "".join(f", {key} {_word(record[key])}" for key in ("prefix", "user", "ca") if key in record)
    for own in record.get("own_storages") or ():
        address = _word(own.get("address")) if isinstance(own, dict) else ""
        shown += f", storage {address}" if address else ", a storage"
    return Claim(str(path), f"cluster {_word(record.get('cluster_alias')) or '?'}", shown, content)


def _digest_of(path: Path) -> str:
    """What a CA file holds, as a digest: another one at the same place is another claim."""
    try:
        if path.is_file() and path.stat().st_size <= LARGEST_CA:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        pass
    return "unreadable"


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


@contextlib.contextmanager
def keeping_clusters(path: Path) -> Iterator[None]:
    """Write a clusters.yaml: what is new in a project's, or was trusted before, is the user's own act."""
    if not is_project_file(path):
        yield
        return
    before = cluster_claims(path)
    doubted = {claim.key for claim in _not_remembered(before)}
    yield
    after = [claim for claim in cluster_claims(path) if claim.key not in doubted]
    remember(claim for claim in after if claim not in before)


# The user's own list


def _path() -> Path:
    return home() / "trust.yaml"


Known = dict[str, dict[str, dict[str, str]]]
"""Folder -> file in it -> what it asks for -> the digest that is trusted."""


def _read() -> Known:
    import yaml

    try:
        known = yaml.safe_load(_path().read_text(encoding="utf-8", errors="surrogateescape")) or {}
        return {
            folder: {file: dict(names) for file, names in files.items()} for folder, files in known.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as err:
        raise ConfigError(f"cannot read {_path()}; remove the file to trust no folder") from err


def _write(known: Known) -> None:
    import yaml

    write_private(_path(), yaml.safe_dump(known, allow_unicode=True))


def _get(known: Known, key: tuple[str, str, str]) -> str | None:
    folder, file, name = key
    return known.get(folder, {}).get(file, {}).get(name)


def _check_variable() -> None:
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if folder and not os.path.isabs(folder):
            raise ConfigError(f"{VARIABLE} needs full paths, got {folder!r}; `export {VARIABLE}=$PWD`?")
