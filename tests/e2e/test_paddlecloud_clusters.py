"""A PaddleCloud datacenter as a cluster: ~/.paddle/config, the usual commands, and what it cannot do."""

import re
import stat

import pytest
import yaml

from tests.conftest import make_shell
from tests.portal.conftest import Web

TRAIN = """\
import os, pathlib, openpai_tasks.runtime
pathlib.Path("model.txt").write_text("weights")
pathlib.Path(os.environ["PAI_OUTPUT_DIR"], "log.txt").write_text("done")
print("trained", os.environ["PAI_TASK_INDEX"])
"""
DC = "local-paddle"


@pytest.fixture(scope="module")
def dc(tmp_path_factory):
    """A shell whose user has the embedded cluster in ~/.paddle/config."""
    folder = tmp_path_factory.mktemp("dc")
    shell = make_shell(folder)
    shell.environment["HOME"] = str(folder)
    ran = shell.pai("cluster.credentials", "local", "--type", "paddlecloud")
    assert ran.code == 0, ran
    config = folder / ".paddle" / "config"
    config.parent.mkdir()
    config.write_text(ran.out)
    shell.config = config
    (shell.project / "train.py").write_text(TRAIN)
    yield shell
    shell.pai("cluster.portal", "--stop")
    shell.pai("cluster.stop")


def ok(shell, *args, **options):
    ran = shell.pai(*args, **options)
    assert ran.code == 0, ran
    return ran


def one_line(ran, code=120):
    assert ran.code == code and ran.err.startswith("error: "), ran
    assert ran.err.count("\n") == 1 and "Traceback" not in ran.err, ran
    return ran.err


def test_printed_config_file_is_read_as_it_is(dc):
    found = yaml.safe_load(dc.config.read_text())
    assert found["current-datacenter"] == found["datacenters"][0]["name"] == "local"
    assert found["datacenters"][0]["endpoint"].endswith("/paddlecloud")
    rows = ok(dc, "cluster.list", "-o", "json").json()
    assert [(row["alias"], row["type"]) for row in rows] == [("local", "openpai"), (DC, "paddlecloud")]
    info = ok(dc, "cluster.info", DC, "-o", "json").json()
    assert (info["user"], info["storages"]) == (found["datacenters"][0]["username"], ["pfs"])


def test_a_datacenter_has_the_same_names_in_all_programs(dc):
    user = yaml.safe_load(dc.config.read_text())["datacenters"][0]["username"]
    (dc.project / "hello.txt").write_text("hello")
    assert dc.run("paddlecloud", "cp", "hello.txt", f"/pfs/{DC}/home/{user}/hello.txt").code == 0
    for name in ("local", DC):
        path = f"/pfs/{name}/home/{user}/hello.txt"
        assert f"/pfs/local/home/{user}/hello.txt" in dc.run("paddlecloud", "ls", path).out
        assert ok(dc, "storage.cat", path).out == "hello"
        assert dc.run("paddlecloud", "-datacenter", name, "jobs").code == 0


def test_resources_are_the_quota(dc):
    (row,) = ok(dc, "cluster.resources", DC, "-o", "json").json()
    assert row["cluster"] == DC and row["vcores_usable"] > 0 and row["memory_mb_usable"] > 0
    assert row["problem"] == ""


def test_a_job_is_submitted_with_its_sources_and_its_outputs_come_back(dc):
    ran = ok(
        dc,
        *("job.sub", "python3 train.py", "-j", "train", "--sources", "train.py", "--outputs", "model*"),
        *("--instances", "2", "--cpu", "1", "-f", "-a", DC),
    )
    assert sorted(ran.out.split("\n")) == ["", "[main-0] trained 0", "[main-1] trained 1"]
    ok(dc, "job.wait", "train", "-a", DC)
    job = ok(dc, "job.status", "train", "-a", DC, "-o", "json").json()
    assert (job["state"], [task["state"] for task in job["tasks"]]) == ("SUCCEEDED", ["SUCCEEDED"] * 2)
    ok(dc, "job.outputs", "train", "--to", "back", "-a", DC)
    assert [path.read_text() for path in (dc.project / "back").rglob("model.txt")] == ["weights"] * 2
    assert ok(dc, "storage.cat", f"pai://{DC}/pfs/home/{job['user']}/jobs/train/output/log.txt").out == "done"
    assert "SUCCEEDED" in ok(dc, "job.list", "-a", DC).out
    assert "succeeded" in ok(dc, "job.why", "train", "-a", DC).out
    assert "train.py" in ok(dc, "job.config", "train", "-a", DC).out


def test_jobs_of_a_sweep_get_names_that_kubernetes_allows(dc):
    ok(dc, "job.sub", "echo {lr}", "-j", "tune", "--sweep", "lr=0.1,1E-3", "-a", DC)
    names = {row["name"] for row in ok(dc, "job.list", "-a", DC, "-o", "json").json()}
    assert {"tune-lr-0-1", "tune-lr-1e-3"} <= names


def test_tokens_are_stored_but_the_password_stays_in_its_file(dc):
    ok(dc, "job.list", "-a", DC)
    kept = dc.home / "credentials.yaml"
    password = yaml.safe_load(dc.config.read_text())["datacenters"][0]["password"]
    assert password not in kept.read_text() and "token" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not (dc.home / "clusters.yaml").exists()


def test_a_token_that_the_cluster_has_forgotten_is_renewed(dc):
    ok(dc, "job.list", "-a", DC)
    kept = dc.home / "credentials.yaml"
    kept.write_text(re.sub(r"token: \w+", f"token: {'0' * 40}", kept.read_text()))
    ok(dc, "job.list", "-a", DC)
    assert "0" * 40 not in kept.read_text()


def test_an_exit_code_is_that_of_the_command(dc):
    dc.pai("job.sub", "exit 3", "-j", "exit-3", "-a", DC)
    assert dc.pai("job.wait", "exit-3", "-a", DC).code == 3
    why = ok(dc, "job.why", "exit-3", "-a", DC).out
    assert "ended with exit code 3" in why and "the command failed" in why and "administrator" not in why


def test_failure_by_a_kill_is_explained_as_a_lack_of_memory(dc):
    ok(dc, "job.sub", "exit 137", "-j", "killed-137", "-a", DC)
    assert dc.pai("job.wait", "killed-137", "-a", DC).code == 137
    why = ok(dc, "job.why", "killed-137", "-a", DC).out
    assert "used more memory" in why and "--memoryMB" in why and "retried" not in why


def test_a_stopped_job_stays_in_the_list(dc):
    ok(dc, "job.sub", "echo begun; sleep 300", "-j", "stopped", "-a", DC)
    ok(dc, "job.stop", "stopped", "-a", DC)
    ran = dc.pai("job.wait", "stopped", "-a", DC)
    assert ran.code == 143 and "STOPPED" in ran.out
    assert "stopped on request" in ok(dc, "job.why", "stopped", "-a", DC).out
    rows = ok(dc, "job.list", "-a", DC, "-o", "json").json()
    assert {row["name"]: row["state"] for row in rows}["stopped"] == "STOPPED"


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--tag", "x"), "has no tags"),
        (("--ssh",), "gives no ssh into containers"),
        (("--vc", "lab"), "no virtual cluster 'lab'"),
        (("--shm", "1g"), "shared memory"),
        (("--ports", "http=1"), "reserves no ports"),
        (("--retries", "1"), "does not retry jobs"),
        (("--job-name", "My_Job"), "cannot run a job named 'My_Job'"),
        (("--role", "a:command=true", "--role", "b:command=true"), "trainers and parameter servers only"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_is_uploaded(dc, flags, words):
    (dc.project / "big.txt").write_text(words)  # sources that are not on the storage yet
    ran = dc.pai("job.sub", "true", *flags, "--sources", "big.txt", "-a", DC)
    line = ran.err.splitlines()[-1]
    assert (ran.code, line.count(f"cluster '{DC}' (PaddleCloud)")) == (120, 1) and words in line
    before = ok(dc, "storage.list", "-a", DC, "-o", "json").json()
    assert before and "Traceback" not in ran.err
    user = yaml.safe_load(dc.config.read_text())["datacenters"][0]["username"]
    sent = dc.pai("storage.ls", f"pai://{DC}/pfs/home/{user}/sources", "-o", "json")
    names = [row["name"] for row in sent.json()] if sent.code == 0 else []
    assert len(names) <= 1  # that of the job above


def test_other_commands_that_it_cannot_do_are_refused_in_one_line(dc):
    ok(dc, "job.sub", "true", "-j", "short", "-f", "-a", DC)
    assert "keeps one log" in one_line(dc.pai("job.logs", "short", "--stderr", "-a", DC))
    assert "no ssh" in one_line(dc.pai("container.ssh", "short", "-a", DC))
    assert "no ssh" in dc.pai("container.start", "-a", DC).err.splitlines()[-1]
    assert "never changed" in one_line(dc.pai("storage.select", "pfs", "-a", DC))
    assert "remove it there" in one_line(dc.pai("cluster.delete", DC))
    assert "only the cluster 'local'" in one_line(dc.pai("cluster.credentials", DC, "--type", "paddlecloud"))
    assert "expected openpai or paddlecloud" in one_line(
        dc.pai("cluster.credentials", "local", "--type", "x")
    )


def test_a_broken_config_file_stops_only_its_own_clusters(dc, tmp_path):
    (tmp_path / ".paddle").mkdir()
    (tmp_path / ".paddle" / "config").write_text("datacenters: [{password: s3cret")
    home = {"HOME": str(tmp_path)}
    ran = ok(dc, "cluster.list", **home)
    assert "local" in ran.out and "warning" in ran.err and "is not valid YAML" in ran.err
    ok(dc, "job.list", "-a", "local", **home)
    line = one_line(dc.pai("job.list", "-a", DC, **home))
    assert "no cluster named" in line and "is not valid YAML" in line
    assert "s3cret" not in ran.out + ran.err + line


def test_a_datacenter_can_be_added_like_other_clusters(dc):
    found = yaml.safe_load(dc.config.read_text())["datacenters"][0]
    add = ("cluster.add", "mine", found["endpoint"], "--type", "paddlecloud", "--user", found["username"])
    password = {"OPENPAI_PASSWORD": found["password"]}
    assert "invalid datacenter" in one_line(dc.pai(*add, "--datacenter", "../x", **password))
    wrong = dc.pai(*add, OPENPAI_PASSWORD="wr0ng")
    assert "password" in one_line(wrong, 122) and "wr0ng" not in wrong.err
    assert "not supported" in one_line(dc.pai(*add[:4], "lsf", **password))
    assert "the option 'datacenter' is for" in one_line(
        dc.pai("cluster.add", "mine", found["endpoint"], "--datacenter", "x", **password)
    )
    ran = ok(dc, *add, "--datacenter", "dc1", **password)
    assert found["password"] not in ran.out + ran.err
    assert "from mine" in ok(dc, "job.sub", "echo from mine", "-f", "-a", "mine").out
    ok(dc, "storage.select", "pfs", "-w", "experiments", "-a", "mine")
    ok(dc, "cluster.update", "mine")
    ok(dc, "cluster.delete", "mine")


WRITE = 'echo kept > "$PAI_OUTPUT_DIR/kept.txt"'


@pytest.mark.parametrize("alias", ["local", DC])
def test_paddlecloud_neither_stops_nor_removes_what_pai_has_submitted(dc, alias):
    name = f"of-pai-on-{alias}"
    ok(dc, "job.sub", WRITE, "-j", name, "-f", "-a", alias)
    assert name not in dc.run("paddlecloud", "jobs").out
    rows = {row["name"]: row["state"] for row in dc.run("paddlecloud", "jobs", "-a", "-o", "json").json()}
    assert rows[name] == "Foreign"
    for line in (["paddlecloud", "kill", "-rm", "-y", name], ["paddlecloud", "kill", name]):
        ran = dc.run(*line)
        stop = f"`pai job.stop {name}" + (f" -a {DC}`" if alias == DC else "`")
        assert stop in one_line(ran, 1) and "was submitted by pai, so nothing was done" in ran.err
    assert "submitted by pai" in one_line(dc.pai("paddle.kill", name, "--rm", "--yes"), 122)
    (dc.project / "pkg").mkdir(exist_ok=True)
    (dc.project / "pkg" / "train.py").write_text("print('trained')")
    taken = dc.run("paddlecloud", "submit", "pkg", "-entry", "true", "-jobname", name)
    assert "holds the files of a job of pai: use another -jobname" in one_line(taken, 1)
    assert "kept.txt" in ok(dc, "job.outputs", name, "-a", alias).out
    assert "SUCCEEDED" in ok(dc, "job.status", name, "-a", alias).out


def test_pai_does_not_write_into_the_folder_of_a_package_with_output(dc):
    (dc.project / "pkg").mkdir(exist_ok=True)
    (dc.project / "pkg" / "train.py").write_text("import os; os.mkdir('output')")
    sent = dc.run("paddlecloud", "submit", "pkg", "-t", "train.py", "-jobname", "theirs", "-pservers", "0")
    assert sent.code == 0 and dc.run("paddlecloud", "logs", "theirs", "-f").code == 0
    assert dc.run("paddlecloud", "kill", "theirs").code == 0
    line = dc.pai("job.sub", "true", "-j", "theirs", "-a", DC).err.splitlines()[-1]
    assert "already contains output that none of your jobs wrote; choose another job name" in line
    assert dc.run("paddlecloud", "kill", "-rm", "theirs").code == 0
    ok(dc, "job.sub", "true", "-j", "theirs", "-f", "-a", DC)


def test_python_api_submits_to_a_datacenter(dc):
    (dc.project / "api.py").write_text(
        "from openpai_tasks import submit\n"
        f"job = submit('echo from python', cluster={DC!r}, job_name='python-$')\n"
        "print(job.wait().state, *job.logs())\n"
    )
    ran = dc.run("python", "api.py")
    assert ran.out == "SUCCEEDED from python\n", ran


def test_pages_of_the_portal_show_a_datacenter(dc):
    ok(dc, "job.sub", "echo for the portal", "-j", "shown", "-f", "-a", DC)
    link = ok(dc, "cluster.portal", DC, "--no-browser").out.strip()
    web = Web()
    assert "shown" in web.get(link, timeout=60).text
    user = yaml.safe_load(dc.config.read_text())["datacenters"][0]["username"]
    base = f"{link.partition('/open/')[0]}/c/{DC}"
    for page in (
        "jobs",
        "cluster",
        "submit",
        "submit/file",
        "storage/pfs",
        f"storage/pfs/home/{user}",
        "sweeps",
    ):
        assert web.get(f"{base}/{page}", timeout=60).status_code == 200, page
    for part in ("", "/logs", "/document", "/outputs", "/metrics", "/provenance", "/resubmit"):
        text = web.get(f"{base}/jobs/{user}~shown{part}", timeout=60).text
        assert "shown" in text and "data-log-stream" not in text and "container.ssh" not in text
    assert web.get(f"{base}/jobs/{user}~shown/logs.txt", timeout=60).text == "for the portal\n"


def test_a_datacenter_keeps_no_hooks_so_the_command_that_follows_notifies(dc, serve):
    receiver = serve({"POST /x": ""})
    line = ("job.sub", "true", "-a", DC, "--notify", f"{receiver.uri}/x")
    assert "keeps no hooks: follow the job, and the command notifies at its end" in one_line(dc.pai(*line))
    ran = ok(dc, *line, "--follow")
    assert "keeps no hooks: this command notifies 127.0.0.1 when the job ends\n" in ran.err
    assert "notified 127.0.0.1\n" in ran.err and len(receiver.seen) == 1
    ran = ok(dc, *line[:-2], INVOKE_OPENPAI_NOTIFY=f"{receiver.uri}/x")
    assert "keeps no hooks: nobody is notified of the job, unless you follow it\n" in ran.err
    assert len(receiver.seen) == 1
