"""Every command line of the older clients' guide runs as it was printed, with its placeholders filled in."""

import json
import re

import nbformat
import pytest

from tests.conftest import make_shell
from tests.server.conftest import Api

pytestmark = pytest.mark.timeout(600)  # many jobs, one after the other

SETUP = """
pai -h
pai set clusters-in-local=yes
pai add-cluster --cluster-alias <lab> --pai-uri <pai-uri> --user <user> --password <password>
pai delete-cluster <lab>
pai add-cluster --cluster-alias <lab> --pai-uri <pai-uri> --user <user> --toke <token>
pai delete-cluster <lab>
pai add-cluster --cluster-alias <lab> --pai-uri <pai-uri> --user <user> --token <token>
pai delete-cluster <lab>
pai add-cluster -a <lab> --pai-uri <pai-uri> --user <user> --password <password>
pai select-cluster <lab>
pai list-clusters
pai edit-clusters --editor <path/to/editor>
pai cluster-resources
pai update-clusters
pai list-storages <cluster-alias>
opai cluster select -g <cluster-alias>
opai cluster select <cluster-alias>
opai set -g workspace=<workspace>
opai set workspace=<workspace>
opai set cluster-alias=<cluster-alias>
opai set image=<docker-image>
pai set container-sdk-branch=<your/branch>
opai -h
"""
STORAGE = """
pai select-storage --cluster-alias <cluster-alias> --storage-name <storage-name> --workspace <workspace>
pai add-storage-cluster --cluster-alias <cluster-alias> --type <type> --address <address> --path <path>
pai makedir pai://<cluster-alias>/<storage-name>/path
pai makedirs pai://<cluster-alias>/<storage-name>/path/to/folder
pai copy mnist_cnn.py pai://<cluster-alias>/<storage-name>/path/file
pai copy pai://<cluster-alias>/<storage-name>/path/file ./copied
pai listdir pai://<cluster-alias>/<storage-name>/path/to/folder
pai getinfo pai://<cluster-alias>/<storage-name>/path
pai remove pai://<cluster-alias>/<storage-name>/path/file
pai delete pai://<cluster-alias>/<storage-name>/path/to/folder
"""
JOBS = """
pai submit -a <cluster-alias> <config-file>
pai submit --update name=<job-name> -u defaults:virtualCluster=<vc> <config-file>
pai submit --update jobName=<job-name> -u virtualCluster=<vc> <v1-config-file>
pai submit --preview <config-file>
pai sub -a <cluster-alias> -i <docker-image> -j <job-name> python3 --version
pai sub -a <cluster-alias> -i <docker-image> -j <job-name> --sources mnist_cnn.py python3 mnist_cnn.py
pai sub --cpu <n> --gpu 0 --memoryMB <mb> --ports <label>=<n> python3 --version
pai sub "cd . && python3 --version && echo arg1 arg2"
pai sub --preview --pip-installs <package> --pip-path <path/to/pip> python3 --version
pai sub --python <path/to/python> python3 --version
pai list-jobs
pai list-jobs -a <cluster-alias>
pai list-jobs -a <cluster-alias> <last-job>
pai connect-job --cluster-alias <cluster-alias> <last-job>
pai job-status --cluster-alias <cluster-alias> --user <own-user> <last-job>
pai job-status --cluster-alias <cluster-alias> --user <own-user> <last-job> config
pai start-container --cluster-alias <cluster-alias> --job-name <container> --timeout 1d --image <docker-image>
pai job-status --cluster-alias <cluster-alias> --user <own-user> <container> ssh
pai ssh-container --cluster-alias <cluster-alias> --job-name <container> --user <own-user>
pai stop-job <container>
pai stop-jobs <last-job>
pai notebook-job -a <cluster-alias> -i <docker-image> <notebook>
pai notebook-job -a <cluster-alias> -i <docker-image> --preview <notebook>
pai notebook-job -a <cluster-alias> -i <docker-image> --interactive --token <token> --preview <notebook>
pai notebook-job -a <cluster-alias> -i <docker-image> --interactive --toke abcd --preview <notebook>
"""
OPAI = """
opai cluster list
opai cluster resources
opai cluster edit --editor <path/to/editor>
opai job list -a <cluster-alias>
opai job list -a <cluster-alias> <last-job>
opai job status <last-job>
opai job submit -a <cluster-alias> --update name=<job-name> <config-file>
opai job sub -a <cluster-alias> -i <docker-image> -j <job-name> -w <workspace> --src mnist_cnn.py ls -l
opai job stop <last-job>
opai job notebook -a <cluster-alias> -i <docker-image> -w <workspace> --preview <notebook>
opai storage upload -a <cluster-alias> -s <storage-name> mnist_cnn.py /up
opai storage list -a <cluster-alias> -s <storage-name> /
opai storage status -a <cluster-alias> -s <storage-name> /up
opai storage download -a <cluster-alias> -s <storage-name> /up ./down
opai storage delete -a <cluster-alias> -s <storage-name> /up
opai cluster delete <lab>
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A cluster of somebody else, with a user ann; its address, and her password and token."""
    server = make_shell(tmp_path_factory.mktemp("server"))
    server.environment["LOGNAME"] = "operator"  # whoever runs the tests
    server.ok("cluster.start")
    access = server.ok("cluster.credentials", "local", "-o", "json").json()
    admin = Api(access["rest_server_uri"], access["token"], checked=False)
    account = {"username": "ann", "password": "pass-of-ann", "virtualCluster": ["default"]}
    assert admin.call("POST", "/api/v2/users", json=account).status_code == 201
    body = {"username": "ann", "password": "pass-of-ann"}
    login = admin.call("POST", "/api/v1/authn/basic/login", json=body).json()
    yield {
        "<pai-uri>": access["uri"],
        "<user>": "ann",
        "<password>": body["password"],
        "<token>": login["token"],
    }
    server.ok("cluster.stop")


@pytest.fixture(scope="module")
def user(tmp_path_factory, lab):
    """A folder with the files of the guide, and what to put for its placeholders."""
    shell = make_shell(tmp_path_factory.mktemp("user"))
    (shell.project / "tasks.py").unlink()
    shell.environment |= {"BROWSER": "true", "VISUAL": "true", "INVOKE_OPENPAI_CPU": "1"}
    write_files(shell.project)
    shell.values = lab | {
        "<lab>": "lab",
        "<cluster-alias>": "local",
        "<storage-name>": "home",
        "<workspace>": "guide",
        "<docker-image>": "python:3",
        "<your/branch>": "pai-0.14.y",
        "<path/to/editor>": "true",
        "<path/to/python>": "python3",
        "<path/to/pip>": "pip3",
        "<package>": "wheel",
        "<type>": "local",
        "<address>": str(shell.project / "disk"),
        "<path>": "/",
        "<config-file>": "job.yaml",
        "<v1-config-file>": "job.json",
        "<vc>": "default",
        "<n>": "1",
        "<mb>": "256",
        "<label>": "web",
        "<container>": "box",
        "<notebook>": "mnist_cnn.ipynb",
    }
    yield shell
    shell.pai("cluster.stop")


def write_files(folder):
    (folder / "disk").mkdir()
    (folder / "mnist_cnn.py").write_text("print('trained')\n")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")])
    nbformat.write(notebook, folder / "mnist_cnn.ipynb")
    role = {"resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0}, "commands": ["true"]}
    document = {
        "protocolVersion": 2,
        "name": "from-a-file",
        "type": "job",
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "python:3"}],
        "taskRoles": {"main": {"dockerImage": "image", **role}},
    }
    (folder / "job.yaml").write_text(json.dumps(document))
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 64, "command": "true"}
    (folder / "job.json").write_text(json.dumps({"jobName": "v1", "image": "python:3", "taskRoles": [role]}))


def run_lines(shell, text, count):
    """Run each line in the shell, with its placeholders filled in; new names for new jobs."""
    for number, line in enumerate(text.strip().splitlines()):
        last = f"job-{count}-{number}"
        typed = re.sub("<job-name>", last, line)
        if typed != line:
            shell.values["<last-job>"] = last
        for name, value in shell.values.items():
            typed = typed.replace(name, value)
        assert "<" not in typed
        run_line(shell, typed, "exit 0\n" if "-container" in line else "")


def run_line(shell, typed, keys):
    ran = shell.run("sh", "-c", typed, input=keys, timeout=300)
    assert ran.code == 0, (typed, ran)
    assert "Traceback" not in ran.err


def own_user(shell):
    return shell.pai("cluster.credentials", "local", "-o", "json").json()["user"]


def test_clusters_and_settings(user):
    run_lines(user, SETUP, "setup")
    assert "selected" in user.pai("list-clusters", "-o", "json").out
    refused = user.pai("edit-clusters")
    assert refused.code == 120 and "cluster.edit needs a terminal" in refused.err


def test_storages(user):
    run_lines(user, STORAGE, "storage")
    assert (user.project / "copied").read_text() == "print('trained')\n"


def test_jobs(user):
    user.values["<own-user>"] = own_user(user)
    run_lines(user, JOBS, "jobs")
    assert list(user.project.glob("mnist_cnn*.html"))


def test_two_words(user):
    user.values["<last-job>"] = "job-jobs-5"
    run_lines(user, OPAI, "opai")
    assert (user.project / "down").read_text() == "print('trained')\n"
