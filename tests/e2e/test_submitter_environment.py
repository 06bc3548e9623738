"""Jobs of the embedded cluster run in the environment of whoever submits them, not of its server."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.forkserver import BIN
from tests.server.workshop import until

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
V1 = {
    "jobName": "old_file",
    "image": "i",
    "taskRoles": [{"name": "main", "command": "python -c 'import only_here'"}],
}


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A virtual environment with a module that no other Python has; return its variables."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (folder / SITE / "only_here.py").write_text("import sys\nWHERE = sys.prefix\n")
    return folder


@pytest.fixture
def active(cluster, venv):
    """The variables of a shell in which the virtual environment is active."""
    return {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{cluster.environment['PATH']}", "SECRET_X": "s"}


@pytest.fixture(autouse=True)
def elsewhere(cluster):
    cluster.environment.pop("VIRTUAL_ENV", None)


PROGRAM = "python -c 'import only_here; print(only_here.WHERE)'"


def test_python_finds_the_modules_of_the_active_virtual_environment(cluster, venv, active):
    ran = cluster.ok("job.sub", PROGRAM, "-j", "mine", "-f", **active)
    assert ran.out == f"{venv}\n"
    assert f"\nPython: {venv}\n" in cluster.ok("job.status", "mine").out
    known = cluster.ok("job.status", "mine", "-o", "json").json()["environment"]
    assert known["VIRTUAL_ENV"] == str(venv) and "SECRET_X" not in known and "HOME" not in known


def test_sweeps_and_job_files_run_there_too(cluster, venv, active):
    cluster.ok("job.sub", PROGRAM, "-j", "swept", "--sweep", "x=1,2", "-f", **active)
    (cluster.project / "old.json").write_text(json.dumps(V1))
    cluster.ok("job.submit", "old.json", "-f", **active)
    assert str(venv) not in cluster.ok("job.config", "old_file").out  # it means the same on every cluster


def test_a_resubmitted_job_runs_in_the_environment_of_the_resubmitter(cluster, venv, active):
    ran = cluster.inv("job.sub", PROGRAM, "-j", "first", "-f")
    assert ran.code == 1 and "No module named 'only_here'" in ran.out
    assert "Python:" not in cluster.ok("job.status", "first").out
    ran = cluster.ok("job.resubmit", "first", "-f", **active)
    assert ran.out == f"{venv}\n"


def test_why_names_the_environment_that_has_the_module(cluster, venv, active):
    cluster.inv("job.sub", PROGRAM, "-j", "lacks", "-f")
    found = cluster.ok("job.why", "lacks", **active).out
    assert f"module only_here is installed in {venv}, but the job ran without a virtual environment" in found
    assert "- `inv job.resubmit lacks` runs the job in your environment" in found
    assert "No module named 'only_here'" in cluster.ok("job.why", "lacks").out  # not installed here
    other = {**active, "VIRTUAL_ENV": "/opt/other", "PATH": cluster.environment["PATH"]}
    cluster.inv("job.sub", PROGRAM, "-j", "other", "-f", **other)
    assert f"{venv}, but the job ran with /opt/other\n" in cluster.ok("job.why", "other", **active).out
    base = os.path.realpath(sys.executable)
    cluster.inv("job.sub", f"{base} -c 'import only_here'", "-j", "path", "-f", **active)
    assert "but the command used another Python" in cluster.ok("job.why", "path", **active).out


def test_an_environment_of_the_project_that_is_not_active_is_pointed_out(cluster, venv, tmp_path):
    inv = f"{BIN}/inv"
    (cluster.project / ".venv").symlink_to(venv)
    here = f"{cluster.project}/.venv"
    try:
        base = os.path.realpath(sys.executable)  # of which the environment was made
        os.symlink(base, tmp_path / "python")
        plain = {"PATH": f"{tmp_path}:{os.defpath}"}
        ran = cluster.run(inv, "job.sub", PROGRAM, "-j", "idle", "-f", **plain)
        hint = f"warning: {here} is not active, so the job uses another Python; `. .venv/bin/activate`"
        assert ran.err.count(hint) == 1
        swept = cluster.run(inv, "job.sub", PROGRAM, "-j", "x", "--sweep", "x=1,2", "--detach", **plain)
        assert swept.err.count(hint) == 1
        found = cluster.run(inv, "job.why", "idle", **plain).out
        assert f"module only_here is installed in {here}, but the job ran without" in found
        assert "activate it (`. .venv/bin/activate`), then `inv job.resubmit idle`" in found
        used = {"PATH": f"{venv}/bin:{os.defpath}"}
        assert cluster.run(inv, "job.sub", PROGRAM, "-j", "used", **used).err == ""
    finally:
        (cluster.project / ".venv").unlink()


def test_python_api_and_executor_send_the_environment(cluster, venv, active):
    program = (
        "import openpai_tasks as pai, os\n"
        f"print(pai.submit({PROGRAM!r}, cluster='local').wait().state)\n"
        "with pai.PaiExecutor(cluster='local') as executor:\n"
        "    print(executor.submit(os.environ.get, 'VIRTUAL_ENV').result())\n"
    )
    ran = cluster.run(sys.executable, "-c", program, **active)
    assert ran.out == f"SUCCEEDED\n{venv}\n", ran


def wheel(folder: Path) -> str:
    path, info = folder / "layered-1.0-py3-none-any.whl", "layered-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("layered.py", "def main(): import only_here; print('script', only_here.__name__)\n")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: layered\nVersion: 1.0\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/entry_points.txt", "[console_scripts]\nlayered = layered:main\n")
        made.writestr(f"{info}/RECORD", "")
    return str(path)


def installed(venv: Path) -> set[str]:
    return {path.name for path in (venv / SITE).iterdir()} - {"__pycache__"}


def test_installed_packages_are_the_jobs_own_and_go_with_it(cluster, venv, active, tmp_path):
    """Also if the Python below the virtual environment has them, which cannot import them from there."""
    before, made, base = installed(venv), wheel(tmp_path), tmp_path / "base"
    with zipfile.ZipFile(made) as packed:
        packed.extractall(base / SITE)
    program = "import only_here, layered, sys; print(sys.prefix); print(layered.__file__)"
    flags = ("--pip-installs", made, "--env", f"PYTHONUSERBASE={base}", "-f")
    command = f"python -c '{program}' && layered && ls ../packages"
    lines = cluster.ok("job.sub", command, "-j", "layers", *flags, **active).out.splitlines()
    assert str(venv) in lines and "script only_here" in lines and "modules" in lines
    assert any(line.endswith("/packages/modules/layered.py") for line in lines)
    assert installed(venv) == before
    [folder] = (cluster.home / "local" / "jobs").glob("*layers/0/main-0-0")
    until(lambda: not (folder / "packages").exists())
    if pip := importlib.util.find_spec("pip"):  # the next job need not install it
        (base / SITE / "pip").symlink_to(Path(str(pip.origin)).parent)
    config = venv / "pyvenv.cfg"
    alone = config.read_text()
    config.write_text(alone.replace("site-packages = false", "site-packages = true"))
    try:
        ran = cluster.ok("job.sub", f"python -c '{program}'", *flags, **active)
        assert f"{base / SITE}/layered.py\n" in ran.out
    finally:
        config.write_text(alone)


def test_a_python_without_pip_says_what_to_install(cluster, active, tmp_path):
    (tmp_path / "ensurepip.py").write_text("import no_such_module\n")
    command = ("job.sub", "true", "--pip-installs", "six", "--env", f"PYTHONPATH={tmp_path}", "-f")
    ran = cluster.inv(*command, **active)
    assert ran.code == 1 and "Traceback" not in ran.out
    assert "has no pip, and cannot install it; install python3-pip, or python3-venv\n" in ran.out
