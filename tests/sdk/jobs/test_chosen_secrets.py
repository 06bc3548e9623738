"""The names of secrets that the user chose for jobs."""

import dataclasses
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs import records
from openpai_tasks.settings.registry import Cluster

MINE = SimpleNamespace(cluster=Cluster("lab", "https://pai.example"), user="ann")
OTHER = SimpleNamespace(cluster=dataclasses.replace(MINE.cluster, uri="https://other.example"), user="ann")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    records.save_chosen_secrets(MINE, "train", "its record", ["KEY"])
    return tmp_path


def test_names_hold_for_that_job_alone(home):
    assert records.chosen_secrets(MINE, "ann", "train") == {"KEY"}
    assert records.chosen_secrets(MINE, "ann", "train", "its record") == {"KEY"}
    assert records.chosen_secrets(MINE, "ann", "train", "another record") == frozenset()
    assert records.chosen_secrets(MINE, "ann", "train-2") == frozenset()
    assert records.chosen_secrets(MINE, "bob", "train") == frozenset()
    assert (
        records.chosen_secrets(OTHER, "ann", "train") == frozenset()
    )  # the alias now stands for another server
    assert (home / "chosen_secrets.json").stat().st_mode & 0o777 == 0o600


def test_only_the_latest_jobs_are_kept(monkeypatch):
    monkeypatch.setattr(records, "MOST_CHOICES", 2)
    for name in ("train", "second", "train", "third"):
        records.save_chosen_secrets(MINE, name, "", ["KEY"])
    records.save_chosen_secrets(MINE, "without", "", [])
    kept = [
        name for name in ("train", "second", "third", "without") if records.chosen_secrets(MINE, "ann", name)
    ]
    assert kept == ["train", "third"]


def test_a_damaged_file_is_reported_in_one_line(home):
    (home / "chosen_secrets.json").write_text('{"a": 1}')
    with pytest.raises(ConfigError, match="remove it to be asked"):
        records.chosen_secrets(MINE, "ann", "train")
