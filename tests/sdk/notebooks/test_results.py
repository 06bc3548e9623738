"""The names that results get on this machine, where a name may have 255 bytes."""

import os
from pathlib import Path

import pytest

from openpai_tasks.protocol.models import job_from_detail
from openpai_tasks.sdk.jobs import outputs as outputs_of
from openpai_tasks.sdk.notebooks import downloads, running, serving
from openpai_tasks.sdk.notebooks import results as notebook_results
from openpai_tasks.sdk.notebooks.running import RunMark
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.notebook_files import PYTHON, write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def results(folder, stem, job):
    """The results of a job that has run the notebook and made a page of it."""
    made = {"state": "done", "cell": 1, "of": 1, "files": [f"{stem}.ipynb", f"{stem}.html"]}
    write(folder / f"{stem}.ipynb", "1", metadata={**PYTHON, "openpai_run": made})
    (folder / f"{stem}.html").write_text("page")
    mark, found = (
        RunMark(f"{stem}.ipynb"),
        outputs_of.list_outputs(job, Location(LocalStore(), str(folder), str(folder))),
    )
    info = job_from_detail({"jobStatus": {"state": "SUCCEEDED"}}, f"me~{job}")
    return notebook_results.Results(info, mark, found, f"{stem}.ipynb", False)


@pytest.mark.parametrize(
    "stem, job",
    [
        ("n" * 218, f"{'n' * 30}-abcdefghij"),
        ("n" * 249, "lab"),
        ("ü" * 120, "lab"),
        ("n", "j" * 250),
        ("n" * 240, "j" * 250),
    ],
    ids=["long", "longest", "unicode", "job", "both"],
)
def test_long_name_is_shortened_to_fit_and_is_stable(here, tmp_path, stem, job):
    found = results(tmp_path / "out", stem, job)
    for _ in range(2):  # the second download replaces the first
        arrived = notebook_results.download_results(found, here)
        assert not arrived.copied.failed and len(arrived.files) == 2
    names = sorted(os.listdir(here))
    assert [Path(name).suffix for name in names] == [".html", ".ipynb"]
    assert all(name.startswith(f"{stem[:15]}") and f".{job[:50]}" in name for name in names)
    assert all(len(os.fsencode(name)) <= 255 for name in names)


def test_shortened_name_leaves_room_for_another_file_beside_it(here, tmp_path):
    found = results(tmp_path / "out", "n" * 240, "lab")
    first = [Path(one.path) for one in notebook_results.download_results(found, here).files]
    for path in first:
        path.write_text("mine")
    second = notebook_results.download_results(found, here)
    assert not second.copied.failed and all(path.read_text() == "mine" for path in first)
    assert all(".remote." in one.path for one in second.files)
    last = downloads.free_path(first[0], lambda path: "remote-999" in path.name, 999)
    last.write_text("there is room for this too")


def test_name_that_fits_is_not_changed(here, tmp_path):
    notebook_results.download_results(results(tmp_path / "out", "n" * 200, "lab"), here)
    assert sorted(os.listdir(here)) == [f"{'n' * 200}.lab.html", f"{'n' * 200}.lab.ipynb"]


def test_different_long_names_stay_different(here, tmp_path):
    for number, end in enumerate("ab"):
        notebook_results.download_results(results(tmp_path / f"out{number}", "n" * 240 + end, "lab"), here)
    assert len(os.listdir(here)) == 4 and not list(here.glob("*.remote.*"))


@pytest.mark.parametrize(
    "file", ["../keys/a.ipynb", "/etc/a.ipynb", "x/../../a.ipynb", "a.py", "", "a\0.ipynb", 5, None]
)
def test_run_mark_with_an_invalid_file_is_ignored(file):
    assert running.read_run_mark({"extras": {running.MARK: {"file": file}}}) is None


@pytest.mark.parametrize(
    "file", [".git/hooks/post-checkout", ".openpai/defaults.yaml", ".envrc", "../x.ipynb"]
)
def test_hidden_file_in_a_server_mark_is_ignored_unless_it_is_a_notebook(file):
    """A hidden file that only the server names is not accepted as sent, unless it is a notebook."""
    mark = serving.read_server_mark({"extras": {serving.MARK: {"file": file}}})
    assert mark is not None and mark.file == ""
    assert serving.read_server_mark({"extras": {serving.MARK: {"file": ".a/b.ipynb"}}}).file == ".a/b.ipynb"
