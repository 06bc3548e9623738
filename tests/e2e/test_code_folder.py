"""The codeDir of version 1, which OpenPAI 0.14 downloads into the working folder."""

import json
import os
import pwd
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from openpai_tasks.protocol import dump, to_v2, validate
from openpai_tasks.server.api.submission import notices
from openpai_tasks.server.engines.process import ProcessEngine

WARNING = "the codeDir is not at /pai/code here: write ${PAI_MOUNT_ROOT-}/pai/code, which works"


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
    command = 'cat code/train.sh; sh "${PAI_MOUNT_ROOT-}/pai/code/train.sh"'
    ran = submit(cluster, "here", f"{code}/", command)
    assert (ran.code, ran.out) == (0, f'echo "$PAI_CODE_DIR"\n{code}/\n'), ran
    assert "codeDir" not in ran.err


CAN_MOUNT = ["unshare", "--mount", *(["--user"] if os.geteuid() else []), "true"]


def test_a_process_finds_the_folder_where_old_guides_have_it(cluster, code):
    ran = submit(
        cluster, "guide", str(code), "cd /pai/code && sh train.sh; id -un; touch /pai/x 2>&- || echo kept"
    )
    user = pwd.getpwuid(os.geteuid()).pw_name
    if subprocess.run(CAN_MOUNT, check=False).returncode:
        assert WARNING in ran.err
    else:
        assert (ran.code, ran.out) == (0, f"{code}\n{user}\nkept\n"), ran
        assert "codeDir" not in ran.err.replace(
            "in a user namespace, so that its codeDir is at /pai/code", ""
        )
        assert ("namespace" in ran.err) == bool(os.geteuid()) and not os.path.exists("/pai/x")


def test_a_process_is_told_where_the_folder_is_if_it_cannot_have_its_own_root(tmp_path):
    role = {"name": "main", "command": "ls /pai/code"}
    job = {"jobName": "guide", "image": "python:3", "codeDir": "/code", "taskRoles": [role]}
    engine = ProcessEngine(tmp_path / "jobs")
    context = SimpleNamespace(engine=engine, storages={}, virtual_clusters={})
    assert not engine.can_link("/etc")  # exists
    shutil.rmtree(tmp_path / "jobs")  # where the root would be mounted
    found = [notice.message for notice in notices(context, validate(dump(to_v2(job))))]
    assert any(WARNING in line for line in found) and "namespace" not in str(found)
    engine.close()


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
