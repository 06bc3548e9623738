"""The packers and readers that the benchmark measures work."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "packing.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("packing_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["ours, tar", "ours, tfrecord", "ours, sequencefile", "tarfile", "tfrecord"])
def test_each_packer_reads_back_everything_it_packed(benchmark, name, tmp_path):
    if name in benchmark.PACKAGES:
        pytest.importorskip(name)
    total = benchmark._plant(tmp_path / "source", 12)
    (tmp_path / "set").mkdir()
    benchmark.PACKERS[name](str(tmp_path / "source"), str(tmp_path / "set"))
    for is_random in (False, True):
        assert benchmark._summed(benchmark.READERS[name](str(tmp_path / "set"), is_random)) == total


def test_the_files_are_the_same_in_every_run_and_tar_packs_them(benchmark, tmp_path):
    totals = {benchmark._plant(tmp_path / name, 12) for name in ("one", "two")}
    subprocess.run(benchmark.command("pack", benchmark.TAR, str(tmp_path / "one"), str(tmp_path)), check=True)
    assert {benchmark._summed(benchmark.read_by_tarfile(str(tmp_path), False))} == totals
