"""Small packages for pip, made without an index, and a Python that has none."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

BACKEND = """\
import zipfile
NAME = "{name}-{version}-py3-none-any.whl"
FILES = {files!r}
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{{folder}}/{{NAME}}", "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return NAME
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def add_wheel(
    folder: Path,
    name: str,
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
        for path, content in _contents(name, tag, files or {}).items():
            archive.writestr(path, content)


def add_installed(folder: Path, name: str) -> None:
    """Add a pure package that is installed here; its requirements are not declared."""
    found = find_spec(name)
    assert found and found.origin
    package = Path(found.origin).parent
    paths = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    add_wheel(
        folder,
        name,
        files={path.relative_to(package.parent).as_posix(): path.read_text("utf-8") for path in paths},
    )


def add_source(folder: Path, name: str) -> None:
    """Add a package that is published only as source."""
    backend = BACKEND.format(name=name, version="1.0", files=_contents(name, "py3-none-any", {}))
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, content in {"PKG-INFO": about, "backend.py": backend, "pyproject.toml": PROJECT}.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))


def add_old_pip(folder: Path) -> None:
    """Install a pip that fails like an old one with a new Python."""
    (folder / "pip").mkdir(parents=True)
    (folder / "pip" / "__init__.py").write_text("import imp_of_older_pythons\n")
    about = folder / "pip-1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: pip\nVersion: 1.0\n")
    about.joinpath("RECORD").write_text("pip/__init__.py,,\n")


def require_only(folder: Path, *requirements: str) -> str:
    """Return a folder for ``sys.path`` with other requirements of this package."""
    about = folder / "metadata" / "openpai_tasks-0.0.1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    lines = ["Metadata-Version: 2.1", "Name: openpai-tasks", "Version: 0.0.1"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
    about.joinpath("METADATA").write_text("\n".join([*lines, ""]))
    about.joinpath("entry_points.txt").write_text("[console_scripts]\npai = openpai_tasks.__main__:main\n")
    return str(about.parent)


def python_without_ensurepip(folder: Path) -> Path:
    """Install a Python like Debian's without python3-venv: this one, but without ensurepip and packages."""
    name = f"python3.{sys.version_info[1]}"
    library, program = folder / "lib" / name, folder / "bin" / name
    library.mkdir(parents=True)
    program.parent.mkdir()
    for path in Path(os.__file__).parent.iterdir():
        if path.name not in ("ensurepip", "site-packages", "dist-packages"):
            (library / path.name).symlink_to(path)
    (library / "site-packages").mkdir()
    shutil.copy(os.path.realpath(sys.executable), program)
    found = subprocess.run(
        [program, "-c", "import ssl, sqlite3, venv, ensurepip"], capture_output=True, text=True
    )
    assert "No module named 'ensurepip'" in found.stderr, found.stderr
    return program


def _contents(name: str, tag: str, files: Mapping[str, str]) -> dict[str, str]:
    about = f"{name}-1.0.dist-info"
    found = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    return {**found, f"{about}/RECORD": "".join(f"{path},,\n" for path in (*found, f"{about}/RECORD"))}
