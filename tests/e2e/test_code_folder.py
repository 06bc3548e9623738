"""The codeDir of version 1, which OpenPAI 0.14 downloads into the working folder."""

import json

import pytest


def submit(cluster, name, code, command="cat code/train.sh; sh code/train.sh"):
    role = {"name": "main", "command": command}
    job = {"jobName": name, "image": "python:3", "codeDir": code, "taskRoles": [role]}
    (cluster.project / f"{name}.json").write_text(json.dumps(job))
    return cluster.inv("job.submit", f"{name}.json", "-f")


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "my code" / "code"
    folder.mkdir(parents=True)
    (folder / "train.sh").write_text('echo "$PAI_CODE_DIR"\n')
    return folder


def test_a_folder_of_this_machine_is_copied_under_its_name(cluster, code):
    ran = submit(cluster, "here", f"{code}/")
    assert (ran.code, ran.out) == (0, f'echo "$PAI_CODE_DIR"\n{code}/\n'), ran


def test_the_default_file_system_is_the_storage_of_the_user(cluster, code):
    cluster.ok("storage.copy", str(code), "pai://local/home/ann/code")
    ran = submit(cluster, "stored", "$PAI_DEFAULT_FS_URI/ann/code")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "/ann/code"), ran


def test_a_missing_folder_fails_the_job_before_its_command(cluster):
    ran = submit(cluster, "missing", "/no/such/folder", "echo ran")
    assert ran.code == 1 and "ran\n" not in ran.out
    words = "error: cannot get the codeDir /no/such/folder: no such folder in your storage or on this machine"
    assert words in ran.out, ran


def test_a_server_of_version_1_downloads_it_too(shell, code):
    shell.environment["INVOKE_OPENPAI_LOCAL_PROFILE"] = "0.14"
    ran = submit(shell, "old", str(code))
    assert (ran.code, ran.out.splitlines()[-1]) == (0, str(code)), ran
