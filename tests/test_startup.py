"""Start-up is fast: heavy modules are loaded only when they are needed."""

import subprocess
import sys

import pytest

HEAVY = {"fabric", "paramiko", "requests", "urllib3", "starlette", "uvicorn", "fsspec", "nbconvert", "rich"}
HEAVY |= {"keyring", "sqlite3", "jsonschema", "IPython", "cloudpickle"}
HEAVY |= {"bz2"}  # imported by shutil
UNUSED = {"unittest.mock", "asyncio", "ssl", "yaml", "invoke.vendor.yaml"}  # which Invoke imports
OURS = {"backends", "settings.config", "settings.registry", "settings.credentials", "render.", "server"}

LISTING = "from invoke.main import program; program.run(['inv', '--list'], exit=False)"
HELP = "from openpai_tasks.tasks.program import PaiProgram as P; "
HELP += "P().run(['pai', '--help', 'job.sub'], exit=False)"
PADDLE = "from openpai_tasks.paddlecloud.program import run; assert run(['help', 'submit']) == 0"
STARTS = {
    "import": "import openpai_tasks",
    "inv --list": LISTING,
    "pai --help job.sub": HELP,
    "paddlecloud help submit": PADDLE,
}


INTERRUPTED_START = """
import _thread, sys, threading
from openpai_tasks import compat
from openpai_tasks.__main__ import main
timer, load = threading.Timer(float(sys.argv[1]), _thread.interrupt_main), compat.load_invoke

def start():  # within the program, which may begin long after this line on a busy machine
    timer.start()
    load()

compat.load_invoke = start
sys.argv = ["pai", "job.sub", "--help"]
try:
    main()
finally:
    timer.cancel()
"""


def loaded(shell, code):
    """Return the modules that a new process loads for the code; lazy ones count once they have run."""
    report = (
        "import sys, types; sys.stderr.write(' '.join("
        "name for name, module in list(sys.modules.items()) if type(module) is types.ModuleType))"
    )
    ran = shell.run(sys.executable, "-c", f"{code}\n{report}")
    assert ran.code == 0, ran
    return set(ran.err.split())


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_no_heavy_module_is_loaded_at_startup(shell, code):
    modules = loaded(shell, code)
    assert "openpai_tasks" in modules
    ours = modules - loaded(shell, "import invoke.main")  # some releases of Invoke load more than others
    assert not HEAVY & {name.partition(".")[0] for name in ours}


def test_listing_tasks_loads_no_sdk_or_backend(shell):
    modules = loaded(shell, LISTING)
    assert "openpai_tasks.tasks.job" in modules
    rooms = tuple(f"openpai_tasks.{room}" for room in OURS)
    assert not [name for name in modules if name.startswith(rooms)]
    assert not [name for name in modules if name.startswith("openpai_tasks.sdk.")]


def test_submitting_loads_nothing_for_archives_sweeps_or_numbers(shell):
    code = """if True:
        from pathlib import Path
        from openpai_tasks.protocol import JobRequest
        from openpai_tasks.sdk import jobs, sweeps, templates
        jobs.setting_overrides, jobs.submit_when_ready, templates.build_request
        jobs.check_request(JobRequest(command="true", image="busybox"), Path.cwd())
        sweeps.parse_points(())"""
    modules = loaded(shell, code)
    assert "openpai_tasks.sdk.jobs.submission" in modules
    assert not {"csv", "decimal", "html", "tarfile", "tempfile"} & modules


def test_pai_loads_no_parser_and_no_mocks(shell):
    line = "import sys; sys.argv = ['pai', 'cluster.list']; from openpai_tasks.__main__ import main"
    modules = loaded(shell, f"{line}\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code")
    assert "openpai_tasks.sdk.clusters" in modules and not UNUSED & modules


def test_what_invoke_would_have_loaded_is_there_when_it_is_used(shell):
    code = """if True:
        from openpai_tasks import compat
        compat.load_invoke()
        from invoke import Config, MockContext, Result, util
        assert MockContext(run=Result("out")).run("x").stdout == "out"
        assert util.yaml.safe_load("a: 1") == {"a": 1}
        from unittest.mock import Mock
        assert Mock().x is not None"""
    assert {"unittest.mock", "invoke.vendor.yaml"} <= loaded(shell, code)


def test_paddlecloud_finds_mistakes_before_it_loads_a_backend(shell):
    line = "submit . -entry true -memory 10GB"
    code = f"from openpai_tasks.paddlecloud.program import run; assert run({line.split()!r}) == 2"
    modules = loaded(shell, code)
    assert "openpai_tasks.paddlecloud.request" in modules
    assert not [name for name in modules if name.startswith("openpai_tasks.backends")]


def test_an_interrupt_that_gets_lost_in_a_callback_is_delivered_again(shell):
    """The import system has such callbacks, of weak references."""
    code = """
import _thread, openpai_tasks.__main__ as program, time, weakref
from openpai_tasks import compat

def lose(_):
    _thread.interrupt_main()
    sum(range(1000))

def load():
    kept = {1}
    reference = weakref.ref(kept, lose)
    del kept
    time.sleep(5)

compat.load_invoke = load
program.main()
"""
    ran = shell.run(sys.executable, "-c", code)
    assert (ran.code, ran.err) == (130, "")


@pytest.mark.parametrize("moment", [0.02, 0.05, 0.08, 0.11, 0.14, 0.2])
def test_ctrl_c_during_startup_exits_130_without_traceback(shell, moment):
    started = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_START, str(moment)],
        cwd=shell.project,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, err = started.communicate(timeout=60)
    assert started.returncode in (0, 130), err  # 0: it ended before the interrupt
    assert "Traceback" not in err
