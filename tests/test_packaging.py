"""The release: a source archive whose tests run, and correct metadata."""

import configparser
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import openpai_tasks

ROOT = Path(__file__).parent.parent
FILES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tasks.py", "invoke.yaml", ".ci/run"]
FILES += [
    "mkdocs.yml",
    "docs/commands.md",
    "docsite/hooks.py",
    "docsite/pages/api/index.md",
    "docsite/assets/site.css",
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source archive, built and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    # setuptools writes its egg-info into the folder that it builds from
    subprocess.run(
        ["cp", "-r", *[ROOT / name for name in CONTENT if (ROOT / name).exists()], folder], check=True
    )
    code = "import setuptools.build_meta as build; print(build.build_sdist('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(folder / "dist" / done.stdout.splitlines()[-1]) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [top] = (folder / "unpacked").iterdir()
    return top


CONTENT = [
    *(
        ".ci",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "MANIFEST.in",
    ),
    *("README.md", "SECURITY.md", "benchmarks", "docs", "docsite", "fabfile.py", "invoke.yaml"),
    *("job_templates", "mkdocs.yml", "openpai_tasks", "pyproject.toml", "setup.py", "tasks.py", "tests"),
]


def test_the_tests_run_from_the_source_archive(unpacked):
    assert not [name for name in FILES if not (unpacked / name).is_file()]
    ours = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.*") if path.is_file()}
    ours = {path for path in ours if not {"__pycache__", "node_modules"} & set(path.parts)}
    assert not [path for path in ours if not (unpacked / path).exists()]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "tests/protocol/legacy",
        ],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_entry_points_can_be_loaded(unpacked):
    [file] = unpacked.glob("*.egg-info/entry_points.txt")
    sections = configparser.ConfigParser()
    sections.read(file)
    assert "pytest11" in sections
    for section in sections.sections():
        for name, value in sections.items(section):
            assert EntryPoint(name, value, section).load()


def test_types_are_part_of_the_package(unpacked):
    [sources] = unpacked.glob("*.egg-info/SOURCES.txt")
    names = {name.removeprefix("./") for name in sources.read_text().split()}
    assert {"openpai_tasks/py.typed", "openpai_tasks/sdk/__init__.pyi"} <= names


def test_newest_changelog_entry_is_this_version():
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert versions[0] == openpai_tasks.__version__
