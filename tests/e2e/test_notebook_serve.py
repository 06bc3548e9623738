"""A real Jupyter server in a job of the embedded cluster, reached over HTTP and websocket."""

import contextlib
import importlib
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.e2e.test_container import open_terminal
from tests.needs import require
from tests.processes import open_files
from tests.server.workshop import until

require("jupyterlab", "websocket")
websocket = importlib.import_module("websocket")

CTRL_C = b"\x03"
SMALL = ("--cpu", "1", "--mem", "512m")
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
EVERYWHERE = "00000000"
THERE = "import os\nprint('tried', os.environ['TRIED'], os.environ['MINE'])"


def book(*sources):
    cells = [
        {"cell_type": "code", "execution_count": None, "id": f"c{number}", "metadata": {}, "outputs": []}
        | {"source": source}
        for number, source in enumerate(sources)
    ]
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def sources_of(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


class Jupyter:
    """The requests that a browser sends to the address it was given."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.address, self.base = address, f"http://{parts.netloc}"
        self.token = parse_qs(parts.query)["token"][0]

    def ask(self, path, body=None, method=None, token=None):
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"token {token or self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def save(self, name, content):
        kind = "notebook" if name.endswith(".ipynb") else "file"
        body = {"type": kind, "content": content, "format": "json" if kind == "notebook" else "text"}
        self.ask(f"/api/contents/{name}", body, "PUT")

    def channels(self, kernel, token=None, timeout=60):
        url = f"{self.base.replace('http', 'ws')}/api/kernels/{kernel}/channels?token={token or self.token}"
        return websocket.create_connection(url, timeout=timeout)

    def run(self, kernel, code, wait=True, timeout=60):
        """Run the code, and return what it prints."""
        with contextlib.closing(self.channels(kernel, timeout=timeout)) as channel:
            header = {"msg_id": "m1", "msg_type": "execute_request", "session": "s1", "username": "me"}
            content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
            message = {"header": header | {"version": "5.3"}, "content": content, "channel": "shell"}
            channel.send(json.dumps(message | {"parent_header": {}, "metadata": {}}))
            printed = ""
            while True:
                reply = json.loads(channel.recv())
                if reply["parent_header"].get("msg_id") != "m1":
                    continue
                if reply["msg_type"] in ("stream", "error"):
                    printed += reply["content"].get("text") or "\n".join(reply["content"]["traceback"])
                is_idle = reply["content"].get("execution_state") == "idle"
                if not wait or (reply["msg_type"] == "status" and is_idle):
                    return printed

    def kernel(self, name):
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        return self.ready(self.ask("/api/sessions", body, "POST")["kernel"]["id"])

    def ready(self, kernel):
        """Return a kernel that answers: Jupyter starts it again if another process has taken its ports."""

        def answers():
            with contextlib.suppress(websocket.WebSocketException, OSError):
                return self.run(kernel, "", timeout=20) == ""

        until(answers, 200)
        return kernel


class Call:
    """A running `notebook.serve` command."""

    def __init__(self, shell, *flags, terminal=False, **environment):
        self.shell, self.err = shell, shell.project / f"{flags[0]}.err"
        before, shell.environment = shell.environment, {**shell.environment, **environment}
        ours, theirs = pty.openpty() if terminal else (None, self.err.open("w"))
        self.process = shell.start("inv", "notebook.serve", *flags[1:], stderr=theirs)
        shell.environment = before
        self.reader = threading.Thread(target=self.read, args=(ours,))
        if terminal:
            os.close(theirs)
            self.reader.start()

    def read(self, terminal):
        with self.err.open("wb", 0) as file, contextlib.suppress(OSError):  # when the other end is closed
            while data := os.read(terminal, 65536):
                file.write(data.replace(b"\r\n", b"\n"))
        os.close(terminal)

    def json(self):
        """Return the first value on stdout."""
        text = ""
        for line in self.process.stdout:
            text += line
            try:
                return json.loads(text)
            except ValueError:
                continue
        raise AssertionError(self.err.read_text())

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self, timeout=100):
        self.process.communicate(timeout=timeout)
        if self.reader.ident:
            self.reader.join(timeout)
        return self.process.returncode, self.err.read_text()


@pytest.fixture(scope="module")
def calls(cluster):
    """Two servers: one behind a tunnel, for most tests, and a direct one that soon stops itself."""
    project = cluster.project
    (project / "deep").mkdir()
    (project / "deep" / "my book.ipynb").write_text(json.dumps(book("import helper", "1 + 1")))
    (project / "helper.py").write_text("x = 2\n")
    os.utime(project / "helper.py", (1_700_000_000, 1_700_000_000))
    (project / "idle.ipynb").write_text(json.dumps(book("2")))
    browser = project / "browser.sh"
    browser.write_text(
        '#!/bin/sh\necho "$@" >"$0.args"\ncat "${1#file://}" >"$0.tmp"; mv "$0.tmp" "$0.page"\n'
    )
    browser.chmod(0o755)
    first = Call(
        *(cluster, "lab", "deep/my book.ipynb", "--sources", "helper.py", "-j", "lab", "--idle", "1h"),
        *("--no-browser", "-o", "json", *SMALL, "-a", "local"),
    )
    second = Call(
        *(cluster, "idle", "idle.ipynb", "-j", "idle", "--idle", "10s", "--direct", *SMALL),
        *("--env", "TRIED=yes", "--secret", "MINE", "--shm", "64m"),
        terminal=True,
        BROWSER=f"{browser} %s",
        DISPLAY=":99",
        MINE="value of mine",
    )
    yield {"lab": first, "idle": second}
    for call in (first, second):
        if call.process.poll() is None:
            call.process.kill()
            call.process.wait()
    cluster.inv("job.stop", "*")


@pytest.fixture(scope="module")
def served(calls):
    return calls["lab"].json()


@pytest.fixture(scope="module")
def lab(served):
    return Jupyter(served["url"])


@pytest.fixture(scope="module")
def kernel(lab):
    return lab.kernel("deep/my book.ipynb")


def processes_of_job(cluster, name):
    """Yield the processes of a job of this cluster, found by their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if f"~{name}\0".encode() in environment and bytes(cluster.home) in environment:
                yield entry


def listening(processes):
    """Yield the addresses, as hex, and the ports on which the processes listen."""
    sockets = {target for entry in processes for _, target in open_files(entry)}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                yield address, int(port, 16)


@contextlib.contextmanager
def kept_active(cluster, name):
    """Touch the notebook of a job again and again, which counts as activity however slow the machine is."""
    done = threading.Event()

    def touch():
        while not done.wait(0.2):
            for path in (cluster.home / "local" / "jobs").glob(f"*~{name}/*/*/work/{name}.ipynb"):
                path.touch()

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_idle_server_ends_its_job_whose_files_stay_and_a_busy_kernel_counts_as_activity(cluster, calls):
    call, project, gate = calls["idle"], cluster.project, cluster.project / "idle.gate"
    with kept_active(cluster, "idle"):
        until(lambda: (project / "browser.sh.page").exists(), 60)
        page = (project / "browser.sh.page").read_text()
        jupyter = Jupyter(json.loads(re.search(r"location.replace\((.*)\)", page)[1]))
        assert jupyter.address.startswith(f"{jupyter.base}/lab/tree/idle.ipynb?token=")
        arguments = (project / "browser.sh.args").read_text()
        assert arguments.startswith("file://") and jupyter.token not in arguments
        number = jupyter.kernel("idle.ipynb")
        open_tab = jupyter.channels(number)
        busy = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)"
        jupyter.run(number, busy, wait=False)
        addresses = dict(reversed(one) for one in listening(processes_of_job(cluster, "idle")))
        assert addresses.pop(urlsplit(jupyter.base).port) == EVERYWHERE
        assert set(addresses.values()) <= LOOPBACK and addresses
        jupyter.save("idle.ipynb", book("2", THERE))
    time.sleep(11.5)  # longer than the idle limit
    assert cluster.ok("job.status", "idle", "-o", "json").json()["state"] == "RUNNING"
    began = time.monotonic()
    gate.touch()
    code, err = call.end()
    open_tab.close()
    assert code == 0 and f"warning: {jupyter.base} is plain HTTP" in err
    assert jupyter.token not in err and time.monotonic() - began >= 10
    assert cluster.ok("job.status", "idle", "-o", "json").json()["state"] == "SUCCEEDED"
    assert sources_of(project / "idle.ipynb") == ["2", THERE]
    assert "idle for 10 s, stopping" in cluster.ok("job.logs", "idle").out
    assert not list((cluster.home / "notebooks" / "local").glob("*.html"))
    [kept] = (cluster.home / "notebooks" / "local").glob("*~idle.json")
    assert jupyter.token not in kept.read_text() and "idle.ipynb" in kept.read_text()
    check_that_saved_files_can_be_pulled(cluster)
    check_that_resubmit_uses_the_settings_of_the_server(cluster)
    check_that_it_becomes_a_batch_job_with_its_saved_files(cluster)


def check_that_saved_files_can_be_pulled(cluster):
    rows = cluster.ok("notebook.pull", "idle", "--target", "deep", "-o", "json").json()
    assert [(row["name"], row["change"]) for row in rows] == [("idle.ipynb", "new")]
    assert sources_of(cluster.project / "deep" / "idle.ipynb") == ["2", THERE]
    assert "unchanged" in cluster.ok("notebook.pull", "idle").out
    ran = cluster.inv("notebook.serve", "--reconnect", "idle", "--no-browser")
    assert ran.code == 120 and "is SUCCEEDED" in ran.err and len(ran.err.splitlines()) == 1


def check_that_resubmit_uses_the_settings_of_the_server(cluster):
    path = cluster.project / "idle.ipynb"
    now = path.read_text()
    ran = cluster.ok("notebook.resubmit", "idle.ipynb", "--gpu", "4", "--preview", MINE="other")
    job = yaml.safe_load(ran.out)
    role, before = job["taskRoles"]["main"], job["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert role["resourcePerInstance"] == {"cpu": 1, "memoryMB": 512, "gpu": 4}
    assert role["extraContainerOptions"] == {"shmMB": 64}
    assert role["commands"] == ["python3 .pai-notebook.py idle.ipynb"]
    assert "export TRIED=yes || exit 1" in before and any("$secrets.MINE" in line for line in before)
    assert "JUPYTER_TOKEN" not in ran.out and "pai-jupyter" not in ran.out + ran.err
    assert "openpaiNotebookServer" not in job["extras"] and "newer" not in ran.err
    path.write_text(json.dumps(book("2")))  # as it was sent
    ran = cluster.ok("notebook.resubmit", "idle.ipynb", "--preview", MINE="other")
    path.write_text(now)
    assert "note: job idle has a newer idle.ipynb: download it with `inv notebook.pull idle`" in ran.err


def check_that_it_becomes_a_batch_job_with_its_saved_files(cluster):
    before = (cluster.project / "idle.ipynb").read_text()
    (cluster.project / "idle.ipynb").write_text(json.dumps(book("'not this one'")))
    words = ("-j", "batch", "-p", "x=1", "--no-browser")
    ran = cluster.ok("notebook.resubmit", "idle", *words, MINE="other")
    (cluster.project / "idle.ipynb").write_text(before)
    assert "running again: idle.ipynb, as job idle of local last saved it" in ran.err
    assert "note: no cell of idle.ipynb is tagged 'parameters'" in ran.err
    made = (cluster.project / "idle.batch.ipynb").read_text()
    assert "tried yes other" in made and "not this one" not in made


def test_resubmit_of_a_notebook_served_after_a_run_keeps_the_run_settings(cluster, calls):
    """The record of a server is the latest one, and a server has no parameters."""
    (cluster.project / "both.ipynb").write_text(json.dumps(book("lr = 1")))
    flags = ("-p", "lr=0.5", "--to", "script", "--allow-errors", "--timeout-per-cell", "9s")
    much = ("--cpu", str(4 * (os.cpu_count() or 1)), "--mem", "64m")  # so that they wait
    cluster.ok("notebook.run", "both.ipynb", "-j", "both-ran", *flags, *much, "--detach")
    words = ("both.ipynb", "-j", "both-served", "--direct", "--env", "TRIED=yes", "--wait", "1s", *much)
    assert cluster.inv("notebook.serve", *words).code == 124
    cluster.ok("job.stop", "both-*")
    ran = cluster.ok("notebook.resubmit", "both.ipynb", "--preview")
    job = yaml.safe_load(ran.out)
    called = """.pai-notebook.py both.ipynb --parameters '{"lr": 0.5}' --to script --timeout-per-cell 9"""
    assert job["taskRoles"]["main"]["commands"] == [f"python3 {called} --allow-errors"]
    assert json.loads(job["extras"]["openpaiNotebook"]["parameters"]) == {"lr": 0.5}
    assert "export TRIED=yes || exit 1" in ran.out and "its last run, job both-ran" in ran.err
    changed = cluster.ok("notebook.resubmit", "both.ipynb", "--preview", "-p", "lr=7").out
    assert '{"lr": 7}' in yaml.safe_load(changed)["taskRoles"]["main"]["commands"][0]


def test_a_cell_runs_through_the_tunnel(served, lab, kernel):
    assert served["job"] == "lab" and served["direct"] is False
    assert lab.address.startswith(f"{lab.base}/lab/tree/deep/my%20book.ipynb?token=")
    with urllib.request.urlopen(lab.address, timeout=60) as page:
        assert b"JupyterLab" in page.read()
    code = "import os, sys; sys.path.insert(0, '..'); import helper; print(helper.x * 21)"
    assert lab.run(kernel, code) == "42\n"
    assert lab.run(kernel, "print('JUPYTER_TOKEN' in os.environ)") == "False\n"


def test_sent_files_have_their_own_dates(lab):
    assert lab.ask("/api/contents/helper.py?content=0")["last_modified"].startswith("2023-11-14T22:13:20")


def test_files_of_jupyter_stay_in_the_folder_of_the_job(lab, kernel):
    code = "from jupyter_core import paths; import IPython; print(paths.jupyter_config_dir(), "
    code += (
        "paths.jupyter_data_dir(), paths.jupyter_runtime_dir(), IPython.paths.get_ipython_dir(), sep='\\n')"
    )
    root = lab.run(kernel, "print(os.path.dirname(os.getcwd()))").strip()
    folders = lab.run(kernel, code).split("\n")[:-1]
    assert len(folders) == 4 and all(folder.startswith(f"{root}/.pai-jupyter/") for folder in folders)
    config = Path(root, ".pai-jupyter", "jupyter_config_dir", "jupyter_server_config.json")
    assert config.stat().st_mode & 0o777 == 0o600 and Path(root, ".pai-jupyter").stat().st_mode & 0o077 == 0


def test_kernels_and_terminals_start_in_the_folder_of_the_job(cluster, lab, kernel):
    root = lab.run(kernel, "import os; print(os.path.dirname(os.getcwd()))").strip()
    own = lab.ready(lab.ask("/api/kernels", {"name": "python3"}, "POST")["id"])
    assert lab.run(own, "import os; print(os.getcwd())").strip() == root
    name = lab.ask("/api/terminals", {}, "POST")["name"]
    until(lambda: {folder_of(one) for one in processes_of_job(cluster, "lab") if is_terminal(one)} == {root})
    for path in (f"/api/terminals/{name}", f"/api/kernels/{own}"):
        with contextlib.suppress(ValueError):  # the response is empty
            lab.ask(path, method="DELETE")


def words_of(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def folder_of(process):
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


def is_terminal(process):
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[4]) != 0
    except OSError:
        return False


@pytest.mark.parametrize("token", ["wrong", "-"])
def test_a_wrong_token_is_refused(lab, kernel, token):
    for path in ("/api/contents", "/api/kernels", "/api/terminals"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            lab.ask(path, token=token)
        assert refused.value.code == 403
    with urllib.request.urlopen(f"{lab.base}/files/helper.py?token={token}", timeout=60) as page:
        assert "/login?" in page.url
    with pytest.raises(websocket.WebSocketBadStatusException) as closed:
        lab.channels(kernel, token)
    assert closed.value.status_code == 403


def test_jupyter_and_the_tunnel_listen_on_loopback_only(cluster, lab, kernel):
    port = int(cluster.ok("job.status", "lab", "-o", "json").json()["tasks"][0]["ports"]["jupyter"])
    found = dict(reversed(one) for one in listening(processes_of_job(cluster, "lab")))
    assert set(found.values()) <= LOOPBACK and port in found and len(found) > 5  # those of the kernel too
    tunnel = [Path(f"/proc/{pid}") for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")]]
    addresses = {one for one, number in listening(tunnel) if number == urlsplit(lab.base).port}
    assert addresses and addresses <= LOOPBACK


def test_the_token_is_in_no_command_line_document_or_log(cluster, lab, calls):
    token = lab.token
    assert len(token) >= 40
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert token.encode() not in entry.read_bytes()
        except OSError:
            continue
    config = cluster.ok("job.config", "lab").out
    assert token not in config and "******" in config
    log = cluster.ok("job.logs", "lab").out
    assert "notebook: serving" in log and token not in log
    assert token not in calls["lab"].err.read_text()
    record = cluster.project / ".openpai" / "jobs" / "lab" / "record.json"
    assert token not in record.read_text()
    preview = cluster.ok("notebook.serve", "--token-file", "-", "--preview", input=f"{token}\n")
    assert token not in preview.out + preview.err
    [kept] = (cluster.home / "notebooks" / "local").glob("*~lab.json")
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o077 == 0


def test_pull_downloads_changes_and_overwrites_no_local_changes(cluster, lab):
    project, mine = cluster.project, cluster.project / "deep" / "my book.ipynb"
    lab.save("deep/my%20book.ipynb", book("import helper", "1 + 2"))
    lab.save("neu.ipynb", book("new"))
    lab.save("helper.py", "x = 3\n")
    rows = cluster.ok("notebook.pull", "lab", "-o", "json").json()
    assert [(row["name"], row["change"]) for row in rows] == [
        ("deep/my book.ipynb", "updated"),
        ("helper.py", "updated"),
        ("neu.ipynb", "new"),
    ]
    assert sources_of(mine) == ["import helper", "1 + 2"] and sources_of(project / "neu.ipynb") == ["new"]
    assert (project / "helper.py").read_text() == "x = 3\n"
    lab.save("deep/my%20book.ipynb", book("import helper", "1 + 3"))
    mine.write_text(json.dumps(book("mine")))
    ran = cluster.ok("notebook.pull", "lab")
    beside = mine.with_name("my book.remote.ipynb")
    assert f"warning: deep/my book.ipynb was changed here too; the job's version is in {beside}" in ran.err
    assert sources_of(mine) == ["mine"] and sources_of(beside) == ["import helper", "1 + 3"]
    lab.save("deep/my%20book.ipynb", book("1 + 4"))
    cluster.ok("notebook.pull", "lab")
    assert sources_of(beside) == ["1 + 4"]  # it had no local changes
    beside.write_text("notes")
    lab.save("deep/my%20book.ipynb", book("1 + 5"))
    cluster.ok("notebook.pull", "lab")
    assert beside.read_text() == "notes" and sources_of(mine) == ["mine"]
    assert sources_of(mine.with_name("my book.remote-2.ipynb")) == ["1 + 5"]


def test_pull_waits_for_a_slow_server_to_save_the_latest_changes(cluster, lab):
    [saver] = [
        int(entry.name)
        for entry in processes_of_job(cluster, "lab")
        if b"notebook_server.py\0" in words_of(entry)
    ]
    os.kill(saver, signal.SIGSTOP)
    try:
        lab.save("slow.ipynb", book("slow"))
        pull = cluster.start("inv", "notebook.pull", "lab")
        with pytest.raises(subprocess.TimeoutExpired):
            pull.wait(4)
    finally:
        os.kill(saver, signal.SIGCONT)
    assert pull.wait(60) == 0 and sources_of(cluster.project / "slow.ipynb") == ["slow"]


def answer_question(shell, name, keys, expected):
    """Leave a server with Ctrl-C at a terminal, answer the question by these keys; return the state."""
    with open_terminal(shell, "inv", "notebook.serve", "--reconnect", name, "--no-browser") as terminal:
        terminal.until(b"Ctrl-C pulls your changes")
        terminal.type(CTRL_C)
        shown = terminal.until(f"stop job {name}? [y/N] ".encode())
        terminal.type(keys)
        shown += terminal.until(f"job {name} {expected}".encode())
        assert terminal.code() == 0
        shown += terminal.rest()
    assert b"Traceback" not in shown and shown.count(b"[y/N]") == 1
    return shell.ok("job.status", name, "-o", "json").json()["state"]


@pytest.mark.parametrize("keys", [b"n\r", b"\r", CTRL_C], ids=["no", "return", "ctrl-c"])
def test_not_answering_yes_leaves_the_job_running(cluster, lab, keys):
    assert (
        answer_question(cluster, "lab", keys, "continues; `inv notebook.serve --reconnect lab`") == "RUNNING"
    )


def holding(folder, token):
    """Yield the files below the folder that contain the token."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and token.encode() in path.read_bytes():
                yield path


def test_ctrl_c_pulls_the_changes_and_leaves_the_job_running_unless_stopped(cluster, calls, lab):
    lab.save("helper.py", "x = 4\n")
    code, err = calls["lab"].interrupt()
    assert code == 0 and "job lab continues; `inv notebook.serve --reconnect lab -a local`" in err
    assert f"updated: {cluster.project / 'helper.py'}" in err and "Traceback" not in err
    assert (cluster.project / "helper.py").read_text() == "x = 4\n"
    assert cluster.ok("job.status", "lab", "-o", "json").json()["state"] == "RUNNING"
    check_that_no_browser_blocks_the_command(cluster)
    again = Call(cluster, "again", "--reconnect", "lab", "--no-browser", "--stop", "-o", "json")
    jupyter = Jupyter(again.json()["url"])
    assert jupyter.token == lab.token and "my%20book.ipynb" in jupyter.address
    jupyter.save("helper.py", "x = 5\n")
    folders = {Path(folder_of(entry)) for entry in processes_of_job(cluster, "lab")}
    [own] = folders & {path.parent for path in cluster.home.rglob(".pai-jupyter") if "lab" in str(path)}
    assert list(holding(own / ".pai-jupyter", lab.token))
    code, err = again.interrupt()
    assert code == 0 and "job lab stopped" in err
    assert (cluster.project / "helper.py").read_text() == "x = 5\n"
    assert cluster.inv("job.wait", "lab").code == 143
    assert not list(processes_of_job(cluster, "lab")) and own.is_dir() and not list(holding(own, lab.token))


def check_that_no_browser_blocks_the_command(cluster):
    """No browser is started without a display; Ctrl-C leaves one that blocks the terminal."""
    blocks = cluster.project / "blocks.sh"
    blocks.write_text('#!/bin/sh\necho $$ >"$0.pid"\nexec sleep 600 >/dev/null 2>&1\n')
    blocks.chmod(0o755)
    headless = Call(cluster, "headless", "--reconnect", "lab", BROWSER=f"{blocks} %s", DISPLAY="")
    until(lambda: "Ctrl-C pulls" in headless.err.read_text())
    code, err = headless.interrupt()
    way = "could not open a browser; `inv notebook.serve --reconnect lab --no-browser` prints the address"
    assert code == 0 and way in err and not blocks.with_suffix(".sh.pid").exists()
    shown = {"BROWSER": f"{blocks} %s", "DISPLAY": ":99"}
    blocked = Call(cluster, "blocked", "--reconnect", "lab", terminal=True, **shown)
    pid = int(
        until(lambda: blocks.with_suffix(".sh.pid").exists() and blocks.with_suffix(".sh.pid").read_text())
    )
    code, err = blocked.interrupt()
    os.kill(pid, signal.SIGKILL)
    assert code == 0 and "job lab continues" in err
    assert not list((cluster.home / "notebooks" / "local").glob("*.html"))


def test_waiting_has_a_limit_a_failed_job_is_explained_and_answering_yes_stops_a_job(cluster):
    late = Call(cluster, "late", "-j", "late", "--direct", "--wait", "1s", *SMALL)
    lost = cluster.inv("notebook.serve", "-j", "lost", "--python", "no-such-python", *SMALL)
    assert lost.code == 127 and "job 'lost' failed: " in lost.err and "job.logs lost" in lost.err
    refused = cluster.inv("notebook.resubmit", "lost")
    assert refused.code == 120
    assert "`inv notebook.pull lost`, then `inv notebook.resubmit FILE`" in refused.err
    code, err = late.end()
    assert code == 124 and "waiting at most 1 s in all" in err
    assert "error: Jupyter in job 'late' did not answer within 1 s: " in err
    check_that_losing_the_cluster_leaves_the_job_and_says_how_to_reconnect(cluster)
    assert answer_question(cluster, "late", b"y\r", "stopped") in ("STOPPING", "STOPPED")
    cluster.inv("job.wait", "late")
    [kept] = (cluster.home / "notebooks" / "local").glob("*~late.json")
    assert json.loads(kept.read_text())["token"] == ""


def check_that_losing_the_cluster_leaves_the_job_and_says_how_to_reconnect(cluster):
    call = Call(cluster, "alone", "--reconnect", "late", "--direct", "--no-browser", "-o", "json")
    call.json()
    cluster.ok("cluster.stop", "--keep-jobs")
    code, err = call.end()
    way = "`inv notebook.serve --reconnect late` opens it again, `inv job.stop late` stops it"
    assert code == 121 and f"job late continues; {way}" in err.splitlines(), err
    assert err.splitlines()[-1].startswith("error: ") and "Traceback" not in err


def test_commands_that_see_an_ended_job_delete_its_token(cluster):
    sleeper = cluster.project / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 600\n")
    sleeper.chmod(0o755)
    words = ("-j", "seen", "--python", str(sleeper), "--wait", "1s", *SMALL)  # without a real Jupyter
    assert cluster.inv("notebook.serve", *words).code == 124
    [kept] = (cluster.home / "notebooks" / "local").glob("*~seen.json")
    cluster.ok("job.status", "seen")
    cluster.ok("job.list")
    held = kept.read_text()
    assert json.loads(held)["token"]
    for words in (("job.stop", "seen"), ("job.list",), ("job.status", "seen")):
        kept.write_text(held)
        cluster.ok(*words)
        assert json.loads(kept.read_text())["token"] == "", words


BAD = (
    (("notebook.serve", "missing.ipynb"), 123, "'missing.ipynb'"),
    (("notebook.serve", "tasks.py"), 123, "is not a notebook"),
    (("notebook.serve", "--idle", "soon"), 120, "--idle"),
    (("notebook.serve", "--timeout", "-1"), 120, "--timeout"),
    (("notebook.serve", "--port", "70000"), 120, "--port"),
    (("notebook.serve", "--token-file", "no-such"), 120, "no-such"),
    (("notebook.serve", "idle.ipynb", "--reconnect", "x"), 120, "--reconnect"),
    (("notebook.serve", "--reconnect", "no-such-job"), 122, "no-such-job"),
    (("notebook.pull", "no-such-job"), 122, "no-such-job"),
    (("notebook.pull", "plain"), 120, "was not started by notebook.serve"),
    (("notebook.pull", "lab", "--target", "no-such-folder"), 123, "no-such-folder"),
)


def test_bad_input_is_reported_in_one_line(cluster, lab):
    cluster.ok("job.sub", "true", "-j", "plain", *SMALL)
    for words, code, message in BAD:
        ran = cluster.inv(*words)
        assert ran.code == code and message in ran.err and ran.out == "", (words, ran)
        assert len(ran.err.splitlines()) == 1 and ran.err.startswith("error: "), (words, ran)


def test_a_short_token_is_refused_where_others_could_reach_the_server(cluster):
    ran = cluster.inv("notebook.serve", "--token", "abcd", "--direct")
    assert ran.code == 120 and "fewer than 16 characters" in ran.err and "abcd" not in ran.err
