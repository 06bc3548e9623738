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

from openpai_tasks import Job
from openpai_tasks.storage.job_files.sources import runtime_files
from tests.api.conftest import project  # noqa: F401 - a fixture
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
