"""The wheels that another machine needs: this package, pip, and the requirements for its platform."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from openpai_tasks import __version__
from openpai_tasks.errors import ApiError, ConfigError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.text.plain import one_line

NAME = "openpai_tasks"
WHEEL = f"{NAME}-{__version__}-py3-none-any.whl"
SECONDS = 1800.0  # over a slow line
_FOLDER = f"{NAME}-{__version__}.dist-info"
_ABOUT = "Wheel-Version: 1.0\nGenerator: openpai-tasks\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_QUIET = ("-q", "--disable-pip-version-check", "--no-input", "--retries=1")
_WORD = re.compile(r"\w+")
_NOT_FOUND = re.compile(r"^ERROR: No matching distribution found for ([^;(\n]+)", re.M)
# pip chooses wheels for another machine (--platform), but decides by this one which requirements apply.
_PIP_FOR_OTHERS = """\
import json, sys
from pip._vendor.packaging import markers
environment = json.loads(sys.argv.pop(1))
markers.default_environment = lambda: dict(environment)
from pip._internal.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Target:
    """The Python of another machine, as pip there describes it."""

    interpreter: str
    abi: str
    platforms: tuple[str, ...]
    environment: dict[str, str]

    @classmethod
    def read(cls, text: str) -> Target:
        """Read the last line that was printed there; what profiles print is in front of it."""
        try:
            found: dict[str, Any] = parse(text.splitlines()[-1])
            words = (found["interpreter"], found["abi"], *found["platforms"])
            environment = {str(name): str(value) for name, value in found["environment"].items()}
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as err:
            raise ApiError("pip there did not describe its platform") from err
        if len(words) < 3 or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
            raise ApiError("pip there did not describe its platform")
        return cls(words[0], words[1], tuple(words[2:]), environment)

    @property
    def label(self) -> str:
        return one_line(f"{self.interpreter} on {self.platforms[0]}")

    def flags(self) -> Iterator[str]:
        """Return the options of pip that choose wheels for this machine."""
        yield "--only-binary=:all:"
        yield f"--implementation={self.interpreter.rstrip('0123456789')}"
        yield f"--python-version={_numbers(self.environment.get('python_full_version', ''))}"
        yield f"--abi={self.abi}"
        yield from (f"--platform={platform}" for platform in self.platforms)


class Pip:
    """The pip of this machine: the installed one, or that of a new virtual environment."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is for temporary files."""
        self._python, self._folder = sys.executable, folder
        self._files = _files_of_pip(sys.path)
        if not self._files:
            self._make_environment(folder / "pip")

    def _make_environment(self, folder: Path) -> None:
        if not self._run("-m", "venv", str(folder)):  # else it has no ensurepip
            self._python = str(folder / "bin" / "python")
            self._files = _files_of_pip(map(str, folder.glob("lib/*/site-packages")))

    def pack(self) -> bytes:
        """Return an archive to be unpacked in site-packages; empty if there is no pip."""
        return _zip(self._files) if self._files else b""

    def fetch_newer(self, python: str) -> bytes:
        """Return the newest pip for a version of Python; empty if it cannot be fetched."""
        dest = self._folder / "newest"
        flags = ("--no-deps", "--only-binary=:all:", f"--python-version={_numbers(python)}")
        if self._files and not self._run("-m", "pip", "download", *_QUIET, *flags, f"--dest={dest}", "pip"):
            return next(dest.glob("pip-*.whl")).read_bytes()
        return b""

    def fetch(self, wheel: bytes, target: Target) -> dict[str, bytes]:
        """Return the wheel and its requirements for another machine, by file name."""
        if not self._files:
            raise ConfigError("there is no pip here to fetch packages with; install pip here")
        ours, built, fetched = (self._folder / name for name in (WHEEL, "built", "fetched"))
        ours.write_bytes(wheel)
        built.mkdir()
        argv = ["-c", _PIP_FOR_OTHERS, json.dumps(target.environment), "download", *_QUIET]
        argv += [f"--dest={fetched}", *target.flags(), f"--find-links={built}", str(ours)]
        tried = None
        while problem := self._run(*argv):
            wanted = not_found(problem)
            if not wanted:
                raise Unreachable(f"pip failed here: {last_error(problem)}")
            if wanted == tried or not self._build(wanted, built):
                if is_offline(problem):
                    raise Unreachable("this machine cannot reach one either")
                raise ConfigError(f"the index of this machine has no wheel of {wanted} for {target.label}")
            tried = wanted
        return {path.name: path.read_bytes() for path in sorted(fetched.iterdir())}

    def _build(self, requirement: str, folder: Path) -> bool:
        """Build a wheel of a package that is published as source; return whether all platforms can use it."""
        before = set(folder.iterdir())
        self._run("-m", "pip", "wheel", *_QUIET, "--no-deps", f"--wheel-dir={folder}", requirement)
        new = set(folder.iterdir()) - before
        return bool(new) and all(path.name.endswith("-none-any.whl") for path in new)

    def _run(self, *argv: str) -> str:
        """Run Python; return what it has printed if it failed."""
        try:
            done = subprocess.run(
                [self._python, *argv],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
                env=hidden_environment(),
            )
        except subprocess.TimeoutExpired as err:
            raise Unreachable(f"pip did not end here within {SECONDS:g} s") from err
        return (done.stderr or f"exit code {done.returncode}") if done.returncode else ""


def _numbers(version: str) -> str:
    """Return a version of Python without what follows its numbers."""
    return re.sub("[^0-9.].*", "", version)


def is_offline(printed: str) -> bool:
    """Whether pip could not reach an index."""
    return "Retrying (" in printed


def not_found(printed: str) -> str:
    """Return the requirement that pip did not find, without its marker; empty if it failed otherwise."""
    found = _NOT_FOUND.search(printed)
    return one_line(found[1].strip()) if found else ""


def last_error(text: str) -> str:
    """Return the last line that pip calls an error, or the last one; without logins to package indexes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")] or lines
    return re.sub(r"//[^/\s]*@", "//", one_line(errors[-1].removeprefix("ERROR: "))) if errors else ""


def make_wheel() -> bytes:
    """Return this package as a wheel, however it is installed here."""
    record = []
    files = {**dict(_files()), **dict(_about())}
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    record.append(f"{_FOLDER}/RECORD,,\n")
    return _zip({**files, f"{_FOLDER}/RECORD": "".join(record).encode()})


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(__file__).parent.parent
    templates = package.parent / "job_templates"  # of a checkout, where they are beside the package
    found = [(path, f"{NAME}/{path.relative_to(package).as_posix()}") for path in package.rglob("*")]
    if not (package / templates.name).is_dir():
        found += [
            (path, f"{NAME}/{path.relative_to(package.parent).as_posix()}") for path in templates.glob("**/*")
        ]
    for path, name in sorted(found, key=lambda one: one[1]):
        if path.is_file() and "__pycache__" not in path.parts:
            yield name, path.read_bytes()


def _about() -> Iterator[tuple[str, bytes]]:
    points, known = _metadata()
    # a checkout may be newer than its metadata, and pip compares the version with the wheel's name
    known = re.sub(r"^Version: .*$", f"Version: {__version__}", known, count=1, flags=re.M)
    for name, text in {"METADATA": known, "entry_points.txt": points, "WHEEL": _ABOUT}.items():
        yield f"{_FOLDER}/{name}", text.encode()


def _metadata() -> tuple[str, str]:
    """Return the entry points and the metadata; a checkout has an ``egg-info`` too, or nothing else."""
    found = list(metadata.distributions(name="openpai-tasks"))
    for read in (lambda one: one.read_text("METADATA"), _from_egg_info):
        for one in found:
            points, known = one.read_text("entry_points.txt"), read(one)
            if points and known:
                return points, known
    raise ConfigError("openpai-tasks is not installed here with its metadata: pip install it first")


def _from_egg_info(found: metadata.Distribution) -> str:
    """Return the metadata with the requirements, which old versions of setuptools write to another file."""
    first, _, more = (found.read_text("PKG-INFO") or "").partition("\n")
    needed = [] if "\nRequires-Dist:" in more else [f"Requires-Dist: {one}" for one in found.requires or ()]
    return "\n".join([first, *needed, more]) if first else ""


def _files_of_pip(folders: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the pip that is installed in one of these folders."""
    for found in metadata.distributions(name="pip", path=list(folders)):
        return {
            path.as_posix(): path.read_binary()
            for path in found.files or ()
            if path.parts[0] not in ("..", "/") and "__pycache__" not in path.parts
        }
    return {}
