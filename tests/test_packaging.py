"""The release: a source archive whose tests run, a complete wheel, and correct metadata."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

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


CONTENT = [
    *(
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "MANIFEST.in",
    ),
    *("README.md", "SECURITY.md", "benchmarks", "compat", "docs", "docsite", "fabfile.py", "invoke.yaml"),
    *("job_templates", "mkdocs.yml", "openpai_tasks", "pyproject.toml", "setup.py", "tasks.py", "tests"),
]


def not_content(folder, names):
    """Return the names in a folder that are not copied."""
    return {"__pycache__", "node_modules"} | (set(names) - set(CONTENT) if Path(folder) == ROOT else set())


def build(folder, kind):
    """Build the archive in a folder, and return its path."""
    code = f"import setuptools.build_meta as build; print(build.build_{kind}('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source archive, built and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    # setuptools writes its egg-info into the folder that it builds from; other tests write bytecode meanwhile
    shutil.copytree(ROOT, folder, ignore=not_content, dirs_exist_ok=True)
    shutil.unpack_archive(build(folder, "sdist"), folder / "unpacked")
    [top] = (folder / "unpacked").iterdir()
    return top


@pytest.fixture(scope="module")
def wheel(unpacked):
    """The wheel, built from the source archive as installers do."""
    with zipfile.ZipFile(build(unpacked, "wheel")) as archive:
        yield archive


def files(*folders):
    """Return the files in folders of the checkout, as paths relative to it."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.is_file()]
    return {path.relative_to(ROOT) for path in found if not {"__pycache__", "node_modules"} & set(path.parts)}


def test_the_tests_run_from_the_source_archive(unpacked):
    assert not [name for name in FILES if not (unpacked / name).is_file()]
    assert not [
        path for path in files("tests", "docs", "benchmarks", "compat") if not (unpacked / path).exists()
    ]
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


def test_the_wheel_is_the_package_with_the_templates_and_nothing_else(wheel):
    package = {str(path) for path in files("openpai_tasks")}
    templates = {f"openpai_tasks/{path}" for path in files("job_templates")}
    assert {
        "openpai_tasks/py.typed",
        "openpai_tasks/sdk/__init__.pyi",
        "openpai_tasks/completion/pai.zsh",
    } <= package
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == package | templates


def test_entry_points_can_be_loaded(wheel):
    sections = configparser.ConfigParser()
    sections.read_string(metadata_file(wheel, "entry_points.txt"))
    assert set(sections.sections()) == {"console_scripts", "fsspec.specs", "pytest11"}
    assert set(sections["console_scripts"]) == {"pai", "opai", "paddlecloud"}
    for section in sections.sections():
        for name, value in sections.items(section):
            assert EntryPoint(name, value, section).load()


def test_the_page_on_an_index_needs_no_other_file(wheel):
    described = message_from_string(metadata_file(wheel, "METADATA"))
    assert described["Description-Content-Type"] == "text/markdown"
    assert described["Requires-Python"] == ">=3.10"
    parts = [part for block in MarkdownIt().parse(described.get_payload()) for part in block.children or []]
    addresses = [part.attrs.get("href") or part.attrs.get("src") for part in parts if part.attrs]
    assert addresses and all(address.startswith("https://") for address in addresses)
    assert not [part for part in parts if part.type == "html_inline"]


def test_the_workflow_tests_each_python_that_the_package_supports(unpacked, wheel):
    workflow = yaml.safe_load((unpacked / ".github/workflows/tests.yml").read_text())
    classifiers = message_from_string(metadata_file(wheel, "METADATA")).get_all("Classifier")
    supported = [found[1] for line in classifiers if (found := re.search(r":: Python :: (3\.\d+)$", line))]
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported


def metadata_file(wheel, name):
    [path] = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_newest_release_in_the_changelog_is_this_version():
    versions = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert versions[0] == openpai_tasks.__version__
