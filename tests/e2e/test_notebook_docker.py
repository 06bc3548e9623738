"""Notebooks and calls in real containers, with a plain Python and with one that has Jupyter."""

from __future__ import annotations

import json

import pytest

from openpai_tasks import PaiExecutor
from tests.conftest import make_shell
from tests.notebook_files import outputs, write
from tests.server.container_engines import JUPYTER_PYTHON, engine_kit, jupyter_files, python_files
from tests.test_runtime_docs import EXPECTED, PAGE, run_page

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]  # its image takes a while to make
IMAGE = "pai/python:1"
SMALL = ("--cpu", "1", "--memoryMB", "256", "--image", IMAGE, "--no-browser")


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with engine_kit("docker") as kit:
        kit.make_image(IMAGE, {**python_files(), **jupyter_files("jupyter_server")})
        made = make_shell(tmp_path_factory.mktemp("shell"))
        made.environment |= {**kit.environment, "INVOKE_OPENPAI_LOCAL_ENGINE": kit.name}
        made.ok("cluster.start")
        write(made.project / "book.ipynb", "import os\nprint(os.getcwd())", "1 / 0", "3")
        yield made
        made.ok("cluster.stop")


def test_notebook_runs_in_the_image_until_a_cell_fails(shell):
    ran = shell.inv(
        "notebook.run", "book.ipynb", "-j", "ran", *SMALL, "--python", JUPYTER_PYTHON, "--to", "ipynb"
    )
    assert ran.code == 1 and "cell 2 of 3 of book.ipynb failed: ZeroDivisionError" in ran.err, ran
    shown = ["/usr/local/pai/work\n", "ZeroDivisionError: division by zero", ""]
    assert outputs(shell.project / "book.ran.ipynb") == shown


def test_jupyter_serves_from_the_image_until_it_is_idle(shell):
    words = ("--python", JUPYTER_PYTHON, "--direct", "--idle", "8s", "--wait", "200s")
    ran = shell.ok("notebook.serve", "book.ipynb", "-j", "served", *SMALL, *words, timeout=250)
    assert "job served serves Jupyter" in ran.err and "/?token=" in ran.out
    assert shell.ok("job.status", "served", "-o", "json").json()["state"] == "SUCCEEDED"


def test_code_of_version_1_is_where_old_guides_look_for_it(shell):
    (shell.project / "code").mkdir()
    (shell.project / "code" / "train.sh").write_text("echo trained\n")
    shell.ok("storage.copy", "code", "pai://local/home/ann/code")
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 256}
    role["command"] = "cmp code/train.sh /pai/code/train.sh; sh /pai/code/train.sh"
    job = {"jobName": "coded", "image": IMAGE, "codeDir": "$PAI_DEFAULT_FS_URI/ann/code", "taskRoles": [role]}
    (shell.project / "coded.json").write_text(json.dumps(job))
    assert shell.ok("job.submit", "coded.json", "-f").out == "trained\n"


def test_an_image_without_sshd_is_reported_without_waiting(shell):
    words = ("--python", JUPYTER_PYTHON, "--wait", "200s")
    ran = shell.inv("notebook.serve", "book.ipynb", "-j", "closed", *SMALL, *words, timeout=250)
    shell.ok("job.stop", "closed")
    last = ran.err.splitlines()[-1]
    assert ran.code == 121 and "the image has no sshd" in last, ran
    assert last.endswith("`inv job.stop closed` stops it; `inv notebook.serve --direct` needs no ssh")
    assert shell.inv("job.wait", "closed").code == 143


def test_calls_run_in_containers_with_the_python_of_the_image(shell, monkeypatch):
    for name, value in shell.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shell.project)
    with PaiExecutor(cpu=1, memoryMB="256m", image=IMAGE, batch=2) as executor:
        first, second = executor.submit(lambda: __import__("sys").executable), executor.submit(lambda: 1 / 0)
        assert first.result() == "/usr/local/bin/python3"
        assert isinstance(second.exception(), ZeroDivisionError)


@pytest.mark.parametrize("words", [("run",), ("serve", "--direct")], ids=["run", "serve"])
def test_image_with_python_only_is_reported_in_one_line(shell, words):
    task, *flags = words
    ran = shell.inv(f"notebook.{task}", "book.ipynb", "-j", f"bare-{task}", *flags, *SMALL)
    reason = "cannot install jupyter, missing from /usr/local/bin/python3, which has neither pip nor venv"
    assert ran.code == 2 and ran.err.splitlines()[-1].startswith(
        f"error: job 'bare-{task}' failed: {reason}"
    ), ran
    assert ran.out == "" and "Traceback" not in ran.err


def test_examples_of_the_runtime_run_in_the_image(shell):
    small = {"INVOKE_OPENPAI_IMAGE": IMAGE, "INVOKE_OPENPAI_CPU": "1", "INVOKE_OPENPAI_MEMORYMB": "128"}
    printed = run_page(shell, PAGE.read_text(), **small)
    assert [text for text in EXPECTED if text not in printed] == []


def test_outputs_are_kept_when_a_container_is_stopped(shell):
    command = "trap 'echo 2 >b.pt; exit 1' TERM; echo 1 >a.pt; echo ready; while :; do sleep 0.1; done"
    words = ("--image", IMAGE, "--cpu", "1", "--memoryMB", "64", "--outputs", "*.pt")
    shell.ok("job.sub", command, "-j", "stopped", *words)
    process = shell.start("inv", "job.logs", "stopped", "--follow")
    assert process.stdout.readline() == "ready\n"
    shell.ok("job.stop", "stopped")
    process.communicate(timeout=100)
    rows = shell.ok("job.outputs", "stopped", "-o", "json").json()
    assert [row["name"] for row in rows] == ["a.pt", "b.pt"]
