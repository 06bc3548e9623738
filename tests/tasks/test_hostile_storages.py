"""A cluster that declares files of the user as its storage: no command touches them."""

from __future__ import annotations

import pytest

from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import NewCluster
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from tests.properties.answers import V2, OddCluster
from tests.scripted import Reply


@pytest.fixture
def lab(project, monkeypatch):
    """Make the cluster report a storage; return the user's folder that must stay unchanged."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    server = OddCluster("1.8")
    new = NewCluster("lab", server.uri, "ann", Credentials(password="secret"))
    known.add(Settings(), new, True, known.cannot_ask, lambda line: None)
    mine = project.folder.parent / "mine"
    mine.mkdir()
    (mine / "diary").write_text("private")
    project.write("new/file", "of the project")

    def report(kind, **data):
        storage = {"name": "team", "share": True, "type": kind, "data": data, "readOnly": False}
        server.instead = {f"GET {V2}/storages/team": Reply(storage)}
        return mine

    yield report
    server.close()


COMMANDS = (
    "storage.copy new pai://lab/team/",
    "storage.copy pai://lab/team/diary stolen",
    "storage.sync --delete new pai://lab/team/",
    "storage.rm --yes pai://lab/team/diary",
    "storage.cat pai://lab/team/diary",
    "storage.ls pai://lab/team/",
    "storage.select team -a lab --workspace w",
)


def assert_untouched(project, mine, line, says):
    ran = project.pai(*line.split())
    assert ran.code in (120, 123) and says in ran.err and len(ran.err.splitlines()) == 1, ran
    assert ran.out == "" and [path.name for path in mine.iterdir()] == ["diary"]
    assert (mine / "diary").read_text() == "private" and not (project.folder / "stolen").exists()


@pytest.mark.parametrize("line", COMMANDS)
def test_remote_cluster_cannot_declare_a_local_folder_as_storage(project, lab, line):
    mine = lab("local", path=str(project.folder.parent / "mine"))
    assert_untouched(project, mine, line, "a folder of this machine: refused")


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("path", ["/exports/../mine", "/exports/link"])
def test_path_of_a_remote_cluster_cannot_escape_a_mount(project, lab, line, path):
    mount = project.folder.parent / "mount"
    mount.mkdir()
    (mount / "link").symlink_to(project.folder.parent / "mine")
    assert project.pai("config.set", f"storage.mounts=nas:/exports={mount}", "--is-global").code == 0
    assert_untouched(project, lab("nfs", server="nas", path=path), line, "refused")


def test_job_output_is_not_read_from_a_local_folder_of_a_remote_cluster(project, lab):
    mine = lab("local", path=str(project.folder.parent / "mine"))
    assert_untouched(project, mine, "job.outputs ann~train -a lab --to stolen", "refused")


def test_refused_storage_is_listed_and_a_storage_added_by_the_user_works(project, lab):
    mine = lab("local", path=str(project.folder.parent / "mine"))
    assert "team" in project.pai("storage.list", "-a", "lab").out
    added = project.pai("storage.add", "own", "--type", "local", "--path", str(mine), "-a", "lab")
    assert added.code == 0, added
    assert project.pai("storage.cat", "pai://lab/own/diary").code == 0
