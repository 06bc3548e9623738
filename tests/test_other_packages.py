"""A package that adds an engine and a kind of cluster: the example of docs/extending.md, as a wheel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Shell

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text()
NAME = "pai_campus-1.0"


def block(name: str) -> str:
    found = re.search(rf"^`{re.escape(name)}`[^\n]*:\n\n```\w+\n(.*?)```", PAGE, re.S | re.M)
    assert found, f"the page shows no {name}"
    return found[1]


def entry_points() -> str:
    """Return the entry points as a wheel has them."""
    text = block("pyproject.toml").partition("[project.entry-points.")[2]
    return re.sub(r'"?([\w.]+)"?\]', r"\1]", "[" + text.replace("[project.entry-points.", "[")).replace(
        '"', ""
    )


@pytest.fixture
def campus(shell: Shell, tmp_path: Path) -> Shell:
    """A shell in which the package is installed."""
    wheel, target = tmp_path / f"{NAME}-py3-none-any.whl", tmp_path / "installed"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pai_campus/__init__.py", "")
        for module in ("nice", "campus"):
            archive.writestr(f"pai_campus/{module}.py", block(f"{module}.py"))
        info = f"{NAME}.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pai-campus\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", entry_points())
        archive.writestr(f"{info}/RECORD", "")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(target), str(wheel)], check=True, env={**shell.environment})
    shell.environment["PYTHONPATH"] = str(target)
    return shell


def test_a_job_runs_on_an_engine_and_a_kind_of_cluster_of_another_package(campus: Shell) -> None:
    refused = campus.pai("config.set", "-g", "local.nice-level=loud")
    assert refused.code == 120 and "local.nice-level must be one of 5, 10, 19, got 'loud'" in refused.err
    assert campus.pai("config.set", "-g", "local.nice-level=19").code == 0
    shown = {row["name"]: row["value"] for row in campus.pai("config.show", "-o", "json").json()}
    assert shown["local.nice-level"] == "19"
    started = campus.pai("cluster.start", "--engine", "nice")
    assert started.code == 0, started
    facts = json.loads((campus.home / "local" / "server.json").read_text())
    assert facts["engine_options"] == {"nice-level": "19"}
    login = campus.pai("cluster.credentials", "local", "-o", "json").json()
    flags = ["--type", "campus", "--user", login["user"], "--password-file", "-"]
    words = ["cluster.add", "lab", str(facts["port"]), *flags]
    refused = campus.pai(*words, "--option", "floor=1", input=login["password"])
    assert refused.code == 120 and "unknown option of clusters of type 'campus' (known: room)" in refused.err
    refused = campus.pai(*words, "--option", "token=abc", input=login["password"])
    assert refused.code == 120 and "do not put a secret on the command line" in refused.err
    added = campus.pai(*words, "--option", "room=E12", input=login["password"])
    assert added.code == 0 and "Campus" in added.out, added
    ran = campus.pai("job.sub", "nice", "-a", "lab", "--follow")
    assert ran.code == 0 and "19" in ran.out.split() and "connecting to room E12" in ran.err, ran


def test_a_broken_package_is_named_where_its_engine_is_missing(shell: Shell, tmp_path: Path) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openpai_tasks.engines]\nother = broken:KIND\n")
    (tmp_path / "broken.py").write_text("KIND = 'other'\n")
    refused = shell.pai("cluster.start", "--engine", "other", PYTHONPATH=str(tmp_path))
    assert refused.code == 120 and refused.err.count("\n") == 1
    assert (
        "the engine 'other' of the package broken cannot be loaded: broken:KIND is not of the type"
        in refused.err
    )
