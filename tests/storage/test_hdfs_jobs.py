"""Jobs whose files are on a real HDFS: fetched and kept by a real shell with curl alone."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from openpai_tasks.config import Settings
from openpai_tasks.credentials import Credentials
from openpai_tasks.protocol import JobSpec, document, dump, validate
from openpai_tasks.protocol.homes import WebHdfs as Seen
from openpai_tasks.sdk import (
    cleaning,
    clusters,
    jobs,
    leftovers,
    logs,
    outputs,
    own_storages,
    places,
    resubmit,
    selecting,
)
from openpai_tasks.sdk.clusters import NewCluster
from openpai_tasks.sdk.logs import Which
from openpai_tasks.sdk.submission import draft, submit
from openpai_tasks.storage.archive import pack
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.sources import collect
from openpai_tasks.storage.walk import walk
from openpai_tasks.storage.webhdfs_store import WebHdfs
from openpai_tasks.storage.workspace import Workspace
from tests.storage.gateway import Gateway

SETTINGS = Settings(http_timeout=10.0)
SHELLS = {
    "dash": ["dash", "-c"],
    "bash": ["bash", "-euo", "pipefail", "-c"],
    "busybox": ["busybox", "sh", "-euc"],
}
ODD = ["a.txt", "sub/deep/b #1?.txt", "100%.txt", "it's [odd] {x,y} $HOME.txt", "ünï\ncode", "-dash", "empty"]


def quiet(line):
    pass


@pytest.fixture
def gateway(hdfs):
    with Gateway(hdfs.name_node) as gateway:
        yield gateway


@pytest.fixture
def store(gateway, tmp_path):
    """HDFS as it is seen through OpenPAI's gateway, in a folder of the test's own."""
    store = WebHdfs([gateway.host], "root", prefix="/webhdfs/api/v1", root=f"/jobs-{tmp_path.name}")
    yield store
    store.remove("/", recursive=True)
    store.close()


def script(spec, join=" && "):
    job = validate(dump(document(spec)))
    before = job.data["deployments"][0]["taskRoles"]["main"]["preCommands"]
    return join.join([*before, *job.data["taskRoles"]["main"]["commands"]])


def run(shell, text, folder, **environment):
    folder.mkdir(exist_ok=True)
    variables = {"PATH": os.environ["PATH"], "PAI_JOB_NAME": "me~one", **environment}
    return subprocess.run(
        [*shell, text], cwd=folder, env=variables, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def archive(tmp_path):
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text("print('trains')")
    (project / "pkg" / "run me.sh").write_text("#!/bin/sh\necho runs\n")
    (project / "pkg" / "run me.sh").chmod(0o755)
    return pack(collect(["."], project))


def seen(store, *before):
    return Seen((*before, *store.urls("/my%20team")), "root")


@pytest.fixture
def workspace(store):
    return Workspace("/my team", store)


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_a_shell_with_curl_fetches_the_sources_and_keeps_the_output(
    shell, store, workspace, archive, tmp_path
):
    workspace.send(archive)
    command = 'cat train.py; "./pkg/run me.sh" && cp -R /"$FROM"/. "$PAI_OUTPUT_DIR"; exit 0'
    for name in ODD:
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name) * 1000 * (name != "empty"))
    spec = JobSpec(command, "n", "i", home=seen(store), archive=archive.sha256)
    done = run(shell, script(spec), tmp_path / "work", FROM=str(tmp_path / "made"))
    assert (done.returncode, done.stdout) == (0, "print('trains')runs\n"), done.stderr
    found = outputs.listing("one", Location(store, workspace.output("one"), "hdfs"))
    assert sorted(found.files) == sorted(ODD)
    outputs.bring(found, tmp_path / "back")
    assert subprocess.run(["diff", "-r", str(tmp_path / "made"), str(tmp_path / "back")]).returncode == 0


def test_output_is_kept_of_a_job_that_failed_and_written_anew_by_its_next_try(store, workspace, tmp_path):
    for text in ("first", "second"):
        command = f'echo {text} > "$PAI_OUTPUT_DIR/log"; false; exit 7'
        text_of_job = script(JobSpec(command, "n", "i", home=seen(store)))
        done = run(SHELLS["dash"], text_of_job, tmp_path / text)
        assert (done.returncode, done.stderr) == (7, "")
        assert b"".join(store.read(f"{workspace.output('one')}/log")) == f"{text}\n".encode()


def test_a_name_node_that_is_down_is_passed_over(store, workspace, archive, tmp_path):
    workspace.send(archive)
    home = seen(store, "http://127.0.0.1:1/webhdfs/v1/my%20team")
    spec = JobSpec('cp train.py "$PAI_OUTPUT_DIR"', "n", "i", home=home, archive=archive.sha256)
    done = run(SHELLS["bash"], script(spec, "\n"), tmp_path / "work")
    assert done.returncode == 0, done.stderr
    assert store.stat(f"{workspace.output('one')}/train.py").size == 15


@pytest.mark.parametrize("tool", ["wget", "python3"])
def test_without_curl_the_sources_come_by(tool, store, workspace, archive, tmp_path):
    workspace.send(archive)
    (tmp_path / "tools").mkdir()
    for name in ("tar", "gzip", "rm", "mkdir", "cat", "sha256sum", "find", tool):
        found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
        (tmp_path / "tools" / name).symlink_to(found)
    spec = JobSpec("cat train.py", "n", "i", home=seen(store), archive=archive.sha256)
    shell = [shutil.which("dash"), "-eu", "-c"]
    done = run(shell, script(spec), tmp_path / "work", PATH=str(tmp_path / "tools"))
    assert (done.returncode, done.stdout) == (0, "print('trains')"), done.stderr


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_sources_that_are_not_what_was_sent_end_the_job(what, store, workspace, archive, tmp_path):
    workspace.send(archive)
    if what == "damaged":
        store.write(workspace.archive(archive.sha256), [bytes(archive.size)], archive.size)
    else:
        store.remove(workspace.archive(archive.sha256))
    spec = JobSpec("echo ran", "n", "i", home=seen(store), archive=archive.sha256)
    done = run(SHELLS["dash"], script(spec), tmp_path / "work")
    assert done.returncode == 1 and "ran" not in done.stdout
    words = {"damaged": "the sources are damaged", "missing": "cannot fetch the sources"}
    assert f"error: {words[what]}" in done.stderr


# A whole cluster


@pytest.fixture(scope="module", params=["0.14", "1.8"])
def server(request, tmp_path_factory):
    """An embedded server of that generation: its address, and its first user's name and password."""
    folder = tmp_path_factory.mktemp("server")
    argv = [sys.executable, "-m", "openpai_tasks.server", "--home", str(folder), "--profile", request.param]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 30
        while not (folder / "server.json").exists():
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.02)
        login = json.loads((folder / "credentials.json").read_text())
        yield json.loads((folder / "server.json").read_text())["uri"], login["user"], login["password"]
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def client(server, gateway, store, tmp_path, monkeypatch):
    """A user of the cluster who has chosen an HDFS of their own for the files of jobs."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.delenv("OPENPAI_PASSWORD", raising=False)
    monkeypatch.delenv("OPENPAI_TOKEN", raising=False)
    (tmp_path / "project").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    uri, user, password = server
    new = NewCluster("lab", uri, user, Credentials(password=password))
    clusters.add(SETTINGS, new, True, clusters.cannot_ask, quiet)
    store.make_folder("/")
    address = f"http://{gateway.host}/webhdfs"
    own = own_storages.new("mine", "hdfs", address, store.root, "root", (), False)
    selecting.add(SETTINGS, "lab", own, "", quiet)
    selecting.select(SETTINGS, "lab", "mine", "exp 1", quiet)
    return clusters.connect(SETTINGS, "lab")


def start(client, here, command, name, *sources):
    spec = JobSpec(command, name=name, image="python:3", memory_mb=64)
    return submit(client, draft(client, spec, sources, "", here).submission())


def test_a_job_its_files_and_their_end(client, gateway, tmp_path):
    here = tmp_path / "project"
    (here / "train.py").write_text("import os; open(os.environ['PAI_OUTPUT_DIR'] + '/m', 'w').write('0.9')")
    unique = f"hdfs-{os.urandom(3).hex()}"
    start(client, here, "python3 train.py", f"{unique}-a", "train.py")
    assert jobs.wait(client, f"{unique}-a", 30).state == "SUCCEEDED", b"".join(
        logs.output(client, f"{unique}-a", Which())
    )
    found = outputs.find(client, f"{unique}-a")
    assert found.read("m") == b"0.9" and [row.name for row in found.rows] == ["m"]

    sent = [asked for asked in gateway.asked if "CREATE" in asked]
    start(client, here, "python3 train.py", f"{unique}-b", "train.py")
    again = [asked for asked in gateway.asked if "CREATE" in asked][len(sent) :]
    assert len(again) == 2  # what the second job says it uses, at the name node and at the data node
    assert jobs.wait(client, f"{unique}-b", 30).state == "SUCCEEDED"

    original = resubmit.find(client, f"{unique}-a", here, resubmit.Changes(f"{unique}-c"), False, quiet)
    submit(client, resubmit.prepare(original, client, resubmit.Changes(f"{unique}-c"), quiet))
    assert jobs.wait(client, f"{unique}-c", 30).state == "SUCCEEDED"
    assert outputs.find(client, f"{unique}-c").read("m") == b"0.9"

    home = places.needed(client)
    left = leftovers.usage(client, home)
    assert sorted(job.name for job in left.jobs) == [f"{unique}-{letter}" for letter in "abc"]
    assert [len(one.jobs) for one in left.archives] == [3]

    [sha256] = home.files.archive_files()
    size = left.archives[0].size
    home.store.write(home.layout.archive(sha256), [bytes(size)], size)
    made = draft(client, JobSpec("echo ran", name=f"{unique}-d", image="i"), ["train.py"], "", here)
    client.create_job(made.submission().text)  # as it was sent before the archive was damaged
    assert jobs.wait(client, f"{unique}-d", 30).state == "FAILED"
    shown = b"".join(logs.output(client, f"{unique}-d", Which()))
    assert b"error: the sources are damaged" in shown and b"ran" not in shown

    cleaned = cleaning.clean(client, home, cleaning.plan(left, 0.0))
    assert (len(cleaned.jobs), len(cleaned.archives), cleaned.kept) == (3, 1, ())
    place = home.location("/")
    assert [one.name for one in walk(place) if not one.entry.is_folder] == []


def test_a_refused_job_leaves_nothing(client, tmp_path):
    here = tmp_path / "project"
    (here / "one.py").write_text("1")
    spec = JobSpec("true", name="refused", image="i", virtual_cluster="no-such")
    with pytest.raises(Exception, match="no-such"):
        submit(client, draft(client, spec, ["one.py"], "", here).submission())
    home = places.needed(client)
    assert [one.name for one in walk(home.location("/")) if not one.entry.is_folder] == []
