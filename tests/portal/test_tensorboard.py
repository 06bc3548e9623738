"""TensorBoard for the event files of real jobs, started by a command and by the portal."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.needs import require
from tests.portal.conftest import Visitor
from tests.server.workshop import until

TRAIN = "from openpai_tasks import runtime\nfor step in (0, 1): runtime.log_metric('loss', 1 - step, step)\n"


@pytest.fixture(scope="module")
def jobs(cluster):
    require("tensorboard")
    (cluster.project / "train.py").write_text(TRAIN)
    for name in ("board-1", "board-2"):
        cluster.ok("job.sub", f"{sys.executable} train.py", "--sources", "train.py", "--job-name", name)
    cluster.ok("job.sub", "true", "--job-name", "plain")
    for name in ("board-1", "board-2", "plain"):
        cluster.ok("job.wait", name)


def runs(url):
    return sorted(requests.get(f"{url}data/runs", timeout=60).json())


def processes(home):
    """Return the command lines of the servers that run for commands with this home."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(home) in os.readlink(path / "cwd"):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [text for text in found if "sdk.tensorboard_server" in text]


def test_a_command_serves_jobs_by_their_names_below_a_secret_path_until_it_ends(cluster, jobs):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with cluster.start("pai", "job.tensorboard", "board-*", "plain", "--no-browser", **streams) as process:
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url), url
        until(lambda: runs(url) == ["board-1", "board-2"])
        path = "experiment/defaultExperimentId/data/plugin/scalars/scalars?run=board-1&tag=loss"
        assert [point[1:] for point in requests.get(url + path, timeout=60).json()] == [[0, 1], [1, 0]]
        root, secret = url[:-34], url[-33:-1]
        assert requests.get(f"{root}/data/runs", timeout=60).status_code == 404
        [words] = processes(cluster.home)
        assert secret not in words
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 0, said
    assert said.splitlines()[0] == "no event files of TensorBoard in the output of job plain"
    assert "TensorBoard shows 2 jobs; Ctrl-C ends it" in said
    assert not list((cluster.home / "tensorboard").iterdir()) and not processes(cluster.home)


def test_jobs_without_event_files_and_unknown_jobs_are_one_line(cluster, jobs):
    ran = cluster.inv("job.tensorboard", "plain")
    assert ran.code and ran.err.startswith(
        "error: no event files of TensorBoard in the output of job plain: "
    )
    assert ran.err.count("\n") == 1 and not list((cluster.home / "tensorboard").iterdir())
    assert "no job named 'nothing'" in cluster.inv("job.tensorboard", "nothing").err
    ran = cluster.inv("job.tensorboard", "board-1", "--port", "65536")
    assert (ran.code, ran.err) == (120, "error: a port is a number from 0 to 65535, got 65536\n")


def test_a_program_serves_several_jobs(cluster, jobs):
    code = (
        "from openpai_tasks import Cluster, Job; cluster = Cluster('local')\n"
        "with cluster.tensorboard('board-*', Job('plain')) as board: print(board.jobs, board.missing)\n"
        "try: cluster.tensorboard()\n"
        "except Exception as err: print(err)\n"
    )
    ran = cluster.run(sys.executable, "-c", code)
    assert ran.out.splitlines()[0] == "['board-1', 'board-2'] ['plain']", ran.err
    assert ran.out.splitlines()[1].startswith("name a job, a sweep, a pattern such as 'train-*'")
    assert not list((cluster.home / "tensorboard").iterdir()) and not processes(cluster.home)


def test_the_portal_starts_it_for_one_browser(cluster, jobs, visitor, link):
    text = visitor.get("/c/local/jobs/board-1").text
    assert 'action="/c/local/tensorboard"' in text and ">TensorBoard</button>" in text
    page = visitor.post("/c/local/tensorboard", {"job": ["board-1", "plain"]})
    url = re.search(r'href="(http://127\.0\.0\.1:\d+/[\w-]{32}/)"', page.text)[1]
    assert "No event files of TensorBoard in the output of plain." in page.text
    until(lambda: runs(url) == ["board-1"])
    address = page.url.removeprefix(visitor.root)
    assert visitor.post("/c/local/tensorboard", {"job": ["board-1", "plain"]}).url == page.url
    assert Visitor(link()).get(address).status_code == 404
    assert visitor.post(f"{address}/stop").status_code == 200
    with pytest.raises(requests.ConnectionError):
        runs(url)
    assert visitor.get(address).status_code == 404
    refused = visitor.post("/c/local/tensorboard", {"job": "plain"})
    assert refused.status_code == 404 and "no event files" in refused.text
