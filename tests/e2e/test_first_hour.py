"""The first hour of a new user, from an empty folder."""

import json
import os
import resource
import stat

import nbformat
import pytest
import yaml

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.project_files import write_project
from tests.tasks.test_suggestions import answered

TRAIN = """
import os
print("step 1", flush=True)
with open(os.path.join(os.environ["PAI_OUTPUT_DIR"], "model.txt"), "w") as file:
    file.write("weights")
"""


@pytest.fixture
def empty(shell):
    (shell.project / "tasks.py").unlink()
    shell.environment |= {"BROWSER": "true", "INVOKE_OPENPAI_CPU": "1"}
    return shell


def ok(shell, *words):
    ran = shell.pai(*words)
    assert ran.code == 0 and "Traceback" not in ran.err, (words, ran)
    return ran


def test_first_hour(empty):
    assert "pai config.init     init " in ok(empty).out
    wrong = empty.pai("job.delete", "t1")
    assert wrong.code == 120 and "did you mean job.stop?" in wrong.err

    ok(empty, "init", "--image", "python:3.12-slim")
    written = {"invoke.yaml", "tasks.py", "fabfile.py", ".paiignore"}
    assert {path.name for path in empty.project.iterdir()} == written
    assert "python:3.12-slim" in ok(empty, "config.show").out
    assert empty.inv("config.show").out == empty.pai("config.show").out
    states = {row["check"]: row["state"] for row in ok(empty, "doctor", "-o", "json").json()}
    assert states["cluster"] == states["storage"] == "ok" and "fail" not in states.values()

    (empty.project / "train.py").write_text(TRAIN)
    plan = ok(empty, "run", "python3 train.py", "--sources", ".", "--preview", "-o", "table").out
    assert "python3 train.py" in plan and "python:3.12-slim" in plan and "virtual cluster default" in plan
    followed = ok(empty, "run", "python3 train.py", "--sources", ".", "-j", "first", "--follow")
    assert "step 1" in followed.out and "✓ first succeeded in " in followed.err.splitlines()[-1]
    assert followed.err.endswith(" · pai job.outputs first\n")
    hinted = empty.pai("job.submit", "echo x")
    assert hinted.code and "job.sub" in hinted.err
    [job] = ok(empty, "job.list", "-o", "json").json()
    assert (job["name"], job["state"]) == ("first", "SUCCEEDED")
    assert "step 1" in ok(empty, "job.logs", "first").out
    ok(empty, "job.outputs", "first", "--to", "results")
    assert (empty.project / "results" / "model.txt").read_text() == "weights"

    (empty.project / "boom.py").write_text("print('begin')\n1 / 0\n")
    failed = empty.pai("run", "python3 boom.py", "--sources", "boom.py", "-j", "boom", "--follow")
    cause = "ZeroDivisionError: division by zero (boom.py, line 2)"
    assert failed.code and cause in failed.err.splitlines()[-1] and "pai job.why boom" in failed.err
    assert ok(empty, "why", "boom").out.startswith(f"boom failed: {cause}\n")
    assert cause in ok(empty, "ls").out
    assert "succeeded in" in ok(empty, "why", "first").out.splitlines()[0]
    assert "job.sub" in ok(empty, "help", "sweeps").out and "--echo" in ok(empty, "help", "invoke").out
    fits = ok(empty, "cluster.resources", "--fits", "-i", "python:3", "-o", "json").json()
    assert [(row["cluster"], row["fits"]) for row in fits] == [("local", "fits now")]
    assert ok(empty, "container.list", "-o", "json").json() == []

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")])
    nbformat.write(notebook, empty.project / "look.ipynb")
    ok(empty, "notebook", "look.ipynb", "--to", "ipynb")
    assert any("42" in path.read_text() for path in empty.project.glob("look*.ipynb"))

    ok(empty, "sub", "-j", "long", "sleep", "600")
    ok(empty, "job.stop", "long")
    assert ok(empty, "list-jobs", "long", "-o", "json").json()["state"] in ("STOPPING", "STOPPED")
    assert "local (OpenPAI" in ok(empty, "doctor").out
    assert (empty.project / ".openpai" / ".gitignore").read_text() == "*\n"
    ok(empty, "cluster.stop")


def test_init_asks_for_the_image_and_the_cluster_on_a_terminal(empty):
    ok(empty, "cluster.add", "lab", "http://127.0.0.1:1", "--user", "ann", "--no-check")
    code, shown = answered(empty, b"lab/mine:1\nlab\n", "init")
    assert code == 0 and "image of jobs [python:3]: " in shown and "cluster (local, lab) [local]: " in shown
    written = yaml.safe_load((empty.project / "invoke.yaml").read_text())
    assert written == {"openpai": {"image": "lab/mine:1", "cluster-alias": "lab"}}
    code, shown = answered(empty, b"", "init", "other", "--yes")
    assert code == 0 and "[" not in shown


def test_init_keeps_what_exists_and_follows_no_link(empty):
    (empty.project / "tasks.py").write_text("# mine\n")
    (empty.project / ".paiignore").symlink_to(empty.project / "elsewhere")
    rows = ok(empty, "init", "-o", "json").json()
    results = {row["file"]: row["result"].partition(":")[0] for row in rows}
    kept, written = ("tasks.py", ".paiignore"), ("invoke.yaml", "fabfile.py")
    assert results == dict.fromkeys(kept, "kept") | dict.fromkeys(written, "written")
    assert "from tasks import" not in (empty.project / "fabfile.py").read_text()  # it has no namespace
    assert (empty.project / "tasks.py").read_text() == "# mine\n" and not (
        empty.project / "elsewhere"
    ).exists()
    assert stat.S_IMODE((empty.project / "invoke.yaml").stat().st_mode) == 0o644


def test_init_leaves_no_part_of_a_file_if_the_disk_is_full(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(PathError, match=r"cannot write .*/\.paiignore: File too large"):
            write_project(tmp_path, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_init_keeps_settings_in_another_format(empty):
    (empty.project / "invoke.json").write_text('{"openpai": {"cpu": 1}}')
    written = {row["file"] for row in ok(empty, "init", "-o", "json").json()}
    assert written == {"tasks.py", "fabfile.py", ".paiignore"}


def test_init_makes_a_folder_that_inv_can_use(empty):
    ok(empty, "init", "new/project", "--image", "lab/train:1")
    ran = empty.run("sh", "-c", "cd new/project && inv config.show -o json")
    rows = {row["name"]: row["value"] for row in ran.json()}
    assert rows["image"] == "lab/train:1"


@pytest.mark.parametrize(
    "words, error",
    [
        (["--image", "-x y"], "--image needs a name such as lab/train:1"),
        (["--cluster-alias", "nowhere"], "no cluster named 'nowhere' (known: local)"),
    ],
)
def test_init_with_wrong_values_writes_nothing(empty, words, error):
    ran = empty.pai("init", *words)
    assert ran.code == 120 and error in ran.err and ran.err.count("\n") == 1
    assert not list(empty.project.iterdir())


def test_doctor_names_what_is_broken_with_a_command_to_paste(empty):
    ok(empty, "cluster.add", "lab", "http://127.0.0.1:1", "--user", "ann", "--no-check")
    empty.environment["INVOKE_OPENPAI_CLUSTER_ALIAS"] = "lab"
    ran = empty.pai("doctor", "-o", "json")
    rows = {row["check"]: row for row in ran.json()}
    assert ran.code == 120 and ran.err == "error: broken: cluster\n"
    assert rows["cluster"]["state"] == "fail" and rows["cluster"]["command"]
    assert rows["storage"]["state"] == "warn"
    assert "fail  cluster" in empty.pai("doctor").out


def test_doctor_reports_an_unknown_cluster_an_invalid_image_and_a_missing_engine(empty):
    variables = {"CLUSTER_ALIAS": "gone", "IMAGE": "No Image", "LOCAL_ENGINE": "docker"}
    empty.environment |= {f"INVOKE_OPENPAI_{name}": value for name, value in variables.items()}
    empty.environment["PATH"] = os.path.dirname(empty.environment["PATH"].partition(os.pathsep)[0] + "/pai")
    rows = {row["check"]: row for row in empty.pai("doctor", "-o", "json").json()}
    assert rows["cluster"]["command"] == "pai cluster.add gone ADDRESS --user NAME"
    assert rows["image"]["command"] == "pai config.set image=python:3"
    assert (rows["engine"]["state"], rows["engine"]["about"]) == ("warn", "docker is not installed")
    assert rows["engine"]["command"] == "pai config.set local.engine=process"
    assert rows["ssh"]["state"] == "warn"


def test_doctor_reports_a_home_that_others_can_read_and_settings_that_need_trust(empty):
    empty.home.mkdir(mode=0o755)
    empty.home.chmod(0o755)
    (empty.project / "invoke.yaml").write_text("openpai:\n  editor: evil\n")
    ran = empty.pai("doctor", "-o", "json")
    rows = {row["check"]: row for row in ran.json()}
    assert ran.code == 0
    assert rows["home"] == rows["home"] | {"state": "warn", "command": f"chmod go-rwx {empty.home}"}
    assert rows["settings"] == rows["settings"] | {"state": "warn", "command": "pai config.trust"}


def test_doctor_reports_a_home_that_cannot_be_created(empty):
    ran = empty.pai("doctor", "-o", "json", OPENPAI_HOME="/dev/null/home")
    rows = {row["check"]: row for row in ran.json()}
    assert ran.code == 120 and rows["home"]["state"] == "fail"
    assert rows["home"]["about"] == "/dev/null/home cannot be created: /dev/null cannot be written"


def test_doctor_starts_nothing(empty):
    ok(empty, "doctor")
    assert not (empty.home / "local" / "server.json").exists()


def test_quiet_prints_results_and_errors_alone(empty):
    ran = ok(empty, "-q", "job.sub", "echo hello", "--follow", "-j", "one")
    assert (ran.out, ran.err) == ("hello\n", "")
    ran = ok(empty, "job.stop", "one", "-q", "-o", "json")
    assert ran.err == "" and json.loads(ran.out)
    ran = empty.pai("-q", "job.status", "nothing")
    assert ran.code == 122 and ran.err.startswith("error: ")


@pytest.mark.parametrize("program", ["pai", "inv", "fab"])
def test_verbose_prints_requests_without_secrets(empty, program):
    ok(empty, "init")
    ok(empty, "cluster.start")
    access = ok(empty, "cluster.credentials", "-o", "json").json()
    (empty.home / "local" / "token").unlink(missing_ok=True)
    ran = empty.run(program, "-v", "job.list")
    assert ran.code == 0, ran
    assert f"GET {access['rest_server_uri']}/api/v2/jobs?" in ran.err and "-> 200" in ran.err
    assert access["token"] not in ran.err and access["password"] not in ran.err
    assert "GET" not in empty.run(program, "job.list").err


def test_all_programs_have_the_same_settings(empty):
    ok(empty, "init", "--image", "lab/one:1")
    ok(empty, "config.set", "-g", "gpu=1")
    ok(empty, "set", "cpu=3")
    shown = {empty.run(program, "config.show", "-o", "json").out for program in ("pai", "inv", "fab")}
    assert len(shown) == 1
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(shown.pop())}
    assert rows["image"] == ("lab/one:1", str(empty.project / "invoke.yaml"))
    assert "config.show" in empty.run("fab", "--list").out


def test_fab_still_reads_its_own_file_on_top(empty):
    ok(empty, "init")
    (empty.project / "fabric.yaml").write_text("openpai:\n  gpu: 2\n")
    rows = {row["name"]: row["value"] for row in empty.run("fab", "config.show", "-o", "json").json()}
    assert (rows["gpu"], rows["image"]) == (2, "python:3")


def test_fab_needs_trust_for_far_settings_of_invoke_yaml_too(empty):
    ok(empty, "init")
    (empty.project / "invoke.yaml").write_text("openpai:\n  editor: evil\n")
    ran = empty.run("fab", "cluster.edit")
    assert ran.code == 120 and "this needs a trusted folder" in ran.err
