"""Jobs whose files are on a real HDFS: fetched and kept by a real shell with curl, or python3."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openpai_tasks.errors import NotFound
from openpai_tasks.protocol import JobRequest, build_document, dump, validate
from openpai_tasks.protocol.document.job_storage import HdfsFolder as Seen
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import NewCluster
from openpai_tasks.sdk.files import cleaning, job_folders, storages, user_storages
from openpai_tasks.sdk.jobs import lookup, outputs, resubmission
from openpai_tasks.sdk.jobs.options import JobOptions, build_request
from openpai_tasks.sdk.jobs.submission import prepare, submit
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.output import LogChoice
from openpai_tasks.sdk.notebooks import results, running
from openpai_tasks.sdk.notebooks.notebook_file import read_notebook
from openpai_tasks.sdk.notebooks.running import RunOptions
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect
from openpai_tasks.storage.job_files.workspace import Workspace
from openpai_tasks.storage.location import Location
from tests.forkserver import start_server
from tests.needs import needs
from tests.notebook_files import outputs as shown_by
from tests.notebook_files import write
from tests.protocol.document.test_job_storage import only
from tests.runtime.programs import Program
from tests.storage.gateway import Fault, Gateway

pytestmark = needs("busybox", "curl", "wget")
SETTINGS = Settings(http_timeout=30.0)
SHELLS = {
    "dash": ["dash", "-c"],
    "bash": ["bash", "-euo", "pipefail", "-c"],
    "busybox": ["busybox", "sh", "-euc"],
}
ODD = ["sub/deep/b #1?100%.txt", "it's [odd] {x,y} $HOME.txt", "-ünï\ncode", "empty"]


def quiet(line):
    pass


@pytest.fixture
def gateway(hdfs):
    with Gateway(hdfs.name_node) as gateway:
        yield gateway


@pytest.fixture
def store(gateway, tmp_path):
    """HDFS through OpenPAI's gateway, in a separate folder for the test."""
    store = HdfsStore([gateway.host], "root", prefix="/webhdfs/api/v1", root=f"/jobs-{tmp_path.name}")
    yield store
    store.remove("/", recursive=True)
    store.close()


def script(spec, join=" && "):
    job = validate(dump(build_document(spec)))
    before = job.data["deployments"][0]["taskRoles"]["main"]["preCommands"]
    return join.join([*before, *job.data["taskRoles"]["main"]["commands"]])


def run(shell, text, folder, **environment):
    folder.mkdir(exist_ok=True)
    variables = {"PATH": os.environ["PATH"], "PAI_JOB_NAME": "me~one", **environment}
    return subprocess.run(
        [*shell, text], cwd=folder, env=variables, capture_output=True, text=True, timeout=100
    )


CHECKPOINTS = """
import pathlib, sys
import runtime

ckpt = runtime.checkpoint("state", keep=2)
found = ckpt.latest()
text = "".join(sorted(path.read_text() for path in pathlib.Path(found).iterdir())) if found else None
print(text, pathlib.Path(found).parent if found else "")
for number in sys.argv[1:]:
    def write(path):
        pathlib.Path(path).mkdir()
        pathlib.Path(path, "a b").write_text(number)
        pathlib.Path(path, "c").write_text("!")

    ckpt.save(write)
"""


def test_checkpoints_are_uploaded_at_once_and_found_by_retried_and_resubmitted_jobs(
    store, workspace, tmp_path
):
    """Each run has an empty folder, as in a new container, and nothing is uploaded at its end."""

    def run(folder, job, *words, **variables):
        (tmp_path / folder).mkdir()
        program = Program(tmp_path / folder, CHECKPOINTS, PAI_OUTPUT_USER="root", **variables)
        urls = " ".join(store.urls(f"/my%20team/jobs/{job}/output"))
        code, out, err = program.run(*words, PAI_OUTPUT_URLS=f" {urls}")
        assert code == 0, err
        return out.partition(" ")[0], err

    assert run("first", "one", "1", "2", "3") == ("None", "")
    folder = f"{workspace.output('one')}/.pai/checkpoints/state"
    assert sorted(entry.name[:13] for entry in store.list(folder) if not entry.is_folder) == [
        "00000002.json",
        "00000003.json",
    ]
    assert run("retried", "one") == ("!3", "")
    assert run("resubmitted", "two", "4", PAI_EARLIER_JOBS="one") == ("!3", "")
    assert run("again", "two") == ("!4", "")
    [newest] = [entry.path for entry in store.list(folder) if entry.name.startswith("00000003-")]
    store.write(f"{newest}/c", [b"?"], 1)
    text, err = run("damaged", "one")
    assert text == "!2" and "checkpoint 3" in err


@pytest.mark.parametrize("end", [0, 7])
def test_files_that_match_are_uploaded_with_the_output(store, workspace, tmp_path, end):
    command = f"mkdir model && echo 1 >'model/a b.pt' && echo 2 >model/c.txt; exit {end}"
    spec = JobRequest(command, "n", "i", home=seen(store), outputs=("model/*.pt",))
    done = run(SHELLS["dash"], script(spec), tmp_path / "work")
    assert (done.returncode, done.stderr) == (end, "")
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert list(found.files) == ["model/a b.pt"]


@pytest.fixture
def archive(tmp_path):
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text("print('trains')")
    (project / "pkg" / "run me.sh").write_text("#!/bin/sh\necho runs\n")
    (project / "pkg" / "run me.sh").chmod(0o755)
    return pack(collect(["."], project).files)


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
    spec = JobRequest(command, "n", "i", home=seen(store), archive=archive.sha256)
    done = run(shell, script(spec), tmp_path / "work", FROM=str(tmp_path / "made"))
    assert (done.returncode, done.stdout) == (0, "print('trains')runs\n"), done.stderr
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert sorted(found.files) == sorted(ODD)
    outputs.download_outputs(found, tmp_path / "back")
    assert subprocess.run(["diff", "-r", str(tmp_path / "made"), str(tmp_path / "back")]).returncode == 0


def test_output_of_a_failed_job_is_kept_and_overwritten_by_its_retry(store, workspace, tmp_path):
    for text in ("first", "second"):
        command = f'echo {text} > "$PAI_OUTPUT_DIR/log"; false; exit 7'
        text_of_job = script(JobRequest(command, "n", "i", home=seen(store)))
        done = run(SHELLS["dash"], text_of_job, tmp_path / text)
        assert (done.returncode, done.stderr) == (7, "")
        assert b"".join(store.read(f"{workspace.output('one')}/log")) == f"{text}\n".encode()


@pytest.fixture
def instant_sleep(tmp_path):
    """A PATH whose `sleep` returns at once and prints the seconds."""
    tool = tmp_path / "hasty" / "sleep"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "slept $1" >&2\n')
    tool.chmod(0o755)
    return f"{tool.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("op, act", [("CREATE", "cut"), ("RENAME", "refuse")])
def test_failed_output_upload_leaves_the_old_file(
    store, workspace, gateway, tmp_path, instant_sleep, op, act
):
    text = script(
        JobRequest(
            'mkdir "$PAI_OUTPUT_DIR/it"; cp "$FROM" "$PAI_OUTPUT_DIR/it/m &+"', "n", "i", home=seen(store)
        )
    )
    place = f"{workspace.output('one')}/it/m &+"
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(os.urandom(3 << 20))
    assert run(SHELLS["dash"], text, tmp_path / "first", FROM=str(tmp_path / "old")).returncode == 0
    gateway.faults.append(Fault(op, act, 1 << 20, times=5, is_upload=True))
    done = run(SHELLS["dash"], text, tmp_path / "second", FROM=str(tmp_path / "new"), PATH=instant_sleep)
    assert done.returncode == 1 and "error: cannot keep the output" in done.stderr
    assert "error: cannot send it/m &+ to http://" in done.stderr
    assert b"".join(store.read(place)) == b"old"
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert list(found.files) == ["it/m &+"]
    assert run(SHELLS["dash"], text, tmp_path / "third", FROM=str(tmp_path / "new")).returncode == 0
    assert b"".join(store.read(place)) == (tmp_path / "new").read_bytes()


@pytest.mark.parametrize("op, act", [("CREATE", "cut"), ("RENAME", "refuse"), ("RENAME", "lose")])
def test_output_upload_is_retried_after_a_fault(store, workspace, gateway, tmp_path, instant_sleep, op, act):
    text = script(JobRequest('cp "$FROM" "$PAI_OUTPUT_DIR/m"', "n", "i", home=seen(store)))
    (tmp_path / "new").write_bytes(os.urandom(3 << 20))
    gateway.faults.append(Fault(op, act, 1 << 20, times=4, is_upload=act == "cut"))
    done = run(SHELLS["dash"], text, tmp_path / "work", FROM=str(tmp_path / "new"), PATH=instant_sleep)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "slept" in line] == [
        f"slept {seconds}" for seconds in (1, 3, 6, 10)
    ]
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert list(found.files) == ["m"] and found.read("m", 1 << 30) == (tmp_path / "new").read_bytes()


def test_output_file_that_hdfs_refuses_is_named_and_the_rest_is_sent(
    store, workspace, tmp_path, instant_sleep
):
    store.make_folder(f"{workspace.output('one')}/b")
    command = 'cd "$PAI_OUTPUT_DIR"; mkdir a z; echo x > a/x; echo b > b; echo z > z/z'
    text = script(JobRequest(command, "n", "i", home=seen(store)))
    done = run(SHELLS["bash"], text, tmp_path / "work", PATH=instant_sleep)
    messages = done.stderr.splitlines()
    assert done.returncode == 1 and len(messages) == 2, messages
    assert (
        messages[0].startswith("error: cannot send b to http://")
        and "must both be directories" in messages[0]
    )
    assert messages[1].startswith("error: cannot keep the output: it stays in /")
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert sorted(found.files) == ["a/x", "z/z"]


@pytest.fixture
def other(request, store):
    """The same folder on a name node that is on standby, or dead."""
    [url] = store.urls("/my%20team")
    if request.param == "dead":
        yield re.sub("//[^/]*/", "//127.0.0.1:1/", url)
        return
    with Gateway("127.0.0.1:1", is_standby=True) as standby:
        yield re.sub("//[^/]*/", f"//{standby.host}/", url)


@pytest.mark.parametrize(
    "other, is_first, shell",
    [
        ("standby", True, "dash"),
        ("standby", False, "bash"),
        ("dead", True, "busybox"),
        ("dead", False, "dash"),
    ],
    indirect=["other"],
)
def test_file_that_one_name_node_refuses_is_left_out_whatever_another_answers(
    shell, store, workspace, other, is_first, tmp_path, instant_sleep
):
    [url] = store.urls("/my%20team")
    home = Seen((other, url) if is_first else (url, other), "root")
    command = 'cd "$PAI_OUTPUT_DIR"; mkdir a z; for name in a/x 12:30:00.log y z/12:31:00.log z/z; do echo x'
    spec = JobRequest(f'{command} > "$name"; done', "n", "i", home=home)
    done = run(SHELLS[shell], script(spec), tmp_path / "work", PATH=instant_sleep)
    messages = [line for line in done.stderr.splitlines() if not line.startswith("curl: ")]
    assert done.returncode == 1 and len(messages) == 3, messages
    for name, line in zip(("12:30:00.log", "z/12:31:00.log"), sorted(messages[:2]), strict=True):
        assert line.startswith(f"error: cannot send {name} to {url}/") and "InvalidPath" in line
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert sorted(found.files) == ["a/x", "y", "z/z"]
    assert not [
        one for one in walk(Location(store, "/", "hdfs"), parts=True) if one.name.startswith(".pai-part")
    ]


@pytest.mark.parametrize("other", ["standby", "dead"], indirect=True)
def test_sources_that_are_missing_on_one_name_node_are_not_retried(
    store, other, archive, tmp_path, instant_sleep
):
    store.make_folder("/my team")
    [url] = store.urls("/my%20team")
    spec = JobRequest("echo ran", "n", "i", home=Seen((url, other), "root"), archive=archive.sha256)
    done = run(SHELLS["dash"], script(spec), tmp_path / "work", PATH=instant_sleep)
    assert done.returncode == 1 and "ran" not in done.stdout and "slept" not in done.stderr
    assert f"cannot fetch the sources from {url}/" in done.stderr and "(HTTP status 404)" in done.stderr


def test_output_upload_without_permission_is_not_retried(store, gateway, tmp_path, instant_sleep):
    store.make_folder("/my team")
    home = Seen(store.urls("/my%20team"), "somebody")
    done = run(
        SHELLS["bash"],
        script(JobRequest('echo x > "$PAI_OUTPUT_DIR/x"', "n", "i", home=home)),
        tmp_path / "work",
        PATH=instant_sleep,
    )
    assert done.returncode == 1 and "Permission denied: user=somebody" in done.stderr
    assert "slept" not in done.stderr and gateway.asked.count("PUT CREATE") == 2


@pytest.mark.parametrize("end", ["exec expr 1", "trap 'echo 1' EXIT", "trap 'echo 1; exit 3' 0"])
@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_output_of_a_command_that_replaces_its_shell_or_has_traps_is_kept(
    shell, end, store, workspace, tmp_path
):
    command = f'echo hi > "$PAI_OUTPUT_DIR/a"; mkdir -p "$PAI_OUTPUT_DIR/empty/folder"; {end}'
    done = run(shell, script(JobRequest(command, "n", "i", home=seen(store))), tmp_path / "work")
    assert (done.returncode, done.stdout, done.stderr) == (3 if "exit 3" in end else 0, "1\n", "")
    assert b"".join(store.read(f"{workspace.output('one')}/a")) == b"hi\n"
    assert store.stat(f"{workspace.output('one')}/empty/folder").is_folder


@pytest.mark.parametrize("act", ["cut", "lose", "refuse"])
def test_source_download_is_retried_after_a_fault(
    act, store, workspace, gateway, archive, tmp_path, instant_sleep
):
    workspace.send(archive)
    gateway.faults.append(Fault("OPEN", act, 100, times=4))
    spec = JobRequest("cat train.py", "n", "i", home=seen(store), archive=archive.sha256)
    done = run(SHELLS["bash"], script(spec), tmp_path / "work", PATH=instant_sleep)
    assert (done.returncode, done.stdout) == (0, "print('trains')"), done.stderr
    assert done.stderr.count("slept") == 4


def test_name_node_that_is_down_is_skipped(store, workspace, archive, tmp_path, instant_sleep):
    workspace.send(archive)
    home = seen(store, "http://127.0.0.1:1/webhdfs/v1/my%20team")
    spec = JobRequest('cp train.py "$PAI_OUTPUT_DIR"', "n", "i", home=home, archive=archive.sha256)
    done = run(SHELLS["bash"], script(spec, "\n"), tmp_path / "work", PATH=instant_sleep)
    assert done.returncode == 0 and "slept" not in done.stderr, done.stderr
    assert store.stat(f"{workspace.output('one')}/train.py").size == 15


@pytest.mark.parametrize("tool", ["wget", "python3"])
def test_sources_are_fetched_without_curl(tool, store, workspace, archive, tmp_path):
    workspace.send(archive)
    path = only(tmp_path / "tools", "tar", "gzip", "rm", "mkdir", "cat", "sha256sum", "find", tool)
    spec = JobRequest("cat train.py", "n", "i", home=seen(store), archive=archive.sha256)
    done = run([shutil.which("dash"), "-eu", "-c"], script(spec), tmp_path / "work", PATH=path)
    assert (done.returncode, done.stdout) == (0, "print('trains')"), done.stderr


def test_output_is_kept_by_python_if_there_is_no_curl(store, workspace, tmp_path):
    tools = ("sh", "mkdir", "cp", "find", "ls", "od", "tr", "sed", "date", "sleep", "python3")
    path = only(tmp_path / "tools", *tools)
    for name in (*ODD, "12:30:00.log"):  # HDFS refuses the last one
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / name).write_bytes(os.fsencode(name) * 1000 * (name != "empty"))
    home = seen(store, "http://127.0.0.1:1/webhdfs/v1/my%20team")
    text = script(JobRequest('cp -R /"$FROM"/. "$PAI_OUTPUT_DIR"', "n", "i", home=home))
    shell = [shutil.which("dash"), "-eu", "-c"]
    done = run(shell, text, tmp_path / "work", PATH=path, FROM=str(tmp_path / "made"))
    assert done.returncode == 1 and "error: cannot keep the output" in done.stderr
    [refused] = [line for line in done.stderr.splitlines() if line.startswith("error: cannot send ")]
    assert refused.startswith("error: cannot send 12:30:00.log to http://") and "InvalidPath" in refused
    found = outputs.list_outputs("one", Location(store, workspace.output("one"), "hdfs"))
    assert sorted(found.files) == sorted(ODD)
    outputs.download_outputs(found, tmp_path / "back")
    (tmp_path / "made" / "12:30:00.log").unlink()
    assert subprocess.run(["diff", "-r", str(tmp_path / "made"), str(tmp_path / "back")]).returncode == 0


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_damaged_or_missing_sources_end_the_job(what, store, workspace, archive, tmp_path, instant_sleep):
    workspace.send(archive)
    if what == "damaged":
        store.write(workspace.archive(archive.sha256), [bytes(archive.size)], archive.size)
    else:
        store.remove(workspace.archive(archive.sha256))
    spec = JobRequest("echo ran", "n", "i", home=seen(store), archive=archive.sha256)
    done = run(SHELLS["dash"], script(spec), tmp_path / "work", PATH=instant_sleep)
    assert done.returncode == 1 and "ran" not in done.stdout and "slept" not in done.stderr
    words = {"damaged": "the sources are damaged", "missing": "cannot fetch the sources"}
    assert f"error: {words[what]}" in done.stderr


# A whole cluster


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    """An embedded server of that generation: its address, and its first user's name and password."""
    folder = tmp_path_factory.mktemp("server")
    process = start_server("--home", str(folder), "--profile", request.param)
    try:
        limit = time.monotonic() + 60
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
    """A user of the cluster who has selected a personal HDFS for the files of jobs."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.delenv("OPENPAI_PASSWORD", raising=False)
    monkeypatch.delenv("OPENPAI_TOKEN", raising=False)
    (tmp_path / "project").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    uri, user, password = server
    new = NewCluster("lab", uri, user, Credentials(password=password))
    known.add(SETTINGS, new, True, known.cannot_ask, quiet)
    store.make_folder("/")
    address = f"http://{gateway.host}/webhdfs"
    own = user_storages.parse_storage("mine", "hdfs", address, store.root, "root", (), False)
    storages.add_storage(SETTINGS, "lab", own, "", quiet)
    storages.select_storage(SETTINGS, "lab", "mine", "exp 1", quiet)
    return known.connect(SETTINGS, "lab")


def generations(*names):
    return pytest.mark.parametrize("server", names, indirect=True, scope="module")


def start(client, here, command, name, *sources):
    request = JobRequest(command, name=name, image="python:3", memory_mb=64, sources=tuple(sources))
    return submit(client, prepare(client, request, here))


@generations("0.14", "1.8")
def test_files_of_jobs_are_shared_resubmitted_and_cleaned_up(client, gateway, tmp_path):
    here = tmp_path / "project"
    (here / "train.py").write_text("import os; open(os.environ['PAI_OUTPUT_DIR'] + '/m', 'w').write('0.9')")
    unique = f"hdfs-{os.urandom(3).hex()}"
    start(client, here, "python3 train.py", f"{unique}-a", "train.py")
    assert lookup.wait(client, f"{unique}-a", 100).state == "SUCCEEDED", b"".join(
        output.read_output(client, f"{unique}-a", LogChoice())
    )
    found = outputs.find_outputs(client, f"{unique}-a")
    assert found.read("m", 1 << 30) == b"0.9" and [row.name for row in found.rows] == ["m"]

    sent = [asked for asked in gateway.asked if "CREATE" in asked]
    gate = tmp_path / "gate"
    waits = f"until test -e '{gate}'; do sleep 0.05; done"
    start(client, here, f"{waits}; python3 train.py", f"{unique}-b", "train.py")
    again = [asked for asked in gateway.asked if "CREATE" in asked][len(sent) :]
    assert len(again) == 2  # the reference of the second job, at the name node and at the data node
    gate.touch()
    assert lookup.wait(client, f"{unique}-b", 100).state == "SUCCEEDED"

    original = resubmission.original_from_cluster(client, f"{unique}-a", here)
    submit(
        client,
        resubmission.prepare_resubmission(original, client, JobRequest(name=f"{unique}-c"), quiet),
    )
    assert lookup.wait(client, f"{unique}-c", 100).state == "SUCCEEDED"
    assert outputs.find_outputs(client, f"{unique}-c").read("m", 1 << 30) == b"0.9"

    home = job_folders.require_home(client)
    left = cleaning.find_leftovers(client, home)
    assert sorted(job.name for job in left.jobs) == [f"{unique}-{letter}" for letter in "abc"]
    assert [len(one.jobs) for one in left.archives] == [3]

    [sha256] = home.files.archive_files()
    size = left.archives[0].size
    home.store.write(home.layout.archive(sha256), [bytes(size)], size)
    made = prepare(client, JobRequest("echo ran", name=f"{unique}-d", image="i", sources=("train.py",)), here)
    client.submit(made.text)  # as it was sent before the archive was damaged
    assert lookup.wait(client, f"{unique}-d", 100).state == "FAILED"
    shown = b"".join(output.read_output(client, f"{unique}-d", LogChoice()))
    assert b"error: the sources are damaged" in shown and b"ran" not in shown

    cleaned = cleaning.clean_up(client, home, cleaning.plan_cleanup(left, 0.0))
    assert (len(cleaned.jobs), len(cleaned.archives), cleaned.kept) == (3, 1, ())
    place = home.location("/")
    assert [one.name for one in walk(place) if not one.entry.is_folder] == []


@generations("1.8")
def test_stopped_job_keeps_its_output(client, tmp_path):
    name = f"stopped-{os.urandom(3).hex()}"
    start(client, tmp_path / "project", 'echo 0.9 > "$PAI_OUTPUT_DIR/m"; echo up; exec sleep 600', name)
    limit = time.monotonic() + 60
    while b"up" not in b"".join(output.read_output(client, name, LogChoice())):
        assert time.monotonic() < limit
        time.sleep(0.1)
    lookup.stop(client, [name])
    assert lookup.wait(client, name, 100).state == "STOPPED"
    assert outputs.find_outputs(client, name).read("m", 1 << 30) == b"0.9\n"


@generations("0.14")
def test_notebook_is_available_after_its_job_ended_up_to_the_failed_cell(client, tmp_path):
    here, gate = tmp_path / "project", tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.1)"
    write(here / "book.ipynb", f"print('first')\n{waits}", "1 / 0", "print('never')")
    name = f"book-{os.urandom(3).hex()}"
    request = build_request(
        JobOptions(job_name=name), dataclasses.replace(SETTINGS, python=sys.executable), str
    )
    book = read_notebook("book.ipynb", here)
    submit(client, running.plan_run(client, book, RunOptions(formats=()), request, here))
    with pytest.raises(NotFound, match="no notebook yet; on HDFS, outputs appear when the job ends"):
        results.download_results(results.find_results(client, name), here)
    gate.touch()
    assert lookup.wait(client, name, 100).exit_code == 1
    found = results.find_results(client, name)
    downloaded = results.download_results(found, here)
    run_summary = downloaded.summary
    assert not downloaded.copied.failed and (run_summary.state, run_summary.cell, run_summary.of) == (
        "failed",
        2,
        3,
    )
    assert shown_by(Path(downloaded.files[0].path)) == ["first\n", "ZeroDivisionError: division by zero", ""]


@generations("1.8")
def test_refused_job_leaves_no_files(client, tmp_path):
    here = tmp_path / "project"
    (here / "one.py").write_text("1")
    spec = JobRequest("true", name="refused", image="i", virtual_cluster="no-such", sources=("one.py",))
    with pytest.raises(Exception, match="no-such"):
        submit(client, prepare(client, spec, here))
    home = job_folders.require_home(client)
    assert [one.name for one in walk(home.location("/")) if not one.entry.is_folder] == []


def test_job_of_version_1_gets_its_code_from_hdfs(cluster, hdfs):
    files = HdfsStore([hdfs.name_node], "root")
    files.make_folder("/ann/code")
    files.write("/ann/code/train.sh", [b"echo trained\n"], 13)
    role = {"name": "main", "command": "sh code/train.sh"}
    url = f"webhdfs://root@{hdfs.name_node}/ann/code"
    job = {"jobName": "from_hdfs", "image": "i", "codeDir": url, "taskRoles": [role]}
    (cluster.project / "from_hdfs.json").write_text(json.dumps(job))
    ran = cluster.ok("job.submit", "from_hdfs.json", "-f")
    assert ran.out == "trained\n"
