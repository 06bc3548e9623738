"""Records of submissions, and resubmitting: whole commands on a real embedded cluster."""

import json
import os
import pty
import stat

import pytest
import yaml

from tests.conftest import PROJECT_TASKS, Shell
from tests.notebook_files import write


def submit(shell, command, *flags, **environment):
    return shell.ok("job.sub", command, *flags, "-o", "json", **environment).json()[0]["name"]


def run(shell, command, name, *flags):
    """Submit a job and wait for it in one command."""
    shell.inv("job.sub", command, "-j", name, "--follow", *flags)
    return name


def document(shell, name):
    return yaml.safe_load(shell.ok("job.config", name).out)


def record(shell, name):
    return json.loads((shell.project / ".openpai" / "jobs" / name / "record.json").read_text())


def git(shell, *words):
    identity = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    names = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    ran = shell.run("git", *words, **identity, **names)
    assert ran.code == 0, ran
    return ran.out.strip()


def storage(shell):
    [folder] = (shell.home / "local" / "storage" / "home").iterdir()
    return folder


@pytest.fixture
def other(cluster, tmp_path):
    """Another project of the same user."""
    (tmp_path / "tasks.py").write_text(PROJECT_TASKS)
    return Shell(tmp_path, cluster.home)


# Records


def test_a_submission_is_recorded_privately_and_stamped_with_its_origin(other):
    shell = other
    git(shell, "init", "-q")
    (shell.project / "train.py").write_text("print('one')\n")
    git(shell, "add", ".")
    git(shell, "commit", "-qm", "first")
    commit = git(shell, "rev-parse", "HEAD")
    name = submit(shell, "python3 train.py", "--sources", "train.py", "--memoryMB", "64")
    kept = record(shell, name)
    assert (kept["command"], kept["commit"], kept["dirty"]) == ("python3 train.py", commit, False)
    assert (kept["cluster"], kept["sources"]) == ("local", ["train.py"])
    assert kept["source_hash"].startswith("sha256:") and list(kept["files"]) == ["train.py"]
    assert yaml.safe_load(kept["document"]) == document(shell, name)
    path = shell.project / ".openpai" / "jobs" / name / "record.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    origin = document(shell, name)["extras"]["openpaiTasks"]
    assert (origin["commit"], origin["sourceHash"]) == (commit, kept["source_hash"])
    assert "dirty" not in origin and str(shell.project) not in json.dumps(origin)

    again = submit(shell, "python3 train.py", "--sources", "train.py")
    assert record(shell, again)["dirty"] is False  # our own records do not count as a change
    assert record(shell, again)["source_hash"] == kept["source_hash"]
    (shell.project / "train.py").write_text("print('two')\n")
    changed = submit(shell, "python3 train.py", "--sources", "train.py")
    assert record(shell, changed)["dirty"] is True
    assert record(shell, changed)["source_hash"] != kept["source_hash"]
    assert document(shell, changed)["extras"]["openpaiTasks"]["dirty"] is True


def test_unwritable_record_folder_does_not_undo_the_submission(cluster):
    blocked = cluster.project / "blocked"
    blocked.mkdir()
    (blocked / ".openpai").mkdir()
    (blocked / ".openpai" / "jobs").write_text("a file where the folder would be")
    ran = cluster.run("sh", "-c", "cd blocked && pai job.sub true -j unrecorded -o json")
    assert ran.code == 0 and "cannot be recorded" in ran.err
    assert cluster.ok("job.status", "unrecorded", "-o", "json").json()["name"] == "unrecorded"


# Resubmitting


def test_a_clone_runs_the_same_files_under_a_new_name(cluster):
    (cluster.project / "say.py").write_text("print('from the sources')\n")
    first = run(cluster, "python3 say.py", "original", "--sources", "say.py")
    (cluster.project / "say.py").write_text("print('changed since')\n")
    ran = cluster.ok("job.resubmit", first, "-j", "second", "--follow")
    assert ran.out == "from the sources\n"
    before, after = document(cluster, first), document(cluster, "second")
    assert after["extras"]["openpaiTasks"]["clonedFrom"] == "original"
    assert after["extras"]["openpaiTasks"]["sourceFolder"] == "jobs/second/source"
    assert after["taskRoles"] == before["taskRoles"]
    third = cluster.ok("job.resubmit", "second", "-o", "json").json()[0]["name"]
    assert third.startswith("original-")


def test_clone_can_be_changed(cluster):
    first = submit(cluster, "echo $PAI_VIRTUAL_CLUSTER", "-j", "to-change", "--memoryMB", "64")
    update = "taskRoles.main.commands[0]=echo changed"
    ran = cluster.ok(
        "job.resubmit", first, "-j", "with-changes", "-u", update, "-u", "jobRetryCount=2", "--gpu", "3"
    )
    assert "with-changes" in ran.out
    found = document(cluster, "with-changes")
    assert found["jobRetryCount"] == 2
    assert found["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 3
    cluster.ok("job.stop", "with-changes")
    bad = cluster.inv("job.resubmit", first, "-u", "taskRoles.main.commands.x=1")
    assert bad.code == 120 and "list" in bad.err


LIMITS = ("--max-time", "2m", "--requeue-on-timeout", "3", "--grace", "20s", "--keep-failed", "30m")


def test_clone_can_have_the_limits_that_job_sub_gives(cluster):
    command = "echo '<% it''s %>'"
    submit(cluster, command, "-j", "unlimited", "--max-time", "1h")

    def preview(*words):
        found = yaml.safe_load(cluster.ok(*words, "--preview", "-o", "yaml").out)
        plugins = found["extras"].get("com.microsoft.pai.runtimeplugin")
        return found["taskRoles"], found["extras"].get("jobPolicy"), plugins

    again = ("job.resubmit", "unlimited", "--gpu", "1")
    expected = preview("job.sub", command, "--gpu", "1", *LIMITS, "--idle-stop", "1h")
    assert preview(*again, *LIMITS, "--idle-stop", "1h") == expected
    expected = preview("job.sub", command, "--gpu", "1", "--max-time", "1h", "--requeue-on-timeout", "1")
    assert preview(*again, "--requeue-on-timeout", "1") == expected  # its limit stays


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--requeue-on-timeout", "1"), "--requeue-on-timeout needs a time limit: add --max-time"),
        (("--max-time", "5m", "--grace", "1m"), "--grace needs --requeue-on-timeout"),
        (("--requeue-on-timeout", "0"), "--requeue-on-timeout must be >= 1"),
        (("--idle-stop", "1h"), "--idle-stop needs a job with GPUs: add --gpu"),
        (("--exact", "--max-time", "5m"), "--exact repeats the job as it was"),
    ],
)
def test_limits_that_do_not_fit_the_job_are_refused(cluster, plain_job, flags, words):
    ran = cluster.inv("job.resubmit", plain_job, "--preview", *flags)
    assert ran.code == 120 and words in ran.err


def test_time_limit_is_refused_for_commands_with_holes(cluster, plain_job):
    hole = ("-u", "parameters.word=it's", "-u", "taskRoles.main.commands=[echo <% $parameters.word %>]")
    ran = cluster.inv("job.resubmit", plain_job, "--preview", "--max-time", "5m", *hole)
    assert ran.code == 120 and "--max-time cannot limit commands that contain <%" in ran.err


@pytest.fixture(scope="module")
def plain_job(cluster):
    return submit(cluster, "true", "-j", "no-limits")


def test_gpu_flag_is_refused_for_several_roles_without_gpus(cluster):
    submit(cluster, "true", "-j", "two-roles", "--role", "a:", "--role", "b:", "--memoryMB", "64")
    ran = cluster.inv("job.resubmit", "two-roles", "--gpu", "1", "--preview")
    assert ran.code == 120 and "taskRoles.a.resourcePerInstance.gpu=1" in ran.err


def test_a_preview_of_a_clone_sends_nothing(cluster):
    first = submit(cluster, "true", "-j", "looked-at")
    before = len(cluster.ok("job.list", "-o", "json").json())
    again = ("job.resubmit", first, "-j", "never-sent")
    for words in ((*again, "--preview"), ("--dry", *again)):
        assert yaml.safe_load(cluster.ok(*words).out)["name"] == "never-sent"
    assert len(cluster.ok("job.list", "-o", "json").json()) == before


SECRET = """\
protocolVersion: 2
name: with-secret
type: job
prerequisites: [{name: img, type: dockerimage, uri: "python:3"}]
secrets: {word: opensesame}
taskRoles:
  main:
    instances: 1
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: ["echo the word is <% $secrets.word %>"]
"""


@pytest.fixture
def secret_job(cluster):
    if not (cluster.project / "secret.yaml").exists():
        (cluster.project / "secret.yaml").write_text(SECRET)
        cluster.ok("job.submit", "secret.yaml")
    return "with-secret"


def test_secrets_are_not_in_the_record_and_are_asked_for_again(cluster, secret_job):
    folder = cluster.project / ".openpai" / "jobs" / secret_job
    assert "opensesame" not in "".join(path.read_text() for path in folder.iterdir())
    assert record(cluster, secret_job)["secrets"] == ["word"]
    for flags in ((), ("--exact",)):
        alone = cluster.inv("job.resubmit", secret_job, *flags, word="of the environment")
        assert alone.code == 120 and "'word'" in alone.err and "`--secret word` takes it" in alone.err
        ran = cluster.ok("job.resubmit", secret_job, "--follow", "--secret", "word", *flags, word="swordfish")
        assert ran.out == "the word is swordfish\n"


def test_job_from_a_file_reports_that_it_has_no_output_folder(cluster, secret_job):
    ran = cluster.inv("job.outputs", secret_job)
    assert ran.code == 120 and "no output folder" in ran.err


def test_secrets_are_asked_for_on_the_terminal_without_echo(cluster, secret_job):
    master, terminal = pty.openpty()
    words = ("job.resubmit", secret_job, "--follow")
    controlled = {"has_controlling_terminal": True}  # getpass asks there
    process = cluster.start("inv", *words, stdin=terminal, stderr=terminal, **controlled)
    os.close(terminal)
    seen = b""
    while b"secret word:" not in seen:
        seen += os.read(master, 1000)
    os.write(master, b"typed in\n")
    assert process.stdout.read() == "the word is typed in\n"
    assert process.wait(60) == 0
    os.close(master)
    assert b"typed in" not in seen


def test_secret_may_have_special_characters_when_resubmitted(cluster):
    submit(cluster, 'printf "%s" "$KEY"', "--secret", "KEY", "-j", "generated", KEY="plain")
    odd = "a'b\"c&d <e>\\n%s"
    assert cluster.ok("job.resubmit", "generated", "--follow", KEY=odd).out == odd


def test_only_secrets_that_the_user_chose_for_that_very_job_come_from_the_environment(other):
    variables = {"KEY": "mine", "AWS_SECRET_ACCESS_KEY": "stolen"}
    submit(other, "true", "--secret", "KEY", "-j", "chosen", **variables)
    for flags in ((), ("--exact",)):
        assert "export KEY=" in other.ok("job.resubmit", "chosen", "--preview", *flags, **variables).out
    path = other.project / ".openpai" / "jobs" / "chosen" / "record.json"
    text = path.read_text()
    for forged in (
        text.replace("KEY", "AWS_SECRET_ACCESS_KEY"),
        text.replace('"command": "true"', '"command": "env"'),
    ):
        assert forged != text
        path.write_text(forged)
        ran = other.inv("job.resubmit", "chosen", "--exact", **variables)
        assert ran.code == 120 and "no terminal to ask on; `--secret " in ran.err, ran
    path.write_text(text.replace('"secrets": [', '"secrets": ["AWS_SECRET_ACCESS_KEY",'))
    ran = other.inv("job.resubmit", "chosen", **variables)  # the document is the cluster's
    assert ran.code == 120 and "`--secret AWS_SECRET_ACCESS_KEY`" in ran.err


def test_exact_repeats_the_recorded_files_from_the_storage(cluster):
    (cluster.project / "exact.py").write_text("print('as it was')\n")
    name = run(cluster, "python3 exact.py", "exactly", "--sources", "exact.py")
    (cluster.project / "exact.py").write_text("print('changed since')\n")
    ran = cluster.ok("job.resubmit", name, "--exact", "--follow", "-j", "exactly-2")
    assert ran.out == "as it was\n"
    assert "repeats job exactly of local" in ran.err and "1 file " in ran.err
    assert record(cluster, "exactly-2")["source_hash"] == record(cluster, name)["source_hash"]
    assert cluster.ok("job.resubmit", "exactly-2", "--exact", "--follow").out == "as it was\n"


def test_exact_reports_what_cannot_be_repeated(other):
    shell = other
    git(shell, "init", "-q")
    code = shell.project / "code.py"
    code.write_text("print(1)\n")
    git(shell, "add", ".")
    git(shell, "commit", "-qm", "first")
    commit = git(shell, "rev-parse", "--short=12", "HEAD")
    clean = run(shell, "python3 code.py", "clean", "--sources", "code.py")
    code.write_text("print(2)\n")
    dirty = run(shell, "python3 code.py", "dirty", "--sources", "code.py")
    assert "uncommitted changes" in shell.ok("job.resubmit", dirty, "--exact", "--follow").err
    for name in (clean, dirty):  # the storage is cleaned up
        (storage(shell) / record(shell, name)["archive"]).unlink()
    assert shell.ok("job.resubmit", dirty, "--exact", "--follow").out == "2\n"  # the files here are the same
    (storage(shell) / record(shell, dirty)["archive"]).unlink()  # it was sent again
    code.write_text("print(3)\n")
    ran = shell.inv("job.resubmit", clean, "--exact")
    assert ran.code == 120 and "code.py" in ran.err and f"git checkout {commit}" in ran.err
    ran = shell.inv("job.resubmit", dirty, "--exact")
    assert ran.code == 120 and "uncommitted changes" in ran.err and "cannot restore them" in ran.err
    git(shell, "checkout", "-q", "--", "code.py")
    assert shell.ok("job.resubmit", clean, "--exact", "--follow").out == "1\n"


def test_what_is_left_out_of_the_sources_is_named_again(other):
    folder = other.project / "src"
    folder.mkdir()
    (folder / "code.py").write_text("print(1)\n")
    (folder / "broken").symlink_to("nowhere")
    name = run(other, "python3 src/code.py", "partly", "--sources", "src")
    (storage(other) / record(other, name)["archive"]).unlink()
    ran = other.ok("job.resubmit", name, "--exact", "--follow")
    assert ran.out == "1\n" and "warning: left out of the sources: src/broken (" in ran.err
    write(other.project / "some.ipynb", "print(1)")
    other.ok("notebook.run", "some.ipynb", "--sources", "src", "--detach")
    ran = other.ok("notebook.resubmit", "some.ipynb", "--preview")
    assert "warning: left out of the sources: src/broken (" in ran.err


def test_exact_needs_a_record_and_takes_no_changes(cluster):
    name = submit(cluster, "true", "-j", "unchangeable")
    ran = cluster.inv("job.resubmit", name, "--exact", "--gpu", "1")
    assert ran.code == 120 and "--exact" in ran.err
    ran = cluster.inv("job.resubmit", "../../x", "--exact")
    assert ran.code == 120 and "record" in ran.err


def test_a_job_moves_to_another_cluster_with_its_files(cluster, twin):
    (cluster.project / "moved.py").write_text("print('moved')\n")
    name = submit(cluster, "python3 moved.py", "--sources", "moved.py", "-j", "stays")
    ran = cluster.ok("job.resubmit", name, "-j", "goes", "--to", twin, "--follow")
    assert ran.out == "moved\n" and "submitted to twin" in ran.err
    assert record(cluster, "goes")["cluster"] == "twin"
