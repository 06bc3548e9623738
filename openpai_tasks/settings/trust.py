"""Trust in project folders whose settings reach further than their jobs, kept in ``~/.openpai/trust.yaml``.

Each such setting is a claim, trusted individually by a digest of its content: a claim that changes, or a new
one, has to be trusted again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import read_limited
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.ownership import VARIABLE, is_trusted_by_variable, problem, project_of
from openpai_tasks.text.hints import command

LARGEST_CA = 1 << 20  # bytes
LONGEST = 300  # characters of a claim in an error
SECRET_KEYS = ("password", "token")  # moved to the credentials store
HARMLESS = ("info", "virtual_clusters", "workspace", "storage_name")
"""Keys of a cluster in clusters.yaml that do not affect where anything is sent."""


@dataclass(frozen=True)
class Claim:
    """A setting in a project's file: ``shown`` to the user, trusted by its ``content``."""

    file: str
    setting: str
    shown: str
    content: str
    part: str = ""  # distinguishes several claims of one setting

    @property
    def folder(self) -> str:
        return os.path.realpath(project_of(self.file))

    @property
    def key(self) -> tuple[str, str, str]:
        name = os.path.relpath(os.path.abspath(self.file), project_of(self.file))
        return self.folder, name, f"{self.setting} {self.part}".strip()

    @property
    def digest(self) -> str:
        return sha256(self.content.encode("utf-8", "surrogateescape"))

    @property
    def line(self) -> str:
        """The claim in full."""
        return f"{self.setting} ({self.shown})" if " " in self.setting else f"{self.setting}={self.shown}"

    def __str__(self) -> str:
        return self.line if len(self.line) <= LONGEST else self.line[:LONGEST] + "…"


class UntrustedSettings(ConfigError):
    """Raised when a project's settings reach further than its jobs and its folder is not trusted."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = tuple(claims)
        given = "; ".join(f"{file} sets {', '.join(lines)}" for file, lines in claims_by_file(self.claims))
        super().__init__(f"{given}; this needs a trusted folder: `{command('config.trust')}` trusts it")


class ConfinedSources(tuple[str, ...]):
    """Sources from a project's settings; symlinks in them must not point outside its ``folder``."""

    folder: str = ""

    @classmethod
    def within(cls, folder: str, paths: Iterable[str]) -> ConfinedSources:
        sources = cls(paths)
        sources.folder = os.path.realpath(folder)
        return sources

    def boundary_of(self, path: Path, root: Path) -> str:
        """Return what confines a file: the folder, or a source (relative to ``root``) trusted elsewhere.

        Empty if the file is in neither.
        """
        real = os.path.realpath(path)
        if _is_plainly_inside(real, self.folder):
            return self.folder
        named = (os.path.realpath(os.path.normpath(root / source)) for source in self)
        elsewhere = (place for place in named if not _is_plainly_inside(place, self.folder))
        return next((place for place in elsewhere if Path(real).is_relative_to(place)), "")


def claims_by_file(claims: Iterable[Claim]) -> list[tuple[str, list[str]]]:
    """Group the descriptions of claims by file."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        found.setdefault(claim.file, []).append(str(claim))
    return list(found.items())


def is_project_file(path: Path) -> bool:
    """Whether a file of ours belongs to a project, not to the user."""
    return path.parent.name == ".openpai" and os.path.realpath(path.parent) != os.path.realpath(home())


def untrusted(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims that neither ``OPENPAI_TRUST`` nor the user's list allows."""
    left = [claim for claim in claims if not is_trusted_by_variable(claim.folder)]
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if left else ():
        if folder and not os.path.isabs(folder):
            raise ConfigError(
                f"{VARIABLE} needs absolute paths, got {folder!r}; try `export {VARIABLE}=$PWD`"
            )
    return _not_remembered(left)


def _not_remembered(claims: Sequence[Claim]) -> list[Claim]:
    known = _read() if claims else {}
    keys = [(claim, *claim.key) for claim in claims]
    return [
        claim
        for claim, folder, file, name in keys
        if known.get(folder, {}).get(file, {}).get(name) != claim.digest
    ]


def remember(claims: Iterable[Claim]) -> None:
    """Trust these claims from now on."""
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
    """Stop trusting the folder; return whether it was trusted."""
    if not _path().exists():
        return False
    with locked(_path()):
        known = _read()
        was_there = known.pop(os.path.realpath(folder), None) is not None
        if was_there:
            _write(known)
    return was_there


def folders() -> list[str]:
    """Return the trusted folders."""
    return sorted(_read())


def setting_claim(file: str, name: str, value: Any, shown: Any) -> Claim:
    """Return the claim of a setting that reaches further than a job; ``shown`` is its value to show."""
    text = (
        ", ".join(shown)
        if isinstance(shown, tuple)
        else {True: "true", False: "false"}.get(shown, str(shown))
    )
    return Claim(file, name, text, repr(value))


def sources_claims(file: str, paths: Iterable[str], base: Path) -> list[Claim]:
    """Return a claim for each source outside of the project's folder, or in its .git or .openpai."""
    folder, found = os.path.realpath(project_of(file)), []
    for path in paths:
        if "\0" in path:
            raise ConfigError(f"{file}: a source cannot contain NUL: {path!r}")
        places = {os.path.realpath(os.path.normpath(base / path)), os.path.realpath(base / path)}
        if path.startswith("~") or any(not _is_plainly_inside(place, folder) for place in places):
            where = ", ".join(sorted(places))
            shown = path if path == where else f"{path} ({where})"
            found.append(Claim(file, "sources", shown, where, path))
    return found


def links_claim(file: str, paths: Iterable[str]) -> Claim:
    """Return the claim to follow symlinks in these sources; it is trusted when the user types the sources."""
    sources = tuple(paths)
    return Claim(file, "sources", "", repr(sources), f"links in {', '.join(sources)}")


def confine_sources(file: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Confine a project's sources to its folder, unless the user typed them or OPENPAI_TRUST names it."""
    if not untrusted([links_claim(file, paths)]):
        return paths
    return ConfinedSources.within(str(project_of(file)), paths)


def _is_plainly_inside(place: str, folder: str) -> bool:
    path = Path(place)
    return path.is_relative_to(folder) and not {".git", ".openpai"} & {*path.relative_to(folder).parts}


# The clusters of a project


def cluster_claims(path: Path) -> list[Claim]:
    """Return a claim for each cluster in a project's clusters.yaml."""
    from openpai_tasks.protocol.yaml import limited

    try:
        text = read_limited(path, errors="surrogateescape")
        records = limited.load(text) or []
    except OSError:
        return []
    except ValueError:
        records = None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return [Claim(str(path), "clusters", "not a list of clusters", text)]
    return [_cluster_claim(path, record) for record in records]


def used_clusters(folder: Path, is_needed: bool = True) -> list[Claim]:
    """Return the claims of the folder's clusters.yaml."""
    path = folder / ".openpai" / "clusters.yaml"
    if not is_project_file(path):
        return []
    found = problem(path)
    if found and is_needed:
        raise ConfigError(f"{path} cannot be used: {found}")
    return cluster_claims(path)


DEBUG_FILE = "debug_enable"
"""A file in ``.openpai`` that turns on -d, as in the older clients."""


def debug_claims(folder: Path) -> list[Claim]:
    """Return the claim of a project's file that turns on -d, which prints the settings of Invoke and Fabric.

    They may have passwords in them, so a project that is not trusted cannot have them printed.
    """
    path = folder / ".openpai" / DEBUG_FILE
    is_there = os.path.isfile(path) and is_project_file(path)
    return [Claim(str(path), "debug output", "-d", "")] if is_there else []


def _cluster_claim(path: Path, record: dict[Any, Any]) -> Claim:
    import yaml

    kept = {str(key): value for key, value in record.items() if key not in (*SECRET_KEYS, *HARMLESS)}
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
    """Return a digest of a CA file, so that new content at the same path becomes a new claim."""
    try:
        if path.is_file() and path.stat().st_size <= LARGEST_CA:
            return sha256(path.read_bytes())
    except OSError:
        pass
    return "unreadable"


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


@contextlib.contextmanager
def trust_written_clusters(path: Path) -> Iterator[None]:
    """Trust the clusters that the block writes to a project's clusters.yaml; not those untrusted before."""
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


TrustedDigests = dict[str, dict[str, dict[str, str]]]
"""Folder -> file in it -> claim -> trusted digest."""


def _read() -> TrustedDigests:
    from openpai_tasks.protocol.yaml import limited

    try:
        known = limited.load(read_limited(_path(), errors="surrogateescape")) or {}
        return {
            folder: {file: dict(names) for file, names in files.items()} for folder, files in known.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise ConfigError(f"cannot read {_path()}; fix it, or remove it to trust no folder") from err


def _write(known: TrustedDigests) -> None:
    import yaml

    write_private(_path(), yaml.safe_dump(known, allow_unicode=True))
