"""Notebooks run as jobs on a real embedded cluster, with a real kernel, by whole command lines."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from openpai_tasks.sdk.payloads.notebook_runner import BROWSERS
from tests.forkserver import start
from tests.notebook_files import cell, outputs, text, too_deep, write
from tests.test_docs import ROOT, commands

NAME = "sub folder/größe 1.ipynb"
SLEEPS = "import time\nprint('began', flush=True)\ntime.sleep(600)"
SMALL = ("--cpu", "1", "--memoryMB", "256")
KERNEL_OF_OTHERS = {"kernelspec": {"name": "julia-1.9", "language": "julia", "display_name": "Julia"}}
DEAD = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
CAN_PRINT = any(map(shutil.which, (*BROWSERS, "xelatex")))
PRINTED = "script,pdf" if CAN_PRINT else "script"
SUFFIXES = (".ipynb", ".html", ".py")
LARGE = "print('x' * 5_000_000)"
TRANSPORT = "from ipykernel.kernelapp import IPKernelApp\nprint(IPKernelApp.instance().transport)"
"""A kernel with ports may lose one to another process, and shows its output to every user."""


def book(folder: Path, name: str, *cells, **options) -> Path:
    return write(folder / name, *cells, **options)


def jobs(shell):
    return {job["name"]: job["state"] for job in shell.ok("job.list", "-o", "json").json()}


@pytest.fixture(scope="module")
def sent(cluster):
    """Submit several jobs at once, as each needs a kernel: they run while other tests are busy."""
    book(cluster.project, "sleeps.ipynb", "x = 1", SLEEPS, "print('never')")
    book(cluster.project, "dies.ipynb", LARGE, DEAD)
    book(cluster.project, "foreign.ipynb", "1", metadata=KERNEL_OF_OTHERS)
    book(cluster.project, "fails twice.ipynb", "1/0", TRANSPORT, "raise ValueError('two')", metadata={})
    lines = (
        ("sleeps.ipynb", "-j", "late", "--timeout-per-cell", "10s", "--to", "ipynb"),
        ("dies.ipynb", "-j", "dead", "--to", "ipynb"),
        ("foreign.ipynb", "-j", "foreign", "--to", "ipynb"),
        (
            "fails twice.ipynb",
            "-j",
            "allowed",
            "--allow-errors",
            "--to",
            PRINTED,
        ),
        ("sleeps.ipynb", "-j", "limited", "--to", "ipynb", "--max-time", "70s"),
    )
    cluster.ok(*(word for line in lines for word in ("notebook.run", *line, *SMALL, "--detach")))
    return cluster


@pytest.fixture(scope="module")
def ran(cluster):
    """One run that has everything: a name with spaces and umlauts, sources, parameters, formats."""
    folder = cluster.project
    (folder / "helper.py").write_text("FACTOR = 3\n")
    path = book(
        *(folder, NAME, text("# A *title*"), cell("lr = 0.1\nnames = []", "parameters")),
        "import sys\nsys.path.append('..')\nfrom helper import FACTOR\nprint(lr * FACTOR, names)",
        "from IPython.display import HTML, display\ndisplay(HTML('<b id=\"mark\">bold</b>'))",
        "import os\nfor own in ('größe 1.csv', 'größe 1.pt', 'model.txt'):\n"
        "    open(os.environ['PAI_OUTPUT_DIR'] + '/' + own, 'w').write('m')",
    )
    before = path.read_bytes()
    words = ("-p", "lr=5e-1", "-p", "names=[a, ü]", "--sources", "helper.py", "--to", "html,script")
    ran = cluster.pai("notebook-job", NAME, *words, "-j", "good", *SMALL, "-o", "json")
    assert path.read_bytes() == before
    return ran


def result(shell, suffix, job, name=NAME):
    path = shell.project / name
    return path.with_name(f"{path.stem}.{job}{suffix}")


def test_the_results_are_next_to_the_notebook(cluster, ran, sent):
    assert ran.code == 0, ran
    expected = {str(result(cluster, suffix, "good")) for suffix in SUFFIXES}
    assert {row["path"] for row in ran.json()} == expected
    executed = outputs(result(cluster, ".ipynb", "good"))
    assert executed == ["", "", "1.5 ['a', 'ü']\n", "<IPython.core.display.HTML object>", ""]
    page = result(cluster, ".html", "good").read_text()
    assert '<b id="mark">bold</b>' in page and "1.5 ['a', 'ü']" in page
    assert "<title>größe 1</title>" in page
    assert "lr = 0.5" in result(cluster, ".py", "good").read_text()


def test_progress_is_reported_cell_by_cell(ran):
    lines = ran.err.splitlines()
    progress = [line for line in lines if line.startswith("cell ")]
    firsts = [
        "lr = 0.1",
        "# Parameters",
        "import sys",
        "from IPython.display import HTML, display",
        "import os",
    ]
    assert progress == [f"cell {number} of 5: {line}" for number, line in enumerate(firsts, 1)]
    assert "5 cells, kernel python3" in lines and "job good submitted to local" in lines
    assert lines[-1].startswith("done; see file:///") and "%20" in lines[-1]
    assert "3 more files are in its output: `pai job.outputs good` shows them" in lines
    assert "\x1b" not in ran.err and "Traceback" not in ran.err


def test_the_results_are_in_the_output_of_the_job(cluster, ran):
    listed = {row["name"] for row in cluster.ok("job.outputs", "good", "-o", "json").json()}
    own = {"größe 1.csv", "größe 1.pt", "model.txt"}
    assert listed == {*(f"größe 1{suffix}" for suffix in SUFFIXES), *own}


def test_job_needs_only_the_runner_from_us(cluster, ran):
    script = cluster.ok("job.config", "good").out
    assert "openpai_tasks" not in script and "pip install" not in script
    assert "python3 .pai-notebook.py 'sub folder/größe 1.ipynb'" in script.replace("''", "'")


def test_results_can_be_downloaded_again_to_any_folder(cluster, ran, tmp_path):
    cluster.ok("notebook.fetch", "good", "--folder", str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {f"größe 1.good{suffix}" for suffix in SUFFIXES}


@pytest.fixture(scope="module")
def failed(cluster):
    """Run a notebook from another folder, while an unknown cluster is selected."""
    folder = cluster.project.parent / "elsewhere"
    book(folder, "broken.ipynb", "print('first')", "x = 0\n1 / x", "print('never')")
    words = ("notebook.local", "../elsewhere/broken.ipynb", "-j", "broken", *SMALL)
    return cluster.inv(*words, INVOKE_OPENPAI_CLUSTER_ALIAS="nowhere")


def test_a_failing_cell_fails_the_command_and_is_shown(cluster, failed):
    assert failed.code == 1
    lines = failed.err.splitlines()
    at = lines.index("cell 2 of 3:")
    assert lines[at + 1 : at + 3] == ["    x = 0", "    1 / x"]
    assert failed.err.count("ZeroDivisionError: division by zero") == 2 and "\x1b" not in failed.err
    page = cluster.project.parent / "elsewhere" / "broken.broken.html"
    message = "error: cell 2 of 3 of broken.ipynb failed: ZeroDivisionError: division by zero"
    assert lines[-1] == f"{message}; see {page.as_uri()}"
    assert jobs(cluster)["broken"] == "FAILED"


def test_a_partial_result_is_downloaded(cluster, failed):
    folder = cluster.project.parent / "elsewhere"
    assert outputs(folder / "broken.broken.ipynb") == ["first\n", "ZeroDivisionError: division by zero", ""]
    assert "ZeroDivisionError" in (folder / "broken.broken.html").read_text()
    again = cluster.inv("notebook.fetch", "broken")
    assert again.code == 1 and str(folder / "broken.broken.html") in again.out


def test_cell_that_exceeds_its_time_limit_is_stopped(sent):
    ran = sent.inv("notebook.fetch", "late", "--follow")
    assert ran.code == 124
    assert "cell 2 of 3 of sleeps.ipynb failed: it took longer than 10 s (--timeout-per-cell)" in ran.err
    shown = outputs(sent.project / "sleeps.late.ipynb")
    assert shown[1].startswith("began\n") and "CellTimeout" in shown[1] and shown[2] == ""


def test_a_dead_kernel_is_reported_as_such(sent):
    ran = sent.inv("notebook.fetch", "dead", "--follow")
    assert ran.code == 1 and "cell 2 of 2 of dies.ipynb failed: the kernel died" in ran.err
    assert not (sent.project / "dies.dead.html").exists()


def test_large_outputs_stay_out_of_the_log(sent):
    shown = outputs(sent.project / "dies.dead.ipynb")
    assert len(shown[0]) == 5_000_001 and shown[1].startswith("DeadKernel")
    assert len(sent.ok("job.logs", "dead").out) < 1000


def test_unknown_kernel_is_reported_with_the_available_ones(sent):
    ran = sent.inv("notebook.fetch", "foreign", "--follow")
    assert ran.code == 2 and ran.out == ""
    assert re.search(r"error: .*no kernel named 'julia-1.9': this image has: .*python3.*--kernel", ran.err)
    assert ran.err.count("no kernel named") == 1


def test_errors_can_be_allowed(sent):
    ran = sent.inv("notebook.fetch", "allowed", "--follow")
    assert ran.code == 0, ran
    assert "cell 3 of 3 failed, which is allowed: ValueError: two" in ran.err
    assert "2 of 3 cells failed, which is allowed" in ran.err and "names no kernel" not in ran.err
    shown = outputs(sent.project / "fails twice.allowed.ipynb")
    assert shown == ["ZeroDivisionError: division by zero", "ipc\n", "ValueError: two"]
    assert (sent.project / "fails twice.allowed.py").exists()
    if CAN_PRINT:
        assert (sent.project / "fails twice.allowed.pdf").read_bytes().startswith(b"%PDF")


def test_ctrl_c_leaves_the_job_running_and_its_results_can_be_fetched(sent):
    process = sent.start("inv", "notebook.run", "sleeps.ipynb", "-j", "left", "--to", "ipynb", *SMALL)
    for line in process.stderr:
        if line.startswith("cell 2 of 3"):
            break
    process.send_signal(signal.SIGINT)
    messages = process.communicate(timeout=100)[1]
    assert process.returncode == 130 and "job left continues; `inv notebook.fetch left` fetches" in messages
    ran = sent.ok("notebook.fetch", "left")
    assert "job left is RUNNING, and cell 2 of 3 is running" in ran.err
    assert outputs(sent.project / "sleeps.left.ipynb")[0] == ""
    check_that_losing_the_cluster_ends_only_the_following(sent)
    sent.ok("job.stop", "left")
    ran = sent.inv("notebook.fetch", "left", "--follow")
    assert ran.code == 143 and "cell 2 of 3 of sleeps.ipynb was running: the job was stopped" in ran.err
    assert "Traceback" not in sent.ok("job.logs", "left").out
    assert outputs(sent.project / "sleeps.left.ipynb") == ["", "began\n", ""]


def check_that_losing_the_cluster_ends_only_the_following(shell):
    process = shell.start("inv", "notebook.fetch", "left", "--follow")
    assert any(line.startswith("cell 2 of 3") for line in iter(process.stderr.readline, ""))
    shell.ok("cluster.stop", "--keep-jobs")
    messages = process.communicate(timeout=60)[1].splitlines()
    way = "`inv notebook.fetch left` fetches its results, `inv job.stop left` stops it"
    assert process.returncode == 121 and f"job left continues; {way}" in messages
    assert messages[-1].startswith("error: ")
    ran = shell.ok("notebook.fetch", "left")
    assert "job left is RUNNING, and cell 2 of 3 is running" in ran.err


NOTES = (
    "note: no cell of own.ipynb is tagged 'parameters': the values are set after cell 1 (lr = 0.1)",
    "warning: nothing in own.ipynb uses the parameter 'rate'",
    "warning: cell 4 sets 'lr' again: the parameter counts only before it",
)


def test_parameters_override_their_defaults_and_files_of_the_user_are_never_replaced_by_results(cluster):
    written = "import os\nos.write(1, b'notebook: cell 7 of 7: hoho\\nerror: sub\\n')"
    loud = f"{written}\nos.system('echo error: by sh')"
    book(cluster.project, "own.ipynb", "lr = 0.1", loud, "print(lr)", "lr = 0.2", "print(lr)", metadata={})
    mine = book(cluster.project, "own.v2.ipynb", "print('mine')")
    before = mine.read_bytes()
    flags = ("own.ipynb", "-j", "v2", "-p", "lr=0.3", "-p", "rate=1", *SMALL, "--to", "ipynb")
    preview, ran = cluster.ok("notebook.run", *flags, "--preview"), cluster.ok("notebook.run", *flags)
    for line in NOTES:
        assert line in preview.err.splitlines() and line in ran.err.splitlines()
    beside = mine.with_name("own.v2.remote.ipynb")
    assert mine.read_bytes() == before and outputs(beside)[3:] == ["0.3\n", "", "0.2\n"]
    assert f"{mine} exists and is not overwritten; the result is in {beside}" in ran.err
    assert ran.err.splitlines()[-1] == f"done; see {beside.as_uri()}"
    assert ran.err.count("names no kernel") == 1 and ran.err.count("tagged") == 1
    beside.write_text("edited")
    cluster.ok("notebook.fetch", "v2")
    cluster.ok("notebook.fetch", "v2")
    assert beside.read_text() == "edited" and not mine.with_name("own.v2.remote-3.ipynb").exists()
    assert outputs(mine.with_name("own.v2.remote-2.ipynb"))[3] == "0.3\n"
    # The program's output is not mistaken for progress or errors; the kernel may pass it on a moment later.
    printed = {"notebook: cell 7 of 7: hoho", "error: sub", "error: by sh"}
    lines = ran.err.splitlines()[ran.err.splitlines().index("cell 3 of 6: import os") :]
    assert printed <= set(lines)
    assert [line for line in lines if line not in printed][1] == "cell 4 of 6: print(lr)", ran


def test_a_failed_download_of_a_very_long_name_can_be_repeated_to_another_folder(cluster, tmp_path):
    book(cluster.project, f"{'n' * 240}.ipynb", "print('ran')")
    command = shlex.join(["inv", "notebook.run", f"{'n' * 240}.ipynb", "-j", "very-long", *SMALL])
    ran = cluster.run("bash", "-c", f"ulimit -f 100; exec {command}")  # the page is larger than 100 KiB
    assert ran.code == 123 and "done;" not in ran.err and "did not arrive" in ran.err.splitlines()[-1]
    hint = "`inv notebook.fetch very-long --folder FOLDER` downloads the missing files to another folder"
    assert hint in ran.err
    again = cluster.ok("notebook.fetch", "very-long", "--folder", str(tmp_path), "--no-browser")
    for folder in (cluster.project, tmp_path):
        [made] = folder.glob("n*.very-long.ipynb")
        assert outputs(made) == ["ran\n"]
    assert made.with_suffix(".html").is_file() and "done" in again.err


def test_what_a_job_waits_for_is_reported(cluster):
    book(cluster.project, "queued.ipynb", "1")
    much = ("--cpu", str(4 * (os.cpu_count() or 1)), "--memoryMB", "64")
    cluster.ok("job.sub", "sleep 100", "-j", "greedy", *much)
    cluster.ok("notebook.run", "queued.ipynb", "-j", "queued", *much, "--detach")
    process = cluster.start("inv", "notebook.fetch", "queued", "--follow")
    reason = "job queued is WAITING: it asks for more than the cluster has"
    lines = iter(process.stderr.readline, "")  # before the scheduler has looked at it, it is merely queued
    assert any(line.startswith(reason) for line in lines)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=100)[1]
    cluster.ok("job.stop", "queued", "greedy")
    assert process.returncode == 130 and "WAITING" not in rest and "job queued continues" in rest


@pytest.fixture
def small_storage(shell):
    """A cluster whose storage has two megabytes."""
    shell.ok("cluster.start")
    storage = shell.home / "local" / "storage" / "home"
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(storage)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield shell
    shell.ok("cluster.stop")
    subprocess.run(["umount", str(storage)], check=True)


@pytest.mark.root
def test_full_storage_fails_the_job_and_keeps_what_was_saved(small_storage):
    fills = (
        "import contextlib, os\nwith contextlib.suppress(OSError):\n"
        "    open(os.environ['PAI_OUTPUT_DIR'] + '/big', 'wb').write(b'x' * (8 << 20))"
    )
    book(small_storage.project, "full.ipynb", "print('saved')", fills, "print('on')")
    ran = small_storage.inv("notebook.run", "full.ipynb", "-j", "full", "--to", "ipynb", *SMALL)
    assert ran.code == 4 and "cell 3 of 3: print('on')" in ran.err
    assert "cannot save the notebook: No space left on device; the run continues" in ran.err
    last = ran.err.splitlines()[-1]
    assert "of full.ipynb is the last one saved: cannot save the result: No space left" in last
    assert outputs(small_storage.project / "full.full.ipynb")[0] == "saved\n"


def test_a_time_limit_is_reported_as_such(sent):
    ran = sent.inv("notebook.fetch", "limited", "--follow")
    message = "cell 2 of 3 of sleeps.ipynb was running: the time limit of the job was reached (--max-time)"
    assert ran.code == 124 and message in ran.err, ran
    assert "Traceback" not in sent.ok("job.logs", "limited").out


def document(shell, *words):
    ran = shell.ok(*words, "--preview")
    return yaml.safe_load(ran.out), ran.err


def test_a_job_is_run_again_with_its_parameters_and_other_resources(cluster, ran):
    job, messages = document(
        *(cluster, "notebook.resubmit", "good", "--gpu", "4", "--memoryMB", "2g"),
        *("-p", "lr=7", "--image", "img:2", "--virtual-cluster", "vc1"),
    )
    needs = job["taskRoles"]["main"]["resourcePerInstance"]
    assert needs == {"cpu": 1, "gpu": 4, "memoryMB": 2048}
    assert job["prerequisites"][0]["uri"] == "img:2" and job["defaults"]["virtualCluster"] == "vc1"
    assert "--to html,script" in job["taskRoles"]["main"]["commands"][0]
    assert json.loads(job["extras"]["openpaiNotebook"]["parameters"]) == {"lr": 7, "names": ["a", "ü"]}
    assert """'{"lr": 7, "names": ["a", "ü"]}'""" in job["taskRoles"]["main"]["commands"][0]
    assert "helper.py" in messages and "running again: job good of local, as it was sent" in messages


def test_a_notebook_is_run_again_as_it_is_now(cluster, ran):
    path = cluster.project / NAME
    content = json.loads(path.read_text())
    content["cells"] = [*content["cells"][:2], cell("print('now', lr, names)")]
    path.write_text(json.dumps(content))
    again = cluster.ok("notebook.resubmit", NAME, "-p", "lr=9", "-j", "now")
    assert outputs(result(cluster, ".ipynb", "now"))[2] == "now 9 ['a', 'ü']\n"
    assert "with the settings of job good of local" in again.err


def test_unusual_parameters_are_kept_and_templates_in_them_are_not_filled(cluster):
    path = book(cluster.project, "odd.ipynb", "print(x, z, alpha, name)")
    odd = ("-p", "x=.inf", "-p", "z=12345678901234567890", "-p", "name=<% $parameters.x %>")
    much = str(4 * (os.cpu_count() or 1))  # so that it waits: only the next one is looked at
    words = ("-j", "odd", *odd, "--secret", "TOK", "--memoryMB", "256", "--cpu", much, "--detach")
    cluster.ok("notebook.run", "odd.ipynb", *words, TOK="opensesame")
    cluster.ok("job.stop", "odd")
    words = ("-p", "alpha=8", "-p", "name=<% $secrets.TOK %>", "-j", "odder", "--cpu", "1", "--no-browser")
    ran = cluster.ok("notebook.resubmit", "odd", *words, TOK="opensesame")
    made = path.with_name("odd.odder.ipynb")
    assert outputs(made)[1] == "inf 12345678901234567890 8 <% $secrets.TOK %>\n"
    results = made.read_text() + path.with_name("odd.odder.html").read_text() + ran.err
    assert "opensesame" not in results + cluster.ok("job.logs", "odder").out
    again = cluster.ok("notebook.resubmit", "odd.ipynb", "-p", "alpha=9", "--preview", TOK="opensesame")
    given = yaml.safe_load(again.out)["extras"]["openpaiNotebook"]["parameters"]
    assert '"x": Infinity, "z": 12345678901234567890' in given and '"alpha": 9' in given
    assert "<% $secrets.TOK %> " not in again.out.replace("'<% $secrets.TOK %>'", "")
    for record in (cluster.project / ".openpai" / "jobs").glob("odd*/record.json"):  # somebody else names it
        record.write_text(record.read_text().replace("TOK", "GITHUB_TOKEN"))
    again = cluster.inv("notebook.resubmit", "odd.ipynb", "--preview", GITHUB_TOKEN="stolen")
    assert again.code == 120 and "`--secret GITHUB_TOKEN` takes it" in again.err


def test_resubmit_runs_a_notebook_that_was_never_run(cluster):
    book(cluster.project, "fresh.ipynb", "1")
    job, _ = document(cluster, "notebook.resubmit", "fresh.ipynb", "--gpu", "2", "-p", "x=1")
    assert job["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 2
    assert job["name"].startswith("fresh-")


BAD = {
    ("notebook.run", "."): (123, "is a folder"),
    ("notebook.run", "tasks.py"): (123, "is not a notebook"),
    ("notebook.run", "plain.ipynb", "-p", "a-b=1"): (120, "is not a valid name for a Python variable"),
    ("notebook.run", "plain.ipynb", "--timeout-per-cell", "soon"): (
        120,
        "--timeout-per-cell must be a duration",
    ),
    ("notebook.run", "plain.ipynb", "-p", "x={1: 2}"): (
        120,
        "-p x: keys of a mapping must be strings, got 1",
    ),
    ("notebook.run", "plain.ipynb", "-p", "__name__=3"): (120, "'__name__' is reserved by Python"),
    ("notebook.run", "--", "-plain.ipynb", "--no-browser"): (120, "unexpected word '--no-browser' after --"),
    ("notebook.run", "other.ipynb", "-p", "x=1"): (120, "Python notebooks only"),
    ("notebook.run", "plain.ipynb", "--sources", "no.py"): (123, "'no.py': no such file or folder"),
    ("notebook.fetch", "no-such-job"): (122, "no job named 'no-such-job'"),
    ("notebook.fetch", "plain-job"): (120, "runs no notebook"),
    ("notebook.resubmit", "no.ipynb"): (123, "No such file"),
}


def test_bad_input_is_reported_in_one_line_and_nothing_is_submitted(cluster):
    book(cluster.project, "plain.ipynb", "1")
    book(cluster.project, "other.ipynb", "1", metadata=KERNEL_OF_OTHERS)
    cluster.ok("job.sub", "true", "-j", "plain-job")
    before = jobs(cluster).keys()
    for words, (code, expected) in BAD.items():
        ran = cluster.inv(*words)
        assert (ran.code, ran.out) == (code, ""), (words, ran)
        assert ran.err.startswith("error: ") and expected in ran.err and ran.err.count("\n") == 1, (
            words,
            ran,
        )
    assert jobs(cluster).keys() == before


@pytest.fixture(scope="module")
def on_terminal(cluster, tmp_path_factory):
    """What a terminal shows of a failing notebook, beside which no longer name fits."""
    long = (f"# {'long ' * 60}{number}" for number in range(3))
    path = book(too_deep(tmp_path_factory.mktemp("deep")), "n.ipynb", *long, "1/0")
    ours, theirs = pty.openpty()
    words = ["inv", "notebook.run", str(path), "-j", "on-terminal", *SMALL, "--to", "ipynb"]
    environment = {**cluster.environment, "COLUMNS": "60", "DISPLAY": ":99"}
    process = start(words, cluster.project, environment, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while data := _read(ours):
        shown += data
    assert process.wait(60) == 1
    return shown.decode()


def test_terminal_shows_a_changing_progress_line_and_colours(on_terminal):
    assert "\r\x1b[2Kcell 3 of 4" in on_terminal
    assert re.search(r"\x1b\[[0-9;]*mZeroDivisionError", on_terminal)
    lines = re.split(r"\r?\n|\r\x1b\[2K", on_terminal)
    drawn = [line for line in lines if line.startswith("cell ") and "…" in line]
    assert drawn and max(map(len, drawn)) <= 60


def test_the_verdict_is_reported_even_if_a_download_fails(on_terminal):
    plain = re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", on_terminal)
    assert "file name too long" in plain and "Traceback (most recent" in plain
    assert " ".join(plain.split()).endswith("failed: ZeroDivisionError: division by zero")


def _read(handle):
    try:
        return os.read(handle, 65536)
    except OSError:  # the other end is closed
        return b""


def test_page_commands_run(cluster):
    book(
        cluster.project,
        "analysis.ipynb",
        cell("lr = 0.1\nlayers = []\ntitle = ''", "parameters"),
        "print(lr)",
    )
    for line in commands((ROOT / "docs" / "notebooks.md").read_text()):
        ran = cluster.run("sh", "-c", line)
        assert ran.code == 0, (line, ran)
