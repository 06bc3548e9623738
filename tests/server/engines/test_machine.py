from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.server.engines.gpus import Gpu
from openpai_tasks.server.engines.machine import Machine, parse_gpus, visible_gpus

LISTING = "0, GPU-aa, NVIDIA H200, 143771\n1, GPU-bb, NVIDIA H200, [N/A]\n"


def test_detected_machine_has_cpus_and_memory() -> None:
    here = Machine.detect()
    assert here.cpus >= 1 and here.memory_mb > 100 and here.resources.gpu == len(here.gpus)
    assert here.boot == Machine.detect().boot


def test_gpu_listing_is_parsed() -> None:
    assert parse_gpus(LISTING) == (
        Gpu(0, "GPU-aa", "NVIDIA H200", 143771),
        Gpu(1, "GPU-bb", "NVIDIA H200", 0),
    )
    assert parse_gpus("No devices were found\n") == ()


def test_gpus_are_those_that_nvidia_smi_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<END\n{LISTING}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu.index for gpu in Machine.detect().gpus] == [0, 1]
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert Machine.detect().gpus == ()


@pytest.mark.parametrize(
    ("wanted", "left"), [(None, [0, 1]), ("1", [1]), ("GPU-aa", [0]), ("", []), ("-1", [])]
)
def test_server_offers_only_gpus_that_it_may_use_itself(wanted: str | None, left: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus(parse_gpus(LISTING), wanted)] == left
