"""Copying files from the command line to a Samba storage of an OpenPAI cluster, and back."""

from __future__ import annotations

import subprocess

import pytest

from tests.sdk.pai_server import PASSWORD, USER, PaiServer
from tests.storage import samba_server

DOCS = "pai://lab/docs"


class Cluster(PaiServer):
    """An OpenPAI 1.8 with one storage, which is a share of a real Samba."""

    def __init__(self, port):
        self._port = port
        super().__init__()

    def guarded_routes(self):
        data = {
            "address": f"//127.0.0.1:{self._port}/data",
            "username": samba_server.USER,
            "password": samba_server.PASSWORD,
        }
        detail = {"name": "docs", "share": True, "volumeName": "docs", "type": "samba", "data": data}
        return {
            **super().guarded_routes(),
            ("GET", "/v2/storages"): (200, {"storages": [detail]}),
            ("GET", "/v2/storages/docs"): (200, detail),
        }


@pytest.fixture
def samba():
    if reason := samba_server.missing():
        pytest.skip(f"no Samba: {reason}")
    samba = samba_server.Samba().start()
    yield samba
    samba.stop()


@pytest.fixture
def server(samba):
    server = Cluster(samba.port)
    yield server
    server.close()


@pytest.fixture
def lab(shell, samba, server):
    """A shell that knows the cluster, with files to send."""
    shell.ok("cluster.add", "lab", server.uri, "--user", USER, OPENPAI_PASSWORD=PASSWORD)
    (shell.project / "data" / "sub" / "empty").mkdir(parents=True)
    (shell.project / "data" / "a.txt").write_text("1\n2\n3\n")
    (shell.project / "data" / "sub" / "odd #%?\né.").write_text("odd")
    return shell, samba


def test_folder_is_copied_to_a_samba_storage_and_back(lab):
    shell, samba = lab
    sent = shell.ok("storage.copy", "data", f"{DOCS}/", "-o", "json").json()
    assert (sent["files"], sent["bytes"], sent["skipped"], sent["failed"]) == (2, 9, 0, [])
    assert (samba.data / "data" / "a.txt").read_text() == "1\n2\n3\n"
    assert shell.ok("storage.sync", "data", f"{DOCS}/data", "-o", "json").json()["skipped"] == 2
    shell.ok("storage.cp", f"{DOCS}/data", "out")
    assert subprocess.run(["diff", "-r", "data", "out"], cwd=shell.project).returncode == 0
    assert shell.ok("storage.cat", f"{DOCS}/data/a.txt").out == "1\n2\n3\n"
    shell.ok("storage.rm", "-r", "--yes", f"{DOCS}/data")
    assert list(samba.data.iterdir()) == []


def test_errors_of_samba_do_not_show_the_password(lab):
    shell, samba = lab
    (shell.project / "data" / "aux.c").write_text("")
    ran = shell.inv("storage.copy", "data", f"{DOCS}/")
    assert ran.code == 123 and "for a device" in ran.out + ran.err
    samba.kill()
    gone = shell.inv("--debug", "storage.ls", f"{DOCS}/data")
    assert gone.code == 121
    line = gone.err.splitlines()[-1]
    assert line.startswith(f"error: no SMB server answers at 127.0.0.1:{samba.port}")
    assert samba_server.PASSWORD not in ran.out + ran.err + gone.out + gone.err
