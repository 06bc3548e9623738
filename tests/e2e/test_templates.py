"""Every template runs on the embedded cluster, with stand-ins where it needs more than Python."""

import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.needs import needs

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "templates.md").read_text()

RENDEZVOUS = """\
python3 - <<'PY'
import os, socket, time
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, world = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
if rank == 0:
    with socket.create_server(place) as door:
        peers = [door.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d" % total)
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(b"%d" % rank)
    total = int(peer.recv(16))
print("rank", rank, "of", world, "with", os.environ["NPROC"], "sum", total)
PY
"""

PARAMETER_SERVER = """\
python3 - <<'PY'
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]

def door(role, index):
    host, port = cluster[role][index].split(":")
    return host, int(port)

def ask(role, index, text):
    while True:
        try:
            with socket.create_connection(door(role, index)) as line:
                line.sendall(text)
                return line.recv(64)
        except ConnectionRefusedError:
            time.sleep(0.05)

if task["type"] == "ps":  # holds one number; a message is added to it, and answered with it
    total = 0
    with socket.create_server(door("ps", task["index"])) as server:
        while True:
            line, _ = server.accept()
            total += int(line.recv(64))
            line.sendall(b"%d" % total)
            line.close()
elif task["type"] == "worker":  # gives its gradient to every server
    for index in range(len(cluster["ps"])):
        ask("ps", index, b"%d" % (10 ** task["index"]))
    time.sleep(600)
else:
    wanted = sum(10 ** index for index in range(len(cluster["worker"])))
    while not all(int(ask("ps", index, b"0")) == wanted for index in range(len(cluster["ps"]))):
        time.sleep(0.05)
    print("all servers hold", wanted)
PY
"""

NOTEBOOK = """\
exec python3 - <<'PY'
import http.server, os, urllib.parse

class Notebook(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        self.send_response(200 if query.get("token") == [os.environ["JUPYTER_TOKEN"]] else 403)
        self.end_headers()

http.server.HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Notebook).serve_forever()
PY
"""

FETCH = """\
echo 0.25 > "$LOGDIR/loss"; python3 - <<'PY'
import os, time, urllib.request
while True:
    try:
        print("seen", urllib.request.urlopen("http://%(HOST)s:%(PORT)s/loss" % os.environ, timeout=5).read())
        break
    except OSError:
        time.sleep(0.05)
PY
"""


def make(shell, template, name, **parameters):
    """Create a job file from the template, as a user would."""
    words = [word for key, value in parameters.items() for word in ("-p", f"{key}={value}")]
    shell.ok("job.new", template, f"{name}.yaml", *words)
    return f"{name}.yaml"


def run(shell, template, name, **parameters):
    """Run a job, which must succeed, and return its output."""
    return shell.ok("job.submit", make(shell, template, name, **parameters), "--follow").out


def status(shell, name):
    return shell.ok("job.status", name, "-o", "json").json()


def output(shell, name, pattern):
    """Wait for the pattern in the job's output, and return its first group."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(pattern, shell.ok("job.logs", name).out)
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{pattern} is not in the output: {shell.ok('job.logs', name).out}")


def fetch(url, body=None):
    """Return the status and text of the response, once a server listens there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as err:
            return err.code, err.read().decode()
        except urllib.error.URLError:
            assert time.monotonic() < deadline, f"nobody listens at {url}"
            time.sleep(0.1)


def stop(shell, name):
    shell.ok("job.stop", name)
    assert shell.inv("job.wait", name, "--timeout", "60").code == 143  # it is STOPPED


def test_list_shows_each_template_with_its_description_and_parameters(cluster):
    listed = {item["name"]: item for item in cluster.ok("job.templates", "-o", "json").json()}
    assert listed["hello"]["parameters"][-1] == {"name": "who", "default": "world", "about": "whom to greet"}
    shown = cluster.ok("job.templates").out
    for name, item in listed.items():
        assert name in shown and item["description"] in shown
    assert "who=world" in shown
    assert re.search(r"^who +world +whom to greet$", cluster.ok("job.templates", "hello").out, re.M)


def test_a_projects_template_comes_first_and_a_broken_one_is_reported(shell):
    folder = shell.project / "job_templates"
    folder.mkdir()
    shell.ok("job.new", "hello", "job_templates")
    own = (folder / "hello.yaml").read_text()
    (folder / "hello.yaml").write_text(own.replace("description: say hello", "description: shout hello"))
    (folder / "bad.yaml").write_text("name: bad\n")
    ran = shell.ok("job.templates")
    assert "shout hello" in ran.out and "pytorch-ddp" in ran.out
    assert "bad.yaml: protocolVersion: is required" in ran.err
    assert shell.inv("job.new", "bad").code == 120


def test_new_does_not_overwrite_a_file_unless_forced(shell):
    assert shell.ok("job.new", "hello", "-o", "json").json()[0]["file"] == "hello.yaml"
    path = shell.project / "hello.yaml"
    path.write_text("precious")
    ran = shell.inv("job.new", "hello")
    assert (
        ran.code == 123
        and ran.err.startswith("error: 'hello.yaml' exists")
        and path.read_text() == "precious"
    )
    shell.ok("job.new", "hello", "--force", "--parameter", "who=you")
    assert yaml.safe_load(path.read_text())["parameters"]["who"] == "you"
    for wrong in (["-p", "whom=x"], ["-p", "tasks=x"], ["-p", "who"]):
        ran = shell.inv("job.new", "hello", "other.yaml", *wrong)
        assert ran.code == 120 and "Traceback" not in ran.err
    assert not (shell.project / "other.yaml").exists()


def test_hello_says_hello(cluster):
    assert run(cluster, "hello", "one") == "hello world from task 0\n"
    log = run(cluster, "hello", "two", tasks=2, who="you all")
    assert len(re.findall(r"hello you all from task [01]$", log, re.M)) == 2


def test_template_can_be_submitted_unchanged(cluster):
    ours = ROOT / "job_templates" / "data-preparation.yaml"
    log = cluster.ok("job.submit", str(ours), "--follow").out
    rows = [json.loads(line[line.index("{") :])["rows"] for line in log.splitlines()]
    assert rows == [500, 500]


def test_data_preparation_leaves_its_results_on_the_storage(cluster):
    run(cluster, "data-preparation", "data", tasks=3, output="/mnt/home/prepared set")
    [folder] = (cluster.home / "local").glob("storage/home/*/prepared set")
    parts = sorted(folder.iterdir())
    assert [part.name for part in parts] == [f"part-0000{index}-of-00003.jsonl" for index in range(3)]
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert sorted(row["x"] for row in rows) == list(range(1000))


def test_gpu_training_runs_its_command_beside_the_example(cluster):
    check = "python3 -m py_compile pai_example.py && echo trained"
    assert run(cluster, "gpu-training", "train", command=check, gpus=0) == "trained\n"


def test_tasks_of_pytorch_ddp_connect_to_the_first_task(cluster):
    log = run(cluster, "pytorch-ddp", "ddp", nodes=3, gpus=0, command=RENDEZVOUS)
    for rank in range(3):
        assert f"rank {rank} of 3 with 1 sum 3" in log


def test_parameter_servers_workers_and_chief_exchange_data_and_end_with_the_chief(cluster):
    log = run(cluster, "tensorflow-ps", "ps", workers=3, servers=2, gpus=0, command=PARAMETER_SERVER)
    assert "all servers hold 111" in log
    states = {task["role"]: task["state"] for task in status(cluster, "ps")["tasks"]}
    assert states == {"chief": "SUCCEEDED", "worker": "STOPPED", "ps": "STOPPED"}


@needs("ssh")
def test_horovod_master_waits_for_the_workers_and_knows_all_hosts(cluster):
    log = run(cluster, "horovod", "mpi", workers=2, gpus=4, command='echo "run $NP on $HOSTS"')
    assert "run 12 on master-0:4,worker-0:4,worker-1:4" in log


def test_jupyter_has_its_own_token_and_port(cluster):
    cluster.ok("job.submit", make(cluster, "jupyter", "notebook", command=NOTEBOOK))
    link = output(cluster, "notebook", r"open (http\S+)")
    address, _, token = link.partition("?token=")
    task = status(cluster, "notebook")["tasks"][0]
    assert address == f"http://{task['ip']}:{int(task['ports']['jupyter'])}/lab"
    assert fetch(link)[0] == 200 and fetch(address)[0] == 403
    assert len(token) >= 32 and token not in cluster.ok("job.config", "notebook").out
    stop(cluster, "notebook")
    another = run(cluster, "jupyter", "notebook-again", command="true").strip().partition("?token=")[2]
    assert len(another) == len(token) and another != token


def test_token_set_by_the_user_is_in_no_log_and_no_config(cluster):
    seen = '[ "$JUPYTER_TOKEN" = mine-"alone" ] && echo accepted'
    path = cluster.project / make(cluster, "jupyter", "notebook-mine", command=seen)
    path.write_text(path.read_text() + "secrets:\n  token: mine-alone\n")
    log = cluster.ok("job.submit", path.name, "--follow").out
    assert re.fullmatch(r"open http://127.0.0.1:\d+/lab with your token\naccepted\n", log)
    assert "mine-alone" not in cluster.ok("job.config", "notebook-mine").out


def test_tensorboard_shows_the_training_data_and_ends_with_the_training(cluster):
    viewer = 'python3 -m http.server --bind "$HOST" --directory "$LOGDIR" "$PORT"'
    log = run(cluster, "tensorboard", "board", viewer=viewer, command=FETCH, linger=0)
    assert "TensorBoard is at http://127.0.0.1:" in log and "seen b'0.25\\n'" in log


def test_a_served_model_answers_on_its_port_until_it_is_stopped(cluster):
    cluster.ok("job.submit", make(cluster, "model-serving", "serve", model="line"))
    address = output(cluster, "serve", r"serving line at (http\S+)")
    assert address.endswith(f":{int(status(cluster, 'serve')['tasks'][0]['ports']['serving'])}")
    assert json.loads(fetch(address)[1]) == {"model": "line", "status": "ready"}
    assert json.loads(fetch(address, b'{"x": [1, 2]}')[1]) == {"y": [4, 7]}
    assert fetch(address, b"nonsense")[0] == 400
    stop(cluster, "serve")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)


def test_page_commands_run_in_order(cluster):
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```", PAGE, re.S)
    ran = cluster.run("sh", "-ec", "".join(blocks))
    assert ran.code == 0, ran
    assert "hello everybody from task 1" in ran.out and '"rows": 333' in ran.out


def test_template_on_the_page_is_valid_and_its_table_is_complete(shell):
    folder = shell.project / "job_templates"
    folder.mkdir()
    (folder / "own.yaml").write_text(re.search(r"```yaml\n(.*?)```", PAGE, re.S)[1])
    found = {item["name"]: item for item in shell.ok("job.templates", "-o", "json").json()}
    own = found.pop("own")
    assert own["description"] == "one training run"
    assert own["parameters"][0] == {"name": "gpus", "default": 1, "about": "GPUs of the task"}
    rows = dict(re.findall(r"^\| `([\w-]+)`(?: \*)? \| (.+?) \|", PAGE, re.M))
    roles = {
        name: list(yaml.safe_load(Path(item["path"]).read_text())["taskRoles"])
        for name, item in found.items()
    }
    assert {name: re.findall(r"\w+", row) for name, row in rows.items()} == roles
