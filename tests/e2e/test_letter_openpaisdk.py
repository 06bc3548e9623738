"""The Python lines of the old SDK's README and example notebooks run as printed, with compat/openpaisdk."""

import contextlib
import importlib.util
import io
import json
import shutil
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from openpai_tasks import Job, submit
from openpai_tasks.errors import PaiError
from openpai_tasks.storage.job_files.sources import runtime_files
from tests.api.conftest import project  # noqa: F401 - a fixture
from tests.kernels import kernel_in
from tests.needs import require
from tests.notebook_files import write

COMPAT = Path(__file__).parents[2] / "compat" / "openpaisdk"

VERSION = "from openpaisdk import __version__; print(__version__)"

ADD = """
from openpaisdk.core import ClusterList
cluster_cfg = {
    "cluster_alias": ...,
    "pai_uri": ...,
    "user": ...,
    "password": ...
}
ClusterList().load().add(cluster_cfg).save()
"""

RESOURCES = """
from openpaisdk import __cluster_config_file__
from openpaisdk.io_utils import from_file
from openpaisdk.cluster import ClusterList

cfg = from_file(__cluster_config_file__, default=[])
ClusterList(cfg).available_resources()
"""

QUERY = """
clusters = ClusterList().load() # defaultly loaded from "~/.openpai/clusters.yaml"
client = clusters.get_client(alias)
client.rest_api_submit(job_config)
client.jobs(name)
"""

DELETE = """
ClusterList().load().delete(cluster_alias).save()
"""

SUBMIT_NOTEBOOK = """
from openpaisdk.notebook import submit_notebook
from openpaisdk.core import in_job_container

if not in_job_container():
    job_link = submit_notebook()
    print(job_link)
"""

SAY_WHERE = """
from openpaisdk.core import in_job_container
from openpaisdk.notebook import get_notebook_path
import os

if in_job_container():
    print('Hello, OpenPAI! I am in a container', os.environ['PAI_CONTAINER_ID'])
else:
    print('Hello, OpenPAI! I am from local notebook', get_notebook_path())
"""

BINDING = """
from openpaisdk.notebook import parse_notebook_path, get_notebook_path
from openpaisdk.core import get_defaults, randstr
from openpaisdk.io_utils import to_screen

cluster = {
    "cluster_alias": get_defaults()["cluster-alias"],
    "virtual_cluster": None,
    "workspace": get_defaults()["workspace"],
}

job_name = parse_notebook_path()[0] + '_' + randstr().hex

to_screen(cluster)
to_screen(job_name)

from openpaisdk.core import Job
help(Job.from_notebook)

__nb_ext_custom_cfg__ = {
    "token": "abcdef", # not to set a int string like 1234
    "image": 'ufoym/deepo:pytorch-py36-cu90',
    "resources": {
        "cpu": 4, "memoryMB": 8192, "gpu": 0,
    },
    "sources": ["hello.py"], 
    "pip_installs": [],
}

job = Job(job_name).from_notebook(nb_file=get_notebook_path(), cluster=cluster, **__nb_ext_custom_cfg__)
# to_screen(job.get_config())
"""

CONNECT = """
help(Job.submit)
submitted = job.submit(cluster["cluster_alias"], cluster["virtual_cluster"])

# restore the job from a name and cluster
job2 = Job(job_name).load(cluster_alias=cluster["cluster_alias"])

# one time check, return {state:..., notebook:...}
checked = job2.connect_jupyter()

# wait until notebook url is ready
help(Job.wait)
found = job2.wait(timeout=100)
"""


COMMAND_LINE = (
    """
%load_ext autoreload
%autoreload 2

from openpaisdk.command_line import Engine
from openpaisdk.core import ClusterList, in_job_container
from uuid import uuid4 as randstr

known = Engine().process(['cluster', 'list'])
settings = Engine().process(['set'])
print(settings)

alias = settings["cluster-alias"]
assert alias in known
""",
    """%%writefile count_v1.json
{
    "jobName": "count",
    "image": "example/count:stable",
    "taskRoles": [
        {
            "name": "count",
            "taskNumber": 1,
            "cpuNumber": 4,
            "memoryMB": 8192,
            "gpuNumber": 1,
            "command": "seq 3"
        }
    ]
}
""",
    """%%writefile count_v2.yaml
protocolVersion: 2
name: count
type: job
version: 1.0
contributor: Example
description: |
  # Counting
  Counts to three.

prerequisites:
  - protocolVersion: 2
    name: count_image
    type: dockerimage
    version: 1.0
    contributor : Example
    uri : example/count

taskRoles:
  count:
    instances: 1
    completion:
      minSucceededInstances: 1
    dockerImage: count_image
    resourcePerInstance:
      cpu: 4
      memoryMB: 8192
      gpu: 1
    commands:
      - seq 3
""",
    """
options = ""

if not in_job_container():
    names, lines = [], []

    names.append("from_v1_" + randstr().hex)
    lines.append(f'opai job submit {options} --update jobName={names[-1]} count_v1.json')

    names.append("from_v2_" + randstr().hex)
    lines.append(f'opai job submit {options} --update name={names[-1]} count_v2.yaml')

    names.append("from_sub_" + randstr().hex)
    needs = '-i example/count --cpu 4 --memoryMB 8192 --gpu 1'
    lines.append(f'opai job sub {options} -j {names[-1]} {needs} seq 3')

    names.append("from_notebook_" + randstr().hex)
    more = '--python python3 --pip-installs pip'
    lines.append(f'opai job notebook {options} -j {names[-1]} {needs} {more} 2-count.ipynb')

    for line in lines:
        print(line, "\\n")
        ! {line}
        print("\\n")

    states = ClusterList().load().get_client(alias).wait(names)
    failed = [name for name, state in zip(names, states) if state != "SUCCEEDED"]
    assert not failed, "failed: %s" % failed
""",
)

INSTALLED = (
    """
import openpaisdk
print(openpaisdk.__version__)
print(openpaisdk.__container_sdk_branch__)
print(openpaisdk.get_install_uri())
""",
    "! opai -h",
    """
! opai cluster add --cluster-alias another --pai-uri URI --user USER --password PASSWORD
! opai cluster attach-hdfs --default --cluster-alias another --storage-alias hdfs --web-hdfs-uri http://127.0.0.1:9
""",
    """
from openpaisdk.command_line import Engine

record = Engine().process(['cluster', 'list'])["another"]
record
""",
)


@pytest.fixture
def old(project, monkeypatch):  # noqa: F811
    """Run lines as a program in the project folder; return its variables and what it printed."""
    monkeypatch.syspath_prepend(str(COMPAT))
    variables = {}

    def run(lines):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(lines, "old", "exec"), variables)
        return shown.getvalue()

    run.variables = variables
    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "openpaisdk"]:
        del sys.modules[name]


def filled(lines, values):
    """Put values for the dots of a printed mapping."""
    for name, value in values.items():
        lines = lines.replace(f'"{name}": ...', f'"{name}": {value!r}')
    return lines


def filled_words(lines, login):
    """Put an address and a login into a printed command."""
    for name in ("uri", "user", "password"):
        lines = lines.replace(f" {name.upper()}", f" {login[name]}")
    return lines


def last_value(lines):
    """Return lines that keep the value of the last one in ``found``."""
    head, _, last = lines.rstrip().rpartition("\n")
    return f"{head}\nfound = {last}"


def test_a_list_of_records_asks_its_clusters_with_their_stored_login(cluster, old):
    login = cluster.ok("cluster.credentials", "-o", "json").json()
    values = {"cluster_alias": "lab", "pai_uri": login["uri"], "user": login["user"]}
    values["password"] = login["password"]
    old(filled(ADD, values))
    old(last_value(RESOURCES))
    found, kept = old.variables["found"], old.variables["cfg"]
    assert [record["cluster_alias"] for record in kept] == ["lab"]
    assert login["password"] not in json.dumps(kept)
    assert list(found) == ["lab"] and found["lab"]["default"].keys() == {"GPUs", "vCores", "memory"}
    assert found["lab"]["default"]["memory"] > 0
    elsewhere = {**kept[0], "pai_uri": "http://127.0.0.1:9"}
    assert old.variables["ClusterList"]([elsewhere]).available_resources() == {}  # and gets no stored login
    role = {"resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0}, "commands": ["true"]}
    document = {"protocolVersion": 2, "name": "old-letter", "type": "job"}
    document |= {"prerequisites": [{"name": "i", "type": "dockerimage", "uri": "python:3"}]}
    document |= {"taskRoles": {"main": {"dockerImage": "i", **role}}}
    old.variables |= {"alias": "lab", "job_config": document, "name": "old-letter"}
    old(last_value(QUERY))
    assert [job.name for job in old.variables["found"]] == ["old-letter"]
    assert old.variables["client"].jobs(name_only=True)[0] == "old-letter"
    old.variables["cluster_alias"] = "lab"
    old(DELETE)
    assert old.variables["ClusterList"]().aliases == ["local"]


def test_files_and_defaults(old):
    old("from openpaisdk.io_utils import from_file")
    old("from openpaisdk.defaults import get_defaults, update_default")
    read, update, defaults = (old.variables[name] for name in ("from_file", "update_default", "get_defaults"))
    Path("empty.yaml").write_text("")
    Path("list.json").write_text("[1]")
    assert read("list.json") == [1] and read("list.json", default={}) == {}
    assert read("no.yaml", default=[]) == []
    for wrong in ("no.yaml", "empty.yaml", "text.txt"):
        with pytest.raises((OSError, ValueError)):
            read(wrong)
    update("image", "python:3.9")
    assert defaults()["image"] == "python:3.9"
    update("image", to_delete=True)
    assert defaults()["image"] != "python:3.9"
    assert not yaml.safe_load(Path(".openpai/defaults.yaml").read_text())


def test_a_notebook_submits_itself_once_and_knows_where_it_runs(old, monkeypatch):
    path = write(Path("where.ipynb").absolute(), SAY_WHERE, SUBMIT_NOTEBOOK)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert old(SAY_WHERE) == f"Hello, OpenPAI! I am from local notebook {path}\n"
    link = old(SUBMIT_NOTEBOOK).strip()
    job = Job(link.rpartition("=")[2])
    assert job.wait().state == "SUCCEEDED"
    (ran,) = [file.path for file in job.fetch() if file.path.endswith(".ipynb")]
    text = Path(ran).read_text()
    assert f"I am in a container {job.name}-main-0" in text and text.count("http://127") == 0


def test_a_served_notebook(old, monkeypatch, caplog):
    require("jupyterlab")
    path = write(Path("works.ipynb").absolute(), "1 + 1")
    Path("hello.py").write_text("")
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    small = BINDING.replace('"cpu": 4, "memoryMB": 8192', '"cpu": 1, "memoryMB": 512')
    assert old(small).startswith("cluster_alias: local\n")
    old(CONNECT)
    submitted, checked, found = (old.variables[name] for name in ("submitted", "checked", "found"))
    assert submitted["job_name"] == old.variables["job_name"] in submitted["job_link"]
    assert "other users of this machine could guess a token of 6 characters" in caplog.text
    assert checked.keys() == found.keys() == {"state", "notebook"} and found["state"] == "RUNNING"
    address = urlsplit(found["notebook"])
    assert address.query == "token=abcdef"
    old_address = f"http://{address.netloc}/notebooks/works.ipynb?token=abcdef"
    with urllib.request.urlopen(old_address) as answer:
        assert answer.url == found["notebook"] and b"jupyter" in answer.read().lower()
    with urllib.request.urlopen(f"http://{address.netloc}/api/contents?{address.query}") as answer:
        names = {entry["name"] for entry in json.load(answer)["content"]}
    assert {"works.ipynb", "hello.py"} <= names
    old("job2.stop()")


def test_the_notebook_about_the_command_line(cluster, tmp_path):
    write(tmp_path / "2-count.ipynb", "print(sum(range(4)))")
    with kernel_in(cluster, tmp_path, PYTHONPATH=str(COMPAT)) as kernel:
        settings, _, _, submitted = [kernel.ok(cell) for cell in COMMAND_LINE]
        assert "'cluster-alias': 'local'" in settings.out
        kernel.ok("job_list = Engine().process(['job', 'list', '--name', '-a', alias])")
        assert kernel.ok("print({*names} <= {*job_list})").out == "True\n"
        assert kernel.ok("print(states)").out == f"{['SUCCEEDED'] * 4}\n"
    assert "error" not in submitted.out
    (page,) = tmp_path.glob("2-count.from_notebook_*.html")
    assert ">6" in page.read_text()


def test_the_notebook_about_clusters(shell):
    shell.ok("cluster.start")
    login = shell.ok("cluster.credentials", "-o", "json").json()
    with kernel_in(shell, PYTHONPATH=str(COMPAT)) as kernel:
        installed, helped, added, listed = [kernel.ok(filled_words(cell, login)) for cell in INSTALLED]
        assert installed.out == "0.4.00\n\n\n" and helped.out.startswith("usage: ")
    assert "another" in added.out
    assert login["uri"] in listed.pictures[0]["text/plain"]
    assert login["password"] not in listed.pictures[0]["text/plain"]


def test_the_engine_returns_values(old, capsys):
    old("from openpaisdk.command_line import Engine")
    process = old.variables["Engine"]().process
    (resources,) = process(["cluster", "resources"])["local"].values()
    assert resources.keys() == {"GPUs", "vCores", "memory"}
    process(["set", "cpu=1"])
    assert "set cpu in " in capsys.readouterr().err
    assert process(["set"])["cpu"] == process(["set", "-g"])["cpu"] == 1
    process(["unset", "cpu"])
    assert "cpu" not in Path(".openpai/defaults.yaml").read_text()
    asked = [
        "job",
        "sub",
        "-i",
        "python:3",
        "-j",
        "engine-1",
        "--mem",
        "1g",
        "--preview",
        "echo",
        "--gpu",
        "1",
    ]
    (role,) = process(asked)["taskRoles"].values()
    assert role["commands"] == ["echo --gpu 1"] and role["resourcePerInstance"]["memoryMB"] == 1024
    asked.remove("--preview")
    sent = process(asked)
    assert sent["job_name"] == "engine-1" in sent["job_link"]
    assert process(["job", "connect", "engine-1"])["jobStatus"]["state"] == "SUCCEEDED"
    assert "engine-1 [SUCCEEDED]" in process(["job", "list", "-a", "local"])
    assert process(["job", "status", "engine-1", "config"])["name"] == "engine-1"
    assert process(["storage", "list-storage"])[0]["name"] == "home"
    assert process(["storage", "list", "/"])[0].keys() >= {"name", "type", "size"}
    assert process(["job", "stop", "engine-1"]) is None
    with pytest.raises(PaiError, match="argument --cpu: invalid int value: 'two'"):
        process(["job", "sub", "--cpu", "two", "true"])
    with pytest.raises(PaiError, match="no storage named 'nowhere'"):
        process(["storage", "list", "pai://local/nowhere/"])


def test_the_engine_serves_a_notebook_or_none(old):
    require("jupyterlab")
    old("from openpaisdk.command_line import Engine")
    process = old.variables["Engine"]().process
    found = process(["job", "notebook", "-j", "bare-server", "--interactive", "--token", "abcdef"])
    assert found["job_name"] == "bare-server" and found["state"] == "RUNNING"
    with urllib.request.urlopen(found["notebook"]) as answer:
        assert b"jupyter" in answer.read().lower()
    process(["job", "stop", "bare-server"])
    Job("bare-server").wait()
    assert process(["job", "connect", "bare-server"]) == {"state": "STOPPED", "notebook": None}


def test_a_short_token_is_taken_with_a_warning(cluster):
    """By an abbreviated flag, as in the README, and without a notebook."""
    require("jupyterlab")
    ran = cluster.run("opai", "job", "notebook", "--interactive", "--toke", "abcd", "--preview")
    assert ran.code == 0 and "could guess a token of 4 characters" in ran.err


def test_the_parser_reads_a_status(old):
    old("from openpaisdk import ClusterList, JobStatusParser, get_defaults")
    parser = old.variables["JobStatusParser"]
    old("client = ClusterList().load().get_client(get_defaults()['cluster-alias'])")
    client = old.variables["client"]
    submit("echo to-out; echo to-err >&2", name="parsed").wait()
    assert "parsed" in [job["name"] for job in client.rest_api_job_list(client.user)]
    status = client.rest_api_job_info("parsed")
    assert parser.state(status) == status["jobStatus"]["state"] == "SUCCEEDED"
    assert parser.all_tasks_logs(status) == {"stdout": {"main[0]": "to-out"}, "stderr": {"main[0]": "to-err"}}
    loaded = json.loads(json.dumps(status))
    assert parser.single_task_logs(loaded, log_type={"stdout": ""}) == {"stdout": "to-out"}
    (task,) = status["taskRoles"]["main"]["taskStatuses"]
    assert set(parser.single_task_logs(status, return_urls=True).values()) == {task["containerLog"]}
    assert parser.single_task_logs(status, "ps") is parser.single_task_logs(status, index=1) is None
    assert parser.interactive_jupyter_url(status) == {"state": "SUCCEEDED", "notebook": None}
    assert client.rest_api_job_info("parsed", "config")["name"] == "parsed"


def test_resources(old):
    old("from openpaisdk.job import Job, JobResource")
    resource = old.variables["JobResource"]
    assert resource().as_dict == {"cpu": 2, "gpu": 0, "memoryMB": 4096, "ports": {}}
    given = resource({"gpu": "1", "memoryMB": 1, "mem": "3g"}).add_port("jupyter")
    assert given.as_dict == {"cpu": 2, "gpu": 1, "memoryMB": 3072, "ports": {"jupyter": 1}}
    first, second = resource.parse_list(["3,3,3g", "3,1, 2g"])
    assert (first["gpu"], first["cpu"], first["memoryMB"]) == (3, 3, 3072)
    assert (second["cpu"], second["memoryMB"]) == (1, 2048)
    job = old.variables["Job"]("resources").one_liner("true", resources=given.as_dict)
    (role,) = job.get_config()["taskRoles"].values()
    assert role["resourcePerInstance"]["ports"] == {"jupyter": 1}


def test_the_configuration_of_a_notebook(old, monkeypatch, caplog):
    for name in ("CPU", "MEMORY_MB", "SOURCES"):
        monkeypatch.delenv(f"INVOKE_OPENPAI_{name}", raising=False)  # restored after the test
    old("from openpaisdk.notebook import NotebookConfiguration")
    configuration = old.variables["NotebookConfiguration"]
    before = configuration.get("cpu", "memoryMB")
    configuration.set("cpu", 3)
    configuration.set("mem", "3g")
    configuration.set("sources", "a.py")
    configuration.set("sources", "b.py")
    assert configuration.get("cpu", "mem", "sources") == [3, 3072, ("a.py", "b.py")]
    assert configuration.get()["cpu"] == configuration.get("cpu") == 3
    path = write(Path("configured.ipynb").absolute(), "1 + 1")
    Path("a.py").write_text("")
    Path("b.py").write_text("")
    role = Job().from_notebook(path, "silent").get_config()["taskRoles"]["main"]
    assert (role["resourcePerInstance"]["cpu"], role["resourcePerInstance"]["memoryMB"]) == (3, 3072)
    configuration.set("web-default-form", "notebook")
    assert "web-default-form is not needed here" in caplog.text
    for name, value in (("gpu", -2), ("colour", "red"), ("pip-installs", ["torch>=2,<3"])):
        with pytest.raises(PaiError, match=name):
            configuration.set(name, value)
    old("NotebookConfiguration.reset()")
    assert configuration.get("cpu", "memoryMB") == before
    assert "memoryMB" in old("NotebookConfiguration.print_supported_items()")
    monkeypatch.setenv("PAI_CONTAINER_ID", "container-1")
    configuration.set("cpu", 3)
    assert configuration.get("cpu") is None and configuration.get() == {}


def test_it_installs_alone_and_travels_with_jobs(shell, tmp_path, monkeypatch):
    """Openpai-tasks is its only dependency, and it is not installed with openpai-tasks."""
    source = tmp_path / "openpaisdk"
    shutil.copytree(COMPAT, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(tmp_path / "site"))
    ran = shell.run(sys.executable, "-m", "pip", "install", *flags, str(source))
    assert ran.code == 0, ran
    (metadata,) = (tmp_path / "site").glob("*.dist-info/METADATA")
    wanted = [line for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    assert wanted == ["Requires-Dist: openpai-tasks"]
    assert importlib.util.find_spec("openpaisdk") is None
    ran = shell.run(sys.executable, "-c", VERSION, PYTHONPATH=str(tmp_path / "site"))
    assert (ran.code, ran.out) == (0, "0.4.00\n")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site"))
    names = {file.name for file in runtime_files()}
    assert {f".pai-runtime/openpaisdk/{name}.py" for name in ("__init__", "core", "notebook")} <= names
    assert "openpaisdk" not in sys.modules
