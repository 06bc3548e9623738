"""The table of storage kinds, and kinds from other packages."""

from __future__ import annotations

import re
import sys

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage import kinds
from openpai_tasks.storage.location import locate, open_storage
from openpai_tasks.storage.store import StorageSpec
from openpai_tasks.tasks import storage
from tests.storage import third_party


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_every_function_of_a_storage_kind_exists(kind):
    named = [kind.store, kind.server, kind.url, kind.data, kind.job_folder]
    assert all(callable(kind._load(reference)) for reference in named if reference)
    assert bool(kind.schemes) == bool(kind.url)


def test_names_and_url_schemes_are_unique():
    names = [kind.name for kind in kinds.KINDS]
    schemes = [scheme for kind in kinds.KINDS for scheme in kind.schemes]
    assert len({*names}) == len(names) and len({*schemes}) == len(schemes)


def test_the_docs_show_every_type_that_can_be_added():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", third_party.DOCS.read_text(), re.M)
    known = {kind.name: kind for kind in kinds.KINDS if kind.data}
    shown = {name: cells.split("|") for name, cells in rows if name in known}
    assert shown.keys() == known.keys()
    for name, cells in shown.items():
        assert cells[3].strip() == known[name].asks_for
        assert tuple(re.findall(r"`(\w+)`", cells[4])) == known[name].options


def test_the_help_of_storage_add_names_every_type():
    *first, last = kinds.ADDABLE
    assert storage.add.help["type"] == f"{', '.join(first)} or {last}"


def test_type_is_found_regardless_of_case():
    assert kinds.find_type("azureFile") is kinds.find_type("azurefile")
    assert kinds.find_scheme("HDFS") is kinds.find_type("hdfs")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder on the path, for packages that a test installs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "code, why",
    [
        ("raise RuntimeError('two\\nlines')", "two lines"),
        ("KIND = 'sqlite'", "broken:KIND is not of the type StorageKind"),
        ("", "KIND"),
        ("import a_package_that_is_missing", "a_package_that_is_missing"),
    ],
)
def test_package_that_cannot_be_loaded_is_named_and_does_not_affect_others(packages, code, why):
    third_party.describe(packages, "pai-broken", "broken = broken:KIND")
    (packages / "broken.py").write_text(code)
    sys.modules.pop("broken", None)
    with pytest.raises(ConfigError) as raised:
        locate("broken://x", None)
    line = "the storage kind 'broken' of the package pai-broken cannot be loaded: "
    assert line in str(raised.value) and why in str(raised.value) and "\n" not in str(raised.value)
    assert kinds.find_type("hdfs") and kinds.find_type("sqlite") is None


def test_error_for_a_missing_function_names_the_package(packages):
    third_party.describe(packages, "pai-half", "half = half:KIND")
    (packages / "half.py").write_text(
        "from openpai_tasks.storage.kinds import StorageKind\n"
        "KIND = StorageKind('half', 'half', 'half:open_store', schemes=('half',), url='half_gone:open_url')\n"
    )
    with pytest.raises(ConfigError, match="'half' of the package pai-half cannot be loaded: half:open_store"):
        open_storage(StorageSpec("lab", "x", "half", {}))
    with pytest.raises(
        ConfigError, match="half storage needs the package 'half_gone': pip install half_gone"
    ):
        locate("half://x", None)


def test_built_in_kind_is_found_without_loading_other_packages(packages):
    third_party.describe(packages, "pai-other", "hdfs = hdfs_again:KIND")
    (packages / "hdfs_again.py").write_text("raise SystemExit('looked at')")
    for name in (*kinds.ADDABLE, "other"):
        assert kinds.find_type(name) in kinds.KINDS
