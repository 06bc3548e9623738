"""How the job of a Jupyter server saves changes, when it ends, and how changes are pulled."""

import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol.models import job_from_detail
from openpai_tasks.sdk.jobs import outputs
from openpai_tasks.sdk.notebooks import downloads, serving
from openpai_tasks.sdk.notebooks import pull as pulls
from openpai_tasks.sdk.notebooks import sessions as notebook_sessions
from openpai_tasks.sdk.notebooks.link import notebook_page
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.sdk.payloads import notebook_runner
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.needs import require
from tests.ports import free_port

JOB = job_from_detail({"jobStatus": {"state": "SUCCEEDED"}}, "me~lab")


@pytest.fixture(scope="module")
def program():
    """The server's program, as it is loaded in a job: beside the runner."""
    sys.path.insert(0, str(Path(notebook_runner.__file__).parent))
    spec = importlib.util.spec_from_file_location("pai_notebook_server", serving.SERVER)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.pop(0)
    for name in (spec.name, "notebook_runner"):
        sys.modules.pop(name, None)


@pytest.fixture
def places(tmp_path):
    """The working folder of a job, and its output folder."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    return work, out


def kept(out):
    return sorted(
        str(path.relative_to(out / "notebooks")) for path in out.rglob("notebooks/**/*") if path.is_file()
    )


def manifest(out):
    return json.loads((out / "notebooks.json").read_text())["files"]


def digest(text):
    return sha256(text.encode()).hexdigest()


def test_only_new_and_changed_files_are_saved(program, places):
    work, out = places
    (work / "deep").mkdir()
    for name in ("same.ipynb", "deep/changed.ipynb", "code.py", "other.py"):
        (work / name).write_text("before")
    saver = program.Saver(work, out, ["code.py", "same.ipynb"])
    saver.begin()
    assert not saver.save_changes() and kept(out) == [] and manifest(out) == {}
    (work / "deep" / "changed.ipynb").write_text("after")
    (work / "new ü.ipynb").write_text("new")
    (work / "code.py").write_text("after")
    (work / "other.py").write_text("was not sent")
    (work / "own.txt").write_text("was made there")
    (work / ".ipynb_checkpoints").mkdir()
    (work / ".ipynb_checkpoints" / "same-checkpoint.ipynb").write_text("x")
    (work / "link.ipynb").symlink_to("/etc/passwd")
    os.utime(work / "same.ipynb", (1, 1))  # saved again as it was
    assert saver.save_changes() and not saver.save_changes()
    assert kept(out) == ["code.py", "deep/changed.ipynb", "new ü.ipynb"]
    assert manifest(out)["code.py"] == {
        "base": digest("before"),
        "versions": [digest("before"), digest("after")],
    }
    assert manifest(out)["new ü.ipynb"] == {"base": None, "versions": [digest("new")]}


def test_retry_of_the_job_continues_with_the_saved_changes(program, places, tmp_path):
    work, out = places
    (work / "a.ipynb").write_text("sent")
    first = program.Saver(work, out, [])
    first.begin()
    (work / "a.ipynb").write_text("changed")
    (work / "b").mkdir()
    (work / "b" / "b.ipynb").write_text("new")
    first.save_changes()
    again = tmp_path / "again"
    again.mkdir()
    (again / "a.ipynb").write_text("sent")
    second = program.Saver(again, out, [])
    second.begin()
    assert (again / "a.ipynb").read_text() == "changed" and (again / "b" / "b.ipynb").read_text() == "new"
    (again / "a.ipynb").write_text("more")
    second.save_changes()
    assert manifest(out)["a.ipynb"]["base"] == digest("sent")
    assert manifest(out)["a.ipynb"]["versions"] == [digest(text) for text in ("sent", "changed", "more")]


def test_a_failed_save_is_reported_once_and_tried_again(program, places, capfdbinary):
    work, out = places
    saver = program.Saver(work, out, [])
    saver.begin()
    (out / "notebooks").rmdir()
    (out / "notebooks").write_text("in the way")
    (work / "a.ipynb").write_text("new")
    assert saver.save_changes() and not saver.save_changes() and saver.problem
    assert capfdbinary.readouterr().out.count(b"notebook: error: cannot save a.ipynb") == 1
    (out / "notebooks").unlink()
    saver.save_changes()
    assert not saver.problem and kept(out) == ["a.ipynb"]


def test_hidden_files_are_saved_if_they_were_sent_but_checkpoints_never_are(program, places):
    work, out = places
    for name in (".flake8", ".work/hid.ipynb", ".a.ipynb", ".ipynb_checkpoints/x.ipynb", ".other/o.ipynb"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("before")
    names = [".flake8", ".work/hid.ipynb", ".a.ipynb", ".ipynb_checkpoints/x.ipynb"]
    saver = program.Saver(work, out, names)
    saver.begin()
    (work / ".work" / ".ipynb_checkpoints").mkdir()
    for name in (*names, ".other/o.ipynb", ".work/new.ipynb", ".work/.ipynb_checkpoints/hid.ipynb"):
        (work / name).write_text("after")
    assert saver.save_changes()
    assert kept(out) == [".a.ipynb", ".flake8", ".work/hid.ipynb", ".work/new.ipynb"]
    assert manifest(out)[".work/hid.ipynb"]["base"] == digest("before")


def test_a_large_source_is_reported_once_and_saved_once_it_is_smaller(
    program, places, capfdbinary, monkeypatch
):
    work, out = places
    monkeypatch.setattr(program, "LARGEST", 1 << 20)
    (work / "data.bin").write_bytes(b"x" * (2 << 20))
    (work / "code.py").write_text("small")
    saver = program.Saver(work, out, ["data.bin", "code.py"])
    saver.begin()
    assert not saver.save_changes() and capfdbinary.readouterr().out == b""
    for size in (3 << 20, 4 << 20):  # two changes in a short time may have the same date
        (work / "data.bin").write_bytes(b"y" * size)
        (work / "code.py").write_bytes(b"y" * size)
        assert saver.save_changes() and not saver.save_changes()
    output = capfdbinary.readouterr().out.decode().splitlines()
    assert sorted(output) == [
        f"notebook: warning: {name} is larger than 1 MiB: its changes are not saved"
        for name in ("code.py", "data.bin")
    ]
    assert kept(out) == [] and large(out) == ["code.py", "data.bin"] and not saver.problem
    (work / "data.bin").write_text("small")
    (work / "code.py").write_text("small")  # as it was
    assert saver.save_changes() and kept(out) == ["data.bin"] and large(out) == []
    assert manifest(out)["data.bin"]["base"] == digest("x" * (2 << 20))


def large(out):
    return json.loads((out / "notebooks.json").read_text())["large"]


def test_successful_saves_do_not_hide_a_failed_one(program, places):
    work, out = places
    saver = program.Saver(work, out, [])
    saver.begin()
    (out / "notebooks" / "b.ipynb").mkdir()
    (work / "a.ipynb").write_text("new")
    (work / "b.ipynb").write_text("new")
    (work / "c.ipynb").write_text("new")
    assert saver.save_changes() and kept(out) == ["a.ipynb", "c.ipynb"]
    assert "b.ipynb" in saver.problem and not saver.save_changes()
    (work / "b.ipynb").write_text("newer")
    assert saver.save_changes() and saver.problem
    (work / "b.ipynb").unlink()
    assert not saver.save_changes() and not saver.problem


def test_change_is_added_to_the_manifest_later_if_writing_it_failed(program, places):
    work, out = places
    saver = program.Saver(work, out, [])
    saver.begin()
    (out / "notebooks.json").unlink()
    (out / "notebooks.json").mkdir()
    (work / "a.ipynb").write_text("new")
    assert saver.save_changes() and saver.problem
    (out / "notebooks.json").rmdir()
    saver.save_changes()
    assert not saver.problem and list(manifest(out)) == ["a.ipynb"]


def test_a_program_in_a_terminal_is_activity_and_a_waiting_shell_is_not(program):
    import ptyprocess

    shell = ptyprocess.PtyProcess.spawn(["/bin/bash", "--norc", "-i"])
    try:
        shell.read()
        assert not program.has_foreground(os.getpid())
        shell.write(b"sleep 30\n")
        wait_for(lambda: program.has_foreground(os.getpid()))
        shell.write(b"\x03")
        wait_for(lambda: not program.has_foreground(os.getpid()))
    finally:
        shell.terminate(force=True)


def test_a_cell_that_begins_just_before_the_idle_limit_keeps_the_server(program, monkeypatch):
    kernel = {"id": "k", "last_activity": "then", "execution_state": "idle"}
    server = SimpleNamespace(get=lambda path: [kernel] if path == "/api/kernels" else [])
    now = 1000.0
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: now))
    activity = program.Activity(server, 60)
    activity.update()
    now = 1059.0
    activity.update()
    kernel["execution_state"] = "busy"
    now = 1060.0
    activity.update()
    assert activity.idle == 0


class Interrupted(threading.Event):
    """An event that a signal handler sets while somebody waits for it, and has its lock."""

    def wait(self, timeout=None):
        pytest.fail("the handler would wait forever for the lock")


def test_a_signal_at_any_moment_ends_the_server(program, places):
    ended, options = Interrupted(), SimpleNamespace(idle=0, limit=0)
    ended.set()
    assert program.watch(SimpleNamespace(), program.Saver(*places, []), ended, options) == program.STOPPED


def wait_for(condition):
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


class Job:
    """The program as a job runs it."""

    def __init__(self, work, out, *flags, **environment):
        own = work / serving.FOLDER
        own.mkdir()
        for path in (serving.SERVER, notebook_runner.__file__):
            shutil.copy(path, own)
        (own / "sent.json").write_text("{}")
        port = str(free_port())
        variables = {"JUPYTER_TOKEN": "a-token-of-the-test", "PAI_CONTAINER_HOST_jupyter_PORT_LIST": port}
        self.process = subprocess.Popen(
            [sys.executable, f"{serving.FOLDER}/{serving.SERVER.name}", *flags],
            cwd=work,
            env={**os.environ, **variables, "PAI_OUTPUT_DIR": str(out), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self):
        try:
            return self.process.communicate(timeout=200)[0]
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def jupyter():
    require("jupyterlab")


def test_time_limit_and_stop_end_the_server_with_all_changes_saved(jupyter, tmp_path):
    jobs = []
    for number, flags in enumerate([("--limit", "15"), ()]):
        work, out = tmp_path / f"work{number}", tmp_path / f"out{number}"
        work.mkdir()
        jobs.append(Job(work, out, *flags))
        wait_for((out / "notebooks.json").exists)
        (work / "a.ipynb").write_text("new")
    jobs[1].process.send_signal(signal.SIGTERM)
    output = [job.end() for job in jobs]
    assert [job.process.returncode for job in jobs] == [0, 143]
    assert "the time limit of 15 s is over" in output[0] and "notebook: stopped" in output[1]
    assert all(kept(tmp_path / f"out{number}") == ["a.ipynb"] for number in (0, 1))


def test_an_image_whose_settings_let_everybody_in_is_refused(jupyter, tmp_path):
    work, settings = tmp_path / "work", tmp_path / "settings"
    work.mkdir()
    settings.mkdir()
    (settings / "openly.py").write_text(
        "from jupyter_server.auth.identity import IdentityProvider, User\n\n\n"
        "class Open(IdentityProvider):\n    def get_user(self, handler):\n        return User('all')\n"
    )
    config = {"ServerApp": {"identity_provider_class": "openly.Open"}}
    (settings / "jupyter_server_config.json").write_text(json.dumps(config))
    job = Job(work, tmp_path / "out", PYTHONPATH=str(settings), JUPYTER_CONFIG_PATH=str(settings))
    output = job.end()
    assert job.process.returncode == 2 and "this image's settings let users in" in output


# Pulling changes


def saved(out, files, origins=None):
    """Make the saved changes of a job: each name has its base and versions, and the last one is stored."""
    entries = {}
    for name, (base, *versions) in files.items():
        if name and not name.startswith("/") and not {"..", "a\0b"} & set(name.split("/")):
            path = out / "notebooks" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(versions[-1])
        entries[name] = {"base": base and digest(base), "versions": [digest(one) for one in versions]}
    found = outputs.list_outputs("lab", Location(LocalStore(), str(out), str(out)))
    if origins is None:
        origins = Origins(sent={name: digest(base) for name, (base, *_) in files.items() if base})
    return pulls.SavedChanges(JOB, found, pulls.parse_changes({"files": entries}), origins)


@pytest.mark.parametrize(
    "here, change, there",
    [
        (None, "new", "c"),
        ("a", "updated", "c"),
        ("b", "updated", "c"),  # of an earlier call
        ("c", "unchanged", "c"),
        ("mine", "conflict", "mine"),
    ],
)
def test_pulled_change_depends_on_the_local_file(places, here, change, there):
    work, out = places
    if here:
        (work / "x.ipynb").write_text(here)
        (work / "x.ipynb").chmod(0o640)
    if here == "b":
        downloads.remember([work / "x.ipynb"])
    [row] = pulls.pull_changes(saved(out, {"x.ipynb": ("a", "a", "b", "c")}), work).files
    assert row.change == change and Path(row.path).read_text() == "c"
    assert (work / "x.ipynb").read_text() == there
    if here:
        assert (work / "x.ipynb").stat().st_mode & 0o777 == 0o640
    expected = ["x.ipynb", "x.remote.ipynb"] if change == "conflict" else ["x.ipynb"]
    assert sorted(path.name for path in work.iterdir()) == expected


def test_symlink_or_folder_in_the_place_of_a_file_is_kept(places):
    work, out = places
    (work / "real").write_text("a")
    (work / "x.ipynb").symlink_to("real")
    (work / "y.ipynb").mkdir()
    (work / "z.ipynb").symlink_to("nowhere")
    names = dict.fromkeys(["x.ipynb", "y.ipynb", "z.ipynb"], ("a", "b"))
    (work / "w.ipynb").write_text("mine")
    rows = pulls.pull_changes(saved(out, {**names, "w.ipynb": ("a", "b")}), work).files
    assert [(Path(row.path).name, row.remark) for row in rows] == [
        ("w.remote.ipynb", "was changed here too"),
        ("x.remote.ipynb", "is a link here"),
        ("y.remote.ipynb", "is not a regular file here"),
        ("z.remote.ipynb", "is a link here"),
    ]
    assert (work / "real").read_text() == "a" and (work / "x.ipynb").is_symlink()


@pytest.mark.parametrize(
    "name, reason",
    [
        ("../evil.ipynb", "leads out of"),
        ("a/../../evil.ipynb", "leads out of"),
        ("/evil.ipynb", "leads out of"),
        ("", "leads out of"),
        ("a\0b", "leads out of"),
        (".git/evil", "is hidden"),
        (".evil.ipynb", "is hidden"),
        ("out/evil.ipynb", "a link that leads out"),
    ],
)
def test_escaping_or_hidden_name_is_refused_and_the_rest_is_pulled(places, name, reason):
    work, out = places
    (work / "out").symlink_to(work.parent)
    pulled = pulls.pull_changes(
        saved(out, {"a.ipynb": (None, "a"), name: (None, "evil"), "z.ipynb": (None, "z")}), work
    )
    assert sorted(path.name for path in work.iterdir()) == ["a.ipynb", "out", "z.ipynb"]
    assert not [path for path in work.parent.rglob("*evil*") if not path.is_relative_to(out)]
    [failure] = pulled.failed
    assert failure.path == name and reason in failure.reason
    with pytest.raises(PathError, match=r"^1 of 3 files could not be pulled$"):
        pulls.check_pulled(pulled)


@pytest.mark.parametrize("name", ["tasks.py", "tasks/__init__.py", "invoke.yaml", "yaml.so", "x.IPYNB"])
@pytest.mark.parametrize("known", [Origins(), Origins(sent={"train.py": digest("sent")})])
def test_job_cannot_add_or_replace_a_program_that_was_not_sent(places, name, known):
    work, out = places
    found = saved(out, {name: ("public", "evil")}, known)
    [failure] = pulls.pull_changes(found, work).failed
    assert "not a notebook and was not sent from here" in failure.reason
    assert f"job.outputs {JOB.name} --to FOLDER" in failure.reason and list(work.iterdir()) == []
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).write_text("public")  # a digest that the job can know
    assert pulls.pull_changes(found, work).failed and (work / name).read_text() == "public"
    assert not list(work.rglob("*remote*"))


def test_digests_that_only_the_job_knows_replace_nothing(places):
    work, out = places
    names = ["mine.ipynb", "mine.remote.ipynb", "train.py"]
    for name in names:
        (work / name).write_text("guessed")
    files = dict.fromkeys(["mine.ipynb", "train.py"], ("guessed", "guessed", "evil"))
    pulled = pulls.pull_changes(saved(out, files, Origins(sent={"train.py": digest("sent")})), work)
    assert {row.name: row.remark for row in pulled.files} == {
        "mine.ipynb": "exists here, but was not sent",
        "train.py": "was changed here too",
    }
    assert all((work / name).read_text() == "guessed" for name in names)


def test_huge_file_of_a_job_is_not_read_into_memory(places, monkeypatch):
    work, out = places
    monkeypatch.setattr(pulls, "LARGEST_FILE", 1 << 20)
    found = saved(out, {"x.ipynb": (None, "new")})
    os.truncate(out / pulls.SAVED / "x.ipynb", 1 << 42)  # sparse
    [failure] = pulls.pull_changes(found, work).failed
    assert failure.reason.endswith("x.ipynb of job 'lab' is larger than 1 MB")
    (out / pulls.MANIFEST).touch()
    os.truncate(out / pulls.MANIFEST, 1 << 42)
    listed = outputs.list_outputs("lab", Location(LocalStore(), str(out), str(out)))
    with pytest.raises(PathError, match=r"of job 'lab' is larger than 64 MB"):
        pulls._manifest(listed)


def test_thousands_of_files_that_never_match_do_not_keep_a_pull_busy(places, monkeypatch):
    work, out = places
    names = [f"{number}.ipynb" for number in range(1000)]
    found = saved(out, dict.fromkeys(names, (None, "new")))
    for name in names[::2]:
        (out / pulls.SAVED / name).write_text("other")
    missing = {name: entry for name, entry in found.outputs.files.items() if not name.endswith("1.ipynb")}
    found = dataclasses.replace(found, outputs=dataclasses.replace(found.outputs, files=missing))
    slept, clock = [], iter(range(10**6))
    clock_of_the_pull = SimpleNamespace(sleep=slept.append, monotonic=lambda: next(clock))
    monkeypatch.setattr(pulls, "time", clock_of_the_pull)  # other threads have theirs
    assert len(pulls.pull_changes(found, work).failed) == 600
    assert sum(slept) < 60


class Swapping(LocalStore):
    """A store whose job replaces a folder of the project by a link while its file is read."""

    def __init__(self, folder, aim):
        super().__init__()
        self.folder, self.aim = folder, aim

    def read(self, path, offset=0, length=None):
        yield from super().read(path, offset, length)
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder)
        if not self.folder.is_symlink():
            self.folder.symlink_to(self.aim)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("name", ["sub/tasks.py", "sub/deep/x.ipynb"])
def test_folder_that_becomes_a_link_while_its_file_is_pulled_is_not_followed(places, name, is_there):
    work, out = places
    home = work.parent / "home"
    home.mkdir()
    if is_there:
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text("sent")
    found = saved(out, {name: ("sent", "evil")})
    store = Swapping(work / "sub", home)
    folder = dataclasses.replace(found.outputs.folder, store=store)
    found = dataclasses.replace(found, outputs=dataclasses.replace(found.outputs, folder=folder))
    pulled = pulls.pull_changes(found, work)
    assert list(home.iterdir()) == [] and pulled.files == []
    [failure] = pulled.failed
    above = f"/{os.path.dirname(name)}"
    assert (
        failure.reason
        == f"cannot write {work / name}: {above} leads out of the storage, by a link or by '..'"
    )


def test_file_that_was_pulled_is_replaced_by_the_next_pull(places):
    work, out = places
    for versions in (["b"], ["b", "c"]):
        [row] = pulls.pull_changes(saved(out, {"new.ipynb": (None, *versions)}), work).files
    assert row.change == "updated" and (work / "new.ipynb").read_text() == "c"


def test_each_file_that_fails_is_reported_and_the_others_are_pulled(places):
    work, out = places
    (work / "b").write_text("a file")
    names = ["a.ipynb", "b/x.ipynb", "b/y.ipynb", "c/x.ipynb"]
    pulled = pulls.pull_changes(saved(out, dict.fromkeys(names, (None, "new"))), work)
    assert [(row.name, row.change) for row in pulled.files] == [("a.ipynb", "new"), ("c/x.ipynb", "new")]
    assert [one.path for one in pulled.failed] == names[1:3]
    assert all("ot a directory" in one.reason for one in pulled.failed)
    assert (work / "c" / "x.ipynb").read_text() == "new" and (work / "b").read_text() == "a file"


@pytest.fixture
def project(tmp_path):
    """Sources of every kind, in and around a project."""
    here = tmp_path / "project"
    for name in ("src/s.py", ".flake8", ".conf/c.ini", "../lib/l.py", "../lib/deep/d.py", "../own.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("sent")
    for name in ("ext/e.py", "inner/i.py"):
        (tmp_path / "far" / name).parent.mkdir(parents=True)
        (tmp_path / "far" / name).write_text("sent")
    (here / "ext").symlink_to("../far/ext")
    (here / "src" / "inner").symlink_to("../../far/inner")
    return here


def test_pulled_files_go_back_to_their_origins_from_any_working_directory(project, places, tmp_path):
    given = ("src", ".flake8", ".conf", "ext", "../lib", "../own.py")
    known = serving.source_origins(None, given, project)
    sent = [".flake8", ".conf/c.ini", "ext/e.py", "lib/l.py", "lib/deep/d.py", "own.py"]
    sent += ["src/s.py", "src/inner/i.py"]
    made = ["new.ipynb", "lib/new.ipynb", "lib/other/new.ipynb", "src/new.ipynb", ".conf/new.ipynb"]
    files = dict.fromkeys(sent, ("sent", "there")) | dict.fromkeys(made, (None, "there"))
    elsewhere, out = places
    pulled = pulls.pull_changes(saved(out, files, known), elsewhere)
    assert pulled.failed == () and list(elsewhere.iterdir()) == []
    assert {row.name: row.change for row in pulled.files} == (
        dict.fromkeys(sent, "updated") | dict.fromkeys(made, "new")
    )
    there = ["../lib/l.py", "../lib/deep/d.py", "../own.py", "../lib/new.ipynb", "../lib/other/new.ipynb"]
    there += [".flake8", ".conf/c.ini", ".conf/new.ipynb", "src/s.py", "src/new.ipynb", "new.ipynb"]
    there += ["../far/ext/e.py", "../far/inner/i.py"]
    assert {name: (project / name).read_text() for name in there} == dict.fromkeys(there, "there")
    assert (project / "ext").is_symlink() and not (project / "lib").exists()


def test_two_folders_with_the_same_name_get_back_their_own_files(project, places):
    (project / "lib").mkdir()
    (project / "lib" / "a.py").write_text("sent")
    known = serving.source_origins(None, ("lib", "../lib"), project)
    pulls.pull_changes(
        saved(places[1], dict.fromkeys(["lib/a.py", "lib/l.py"], ("sent", "there")), known), project
    )
    assert (project / "lib" / "a.py").read_text() == "there" == (project / "../lib/l.py").read_text()
    assert os.listdir(project / "lib") == ["a.py"]


def test_hidden_files_that_were_not_sent_are_refused(project, places):
    known = serving.source_origins(None, (".flake8", ".conf"), project)
    names = [".flake8", ".conf/evil.ini", ".conf/.evil.ipynb", ".evil"]
    files = {name: ("sent", "there") for name in names}
    pulled = pulls.pull_changes(saved(places[1], files, known), project)
    assert [row.name for row in pulled.files] == [".flake8"] and len(pulled.failed) == 3
    assert not list(project.rglob("*evil*"))


def test_pull_into_a_given_folder_writes_everything_there_and_nowhere_else(project, places):
    work, out = places
    known = serving.source_origins(None, (".flake8", "../lib", "ext"), project)
    names = [".flake8", "ext/e.py", "lib/l.py"]
    pulled = pulls.pull_changes(saved(out, dict.fromkeys(names, ("sent", "there")), known), project, work)
    assert [(row.name, row.change) for row in pulled.files] == [(name, "new") for name in names]
    assert all((work / name).read_text() == "there" for name in names)
    assert (project / "../lib/l.py").read_text() == "sent" == (project / "ext/e.py").read_text()


def test_missing_origin_folder_is_not_recreated(project, places):
    work, out = places
    known = serving.source_origins(None, ("src",), project)
    shutil.move(project, project.with_name("moved"))
    names = ["src/inner/i.py", "src/s.py"]
    found = saved(out, dict.fromkeys(names, ("sent", "there")), known)
    assert found.folder is None and pulls.pull_changes(found, work).failed == ()
    assert all((work / name).read_text() == "there" for name in names) and not project.exists()


def test_saved_session_is_read_back_with_its_origins(project, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    client = SimpleNamespace(cluster=SimpleNamespace(unique_name="lab"))
    written = notebook_sessions.SavedSession(
        "t", "n.ipynb", "/n.ipynb", serving.source_origins(None, (".flake8", "../lib"), project)
    )
    assert written.origins.elsewhere == {"lib": str(tmp_path / "lib")}
    notebook_sessions.save_session(client, JOB, written)
    notebook_sessions.forget_token(client, JOB)
    assert notebook_sessions.load_session(client, JOB) == dataclasses.replace(written, token="")
    [path] = (tmp_path / "home").rglob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"token": "t", "file": "n.ipynb", "path": "/n.ipynb"}')  # of an earlier version
    assert notebook_sessions.load_session(client, JOB) == notebook_sessions.SavedSession(
        "t", "n.ipynb", "/n.ipynb"
    )


def test_notebook_from_another_folder_is_pulled_back_to_it(places, tmp_path):
    work, out = places
    (tmp_path / "x.ipynb").write_text("a")
    known = Origins(elsewhere={"x.ipynb": str(tmp_path / "x.ipynb")}, sent={"x.ipynb": digest("a")})
    found = saved(out, {"x.ipynb": ("a", "b")}, known)
    pulls.pull_changes(found, work)
    assert (tmp_path / "x.ipynb").read_text() == "b" and not (work / "x.ipynb").exists()
    pulls.pull_changes(found, work, work)
    assert (work / "x.ipynb").read_text() == "b"


def test_file_that_does_not_match_the_manifest_is_not_pulled(places, monkeypatch):
    work, out = places
    monkeypatch.setattr(pulls, "READ_PAUSES", (0.0, 0.0))
    found = saved(out, {"x.ipynb": (None, "a")})
    (out / "notebooks" / "x.ipynb").write_text("hal")
    pulled = pulls.pull_changes(found, work)
    assert pulled.files == [] and "missing or being written" in pulled.failed[0].reason
    assert list(work.iterdir()) == []


def test_read_changes_include_hidden_files_and_refuse_escaping_names(places):
    out = places[1]
    assert pulls.read_changes(saved(out, {".flake8": ("a", "b")})) == {".flake8": b"b"}
    with pytest.raises(PathError, match=r"'\.\./x' from the job: its name leads out of the job's folder"):
        pulls.read_changes(saved(out, {"../x": ("a", "b")}))


def test_an_invalid_manifest_is_refused():
    for manifest in ({}, {"files": 3}, {"files": {"a": {"versions": []}, "b": 1, "c": {"versions": [2]}}}):
        assert pulls.parse_changes(manifest) == (), manifest


def test_invalid_options_are_refused_without_showing_the_token():
    options = ("a/cd", "2h", ""), ("x" * 15 + "&y", "2h", ""), ("", "0", ""), ("", "", ""), ("", "2h", "x")
    for flags in options:
        with pytest.raises(ConfigError) as refused:
            serving.serve_options(*flags, direct=False)
        assert not flags[0] or flags[0] not in str(refused.value), flags


def test_tokens_are_random_and_never_in_a_repr_or_the_arguments_of_the_job():
    one, two = (serving.serve_options("", "never", "1h", direct=True) for _ in range(2))
    assert one.token != two.token and len(one.token) >= 40
    assert one.token not in repr(one) + " ".join(one.words())
    assert one.words() == ["--limit", "3600", "--direct"]


def test_page_depends_on_the_interface_of_the_server():
    both, classic = ["/lab", "/tree"].__contains__, ["/tree"].__contains__
    assert notebook_page("a b.ipynb", both) == "/lab/tree/a%20b.ipynb"
    assert notebook_page("", both) == "/lab" and notebook_page("", classic) == "/tree"
    assert notebook_page("a/ü.ipynb", classic) == "/notebooks/a/%C3%BC.ipynb"
    assert notebook_page("x.ipynb", [].__contains__) == "/"
