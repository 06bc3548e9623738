"""Downloading changed files from a Jupyter server: each returns to where it was sent from."""

import json
import os
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_notebook_serve import SMALL, Call, Jupyter, book, sources_of
from tests.server.workshop import until

SOURCES = (".flake8", "../lib", "ext", "link.txt", "data.bin")


@pytest.fixture(scope="module")
def call(cluster):
    """A server with a hidden notebook, and sources of every kind."""
    project = cluster.project
    for name in (".flake8", "../lib/l.py", "../far/e.py", "real.txt", "data.bin"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("sent")
    (project / "ext").symlink_to("../far")
    (project / "link.txt").symlink_to("real.txt")
    (project / ".work").mkdir()
    (project / ".work" / "hid.ipynb").write_text(json.dumps(book("1")))
    words = (word for source in SOURCES for word in ("--sources", source))
    made = Call(cluster, "odd", ".work/hid.ipynb", *words, "-j", "odd", "--no-browser", "-o", "json", *SMALL)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    cluster.inv("job.stop", "*")


@pytest.fixture(scope="module")
def jupyter(call):
    return Jupyter(call.json()["url"])


@pytest.fixture(scope="module")
def changed(cluster, jupyter):
    """Change all files on the server, and create new notebooks."""
    jupyter.ask("/api/contents/b", {"type": "directory"}, "PUT")
    for name in (".flake8", "lib/l.py", "ext/e.py", "link.txt"):
        jupyter.save(name, "there")
    for name in (".work/hid.ipynb", ".work/new.ipynb", "a.ipynb", "b/x.ipynb", "z.ipynb"):
        jupyter.save(name, book("there"))


def test_a_hidden_notebook_is_opened(jupyter):
    assert jupyter.address.startswith(f"{jupyter.base}/lab/tree/.work/hid.ipynb?token=")
    with urllib.request.urlopen(jupyter.address, timeout=60) as page:
        assert b"JupyterLab" in page.read()
    assert jupyter.ask("/api/contents/.work/hid.ipynb")["content"]["cells"][0]["source"] == "1"


def test_each_file_returns_to_its_origin_and_one_failure_stops_no_other(cluster, changed, tmp_path):
    project = cluster.project
    (project / "b").write_text("a file")
    ran = cluster.run("env", "-C", str(tmp_path), "pai", "notebook.pull", "odd", "-a", "local", "-o", "json")
    assert ran.code == 123 and ran.err.splitlines()[-1] == "error: 1 of 9 files could not be pulled"
    assert "failed b/x.ipynb: cannot read " in ran.err and list(tmp_path.iterdir()) == []
    beside = project / "link.remote.txt"
    assert f"warning: link.txt is a link here; the job's version is in {beside}" in ran.err
    paths = {".flake8": ".flake8", "lib/l.py": "../lib/l.py", "ext/e.py": "ext/e.py"}
    assert {(project / path).read_text() for path in paths.values()} == {"there"}
    assert (project / "../far/e.py").read_text() == "there" == beside.read_text()
    assert (project / "ext").is_symlink() and not (project / "lib").exists()
    for name in (".work/hid.ipynb", ".work/new.ipynb", "a.ipynb", "z.ipynb"):
        assert sources_of(project / name) == ["there"]
    rows = {row["name"]: Path(os.path.normpath(row["path"])) for row in ran.json()}
    assert len(rows) == 8 and rows["lib/l.py"] == project.parent / "lib" / "l.py"


def test_a_source_that_has_become_too_large_is_reported(cluster, jupyter, changed):
    kernel = jupyter.kernel(".work/hid.ipynb")
    jupyter.run(kernel, "import os; os.truncate('../data.bin', (100 << 20) + 1)")
    warning = "notebook: warning: data.bin is larger than 100 MiB: its changes are not saved"
    until(lambda: warning in cluster.ok("job.logs", "odd").out)
    ran = cluster.inv("notebook.pull", "odd")
    assert "warning: data.bin was changed in the job, but not saved: it is larger than 100 MiB" in ran.err
    assert (cluster.project / "data.bin").read_text() == "sent"
    ran = cluster.ok("notebook.resubmit", "odd", "--preview")
    assert "running again: .work/hid.ipynb, as job odd of local last saved it" in ran.err
    assert "note: data.bin is too large to be saved; it runs without its latest changes" in ran.err


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ("--idle", "30h", "--gpu", "0", "--image", "x", "--job-name", "y", "--preview"),
            "leave out --job-name, --image, --gpu, --preview, --idle",
        ),
        (("a.ipynb", "--timeout", "1h"), "leave out the notebook, --timeout"),
        (("--direct",), "was not started with --direct"),
        (("--direct", "--port", "8888"), "--port is the local end of a tunnel"),
        (("--token", "not/allowed"), "expected letters, digits and . _ ~ -"),
    ],
    ids=["flags", "notebook", "direct", "port", "token"],
)
def test_reconnect_refuses_flags_that_need_a_new_server(cluster, jupyter, flags, message):
    ran = cluster.inv("notebook.serve", "--reconnect", "odd", "--no-browser", *flags)
    assert ran.code == 120 and ran.out == "" and message in ran.err.splitlines()[-1]
    assert len(ran.err.splitlines()) == (2 if "--token" in flags else 1)  # with the warning about the token


def test_a_taken_port_is_reported_with_its_flag(cluster, jupyter):
    port = int(jupyter.base.rpartition(":")[2])
    ran = cluster.inv("notebook.serve", "--reconnect", "odd", "--no-browser", "--port", str(port))
    assert ran.code == 120 and ran.err.splitlines()[-1].endswith(f"use another one: --port {port + 1}")


def test_at_the_end_changes_are_pulled_and_failures_reported(cluster, call, jupyter, changed):
    jupyter.save("z.ipynb", book("later"))
    code, err = call.interrupt()
    assert code == 123 and err.splitlines()[-1] == "error: 1 of 9 files could not be pulled", err
    assert "failed b/x.ipynb: " in err and "`inv notebook.pull odd` tries again" in err
    assert "job odd continues" in err and "Traceback" not in err
    assert sources_of(cluster.project / "z.ipynb") == ["later"]
    (cluster.project / "b").unlink()
    cluster.ok("notebook.pull", "odd")
    assert sources_of(cluster.project / "b" / "x.ipynb") == ["there"]


def test_pull_without_a_saved_session_uses_the_current_folder(cluster, call, changed):
    [kept] = (cluster.home / "notebooks" / "local").glob("*~odd.json")
    kept.unlink()
    folder = cluster.project.parent / "other"
    folder.mkdir()
    ran = cluster.run("env", "-C", str(folder), "pai", "notebook.pull", "odd", "-a", "local")
    assert f"note: job odd was not served from this machine; its files go to {folder}" in ran.err
    assert ran.code == 123 and "failed .flake8: it is hidden and was not sent from here" in ran.err
    assert sources_of(folder / ".work" / "hid.ipynb") == ["there"]  # it is named in the job's document
    assert "failed lib/l.py: it is not a notebook and was not sent from here; download it with `" in ran.err
    assert not (folder / "lib").exists() and not (folder / ".flake8").exists()
