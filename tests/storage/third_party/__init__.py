"""A package that adds a kind of storage: the example of docs/storage.md, installed for a test."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs" / "storage.md"
GROUP = "openpai_tasks.storage_kinds"


def install(folder: Path) -> Path:
    """Install the example into the folder, which is then put on the path."""
    package = folder / "pai_sqlite"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("sqlite_store.py"), package / "store.py")
    (package / "kind.py").write_text(_block("python", "pai_sqlite/kind.py"))
    point = re.search(r'^sqlite = "(.+)"$', _block("toml", "pyproject.toml"), re.M)
    assert point and f'entry-points."{GROUP}"' in _block("toml", "pyproject.toml")
    describe(folder, "pai-sqlite", f"sqlite = {point[1]}")
    return folder


def describe(folder: Path, package: str, entry_point: str) -> None:
    """Write what pip writes of an installed package."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_point}\n")


def _block(language: str, name: str) -> str:
    found = re.search(rf"^`{re.escape(name)}`:\n\n```{language}\n(.*?)```", DOCS.read_text(), re.S | re.M)
    assert found, f"docs/storage.md shows no {name}"
    return found[1]
