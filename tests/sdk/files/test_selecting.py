"""Selecting a storage, and adding user-defined storages: tested first, and only then saved."""

from __future__ import annotations

import stat

import pytest

from openpai_tasks.errors import ConfigError, Conflict, Denied, NotFound, PaiError, PathError
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import ClusterUpdate, NewCluster
from openpai_tasks.sdk.files import storages, user_storages
from openpai_tasks.settings import credentials
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage import kinds
from openpai_tasks.storage.location import locate
from tests.sdk.files.test_storages import StorageServer
from tests.sdk.pai_server import PASSWORD, USER

KEY = "a-key-nobody-shall-see"


def silent(line):
    """Ignore the message."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def server(home):
    """The cluster `lab`, whose storages are `team` (of each user), `blob` and `docs` (read-only)."""
    server = StorageServer()
    new = NewCluster("lab", server.uri, USER, Credentials(PASSWORD))
    known.add(Settings(), new, True, lambda prompt: "", silent)
    yield server
    if server.thread.is_alive():
        server.close()


@pytest.fixture
def lab(server, tmp_path):
    """Settings with the storages `team` and `docs` mounted."""
    for name in ("team", "docs", "mine"):
        (tmp_path / name).mkdir()
    return Settings(
        cluster_alias="lab", storage_mounts=(f"lab/team={tmp_path}/team", f"lab/docs={tmp_path}/docs")
    )


def kept(home):
    return (home / "clusters.yaml").read_text()


def add(settings, name, type, secret="", **fields):
    given = {"address": "", "path": "", "user": "", "options": (), "read_only": False, **fields}
    return storages.add_storage(
        settings, None, user_storages.parse_storage(name, type, **given), secret, silent
    )


def test_selected_workspace_is_created_saved_and_used(lab, home, tmp_path):
    chosen = storages.select_storage(lab, None, "team", "exp/one", silent)
    assert (chosen.workspace, chosen.url) == ("/exp/one", "pai://lab/team/exp/one")
    assert (tmp_path / "team" / USER / "exp" / "one").is_dir()
    assert "storage_name: team" in kept(home) and "workspace: /exp/one" in kept(home)
    assert locate("pai://lab/0/x", storages.ClusterStorages(lab)).url == "pai://lab/team/x"
    rows = {row.name: (row.selected, row.workspace) for row in storages.ClusterStorages(lab).rows("lab")}
    assert rows == {"team": (True, "/exp/one"), "blob": (False, ""), "docs": (False, "")}
    known.update(lab, "lab", ClusterUpdate(), lambda prompt: "", silent)
    assert known.open_registry(lab).get("lab").workspace == "/exp/one"


def test_workspace_on_a_shared_storage_is_below_the_users_folder(lab, tmp_path):
    add(lab, "mine", "local", path=str(tmp_path / "mine"))
    assert storages.select_storage(lab, "lab", "mine", "w", silent).workspace == f"/{USER}/w"
    assert (tmp_path / "mine" / USER / "w").is_dir()
    assert storages.select_storage(lab, None, "mine", f"/{USER}/w/x", silent).workspace == f"/{USER}/w/x"
    assert storages.select_storage(lab, None, "mine", "", silent).workspace == f"/{USER}"
    assert storages.select_storage(lab, None, "0", "y", silent).storage == "mine"


def test_read_only_storage_is_selected_without_a_workspace(lab):
    assert storages.select_storage(lab, None, "docs", "", silent).workspace == ""
    with pytest.raises(Denied, match="read-only for you"):
        storages.select_storage(lab, None, "docs", "w", silent)


@pytest.mark.parametrize(
    "storage, workspace, error",
    [
        ("none", "w", NotFound),
        ("blob", "w", PaiError),
        ("docs", "w", Denied),
        ("team", "../w", PathError),
        ("team", "a//b", PathError),
        ("team", "./w", PathError),
        ("team", "file", PathError),
        ("team", "file/w", PathError),
    ],
)
def test_failed_selection_changes_nothing(lab, home, tmp_path, storage, workspace, error):
    (tmp_path / "team" / USER).mkdir()
    (tmp_path / "team" / USER / "file").touch()
    before = kept(home)
    with pytest.raises(error):
        storages.select_storage(lab, None, storage, workspace, silent)
    assert kept(home) == before and [p.name for p in (tmp_path / "team" / USER).iterdir()] == ["file"]


def test_share_that_is_not_mounted_is_not_selected(lab, home, tmp_path):
    (tmp_path / "team").rmdir()
    with pytest.raises(ConfigError, match="is not a folder"):
        storages.select_storage(lab, None, "team", "w", silent)
    assert "storage_name" not in kept(home)


def test_user_defined_storage_is_listed_and_opened_without_the_cluster(lab, server, tmp_path):
    (tmp_path / "mine" / "a").write_bytes(b"a")
    row = add(lab, "mine", "local", path=str(tmp_path / "mine"), read_only=True)
    assert (row.origin, row.server, row.permission, row.mount_point) == (
        "own",
        str(tmp_path / "mine"),
        "ro",
        "",
    )
    book = storages.ClusterStorages(lab)
    assert [row.origin for row in book.rows("lab")] == ["cluster", "cluster", "cluster", "own"]
    assert book.storages("lab") == ("team", "blob", "docs", "mine")
    server.close()
    place = locate("pai://lab/mine/a", storages.ClusterStorages(lab))
    assert b"".join(place.store.read(place.path)) == b"a"
    with pytest.raises(Denied, match="read-only"):
        place.store.remove(place.path)


def test_storage_name_must_be_unique(lab, home, tmp_path):
    with pytest.raises(Conflict, match="'lab' grants a storage named 'team'; choose another name"):
        add(lab, "team", "local", path=str(tmp_path))
    add(lab, "mine", "local", path=str(tmp_path / "mine"))
    before = kept(home)
    with pytest.raises(Conflict, match=r"`pai storage\.forget mine` first"):
        add(lab, "mine", "local", path=str(tmp_path))
    assert kept(home) == before


@pytest.mark.parametrize(
    "type, given, error",
    [
        ("local", {"path": "/none/at/all"}, ConfigError),
        ("nfs", {"address": "nas", "path": "/x"}, ConfigError),
        ("nfs", {"address": "nas", "path": "/x", "options": ["mount=/none/at/all"]}, ConfigError),
        ("hdfs", {"address": "127.0.0.1:1"}, PaiError),
        ("samba", {"address": "//127.0.0.1:1/s", "user": "u"}, PaiError),
    ],
)
def test_unreachable_storage_is_not_saved(lab, home, type, given, error):
    before = kept(home)
    with pytest.raises(error):
        add(lab, "x", type, KEY, **given)
    assert kept(home) == before and KEY not in credentials.path().read_text()


def test_secret_is_stored_separately_and_removed_with_its_storage(lab, home, tmp_path):
    fields = {"address": "//nas/docs", "user": "bob", "options": [f"mount={tmp_path}/mine"]}
    add(lab, "share", "samba", KEY, **fields)
    assert KEY not in kept(home) and KEY in credentials.path().read_text()
    assert stat.S_IMODE(credentials.path().stat().st_mode) == 0o600
    place = storages.ClusterStorages(lab).place("lab", "share")
    assert place.data["password"] == KEY and KEY not in repr(place)
    assert KEY not in repr(storages.ClusterStorages(lab).rows("lab"))
    storages.forget_storages(lab, None, ["share"], silent)
    assert KEY not in credentials.path().read_text() and "nas/docs" not in kept(home)
    add(lab, "share", "samba", KEY, **fields)
    known.delete(lab, ["lab"])
    assert KEY not in credentials.path().read_text()


def test_forgotten_storage_is_no_longer_selected(lab, home, tmp_path):
    add(lab, "mine", "local", path=str(tmp_path / "mine"))
    storages.select_storage(lab, None, "mine", "w", silent)
    with pytest.raises(NotFound, match=r"no storage 'other' that `pai storage.add` added \(known: mine\)"):
        storages.forget_storages(lab, None, ["mine", "other"], silent)
    storages.forget_storages(lab, None, ["mine"], silent)
    found = known.open_registry(lab).get("lab")
    assert (found.storage, found.workspace, found.own_storages) == ("", "", ())
    assert (tmp_path / "mine" / USER / "w").is_dir()
    with pytest.raises(NotFound, match="no storage named 'mine'"):
        storages.ClusterStorages(lab).opened("lab", "mine")


def data(type, secret="", **fields):
    given = {"address": "", "path": "", "user": "", "options": (), "read_only": False, **fields}
    own = user_storages.parse_storage("x", type, **given)
    return user_storages.make_spec(Cluster("lab", "http://lab", "ann"), own, (), secret).data


@pytest.mark.parametrize(
    "made, expected",
    [
        (data("hdfs", address="a:1,b:2", path="x"), {"namenode": "a:1,b:2", "path": "/x"}),
        (data("hdfs", address="hdfs://a:1"), {"namenode": "a:1", "path": "/"}),
        (data("hdfs", address="https://pai/webhdfs"), {"webhdfs": "https://pai/webhdfs", "path": "/"}),
        (data("NFS", address="nas", path="/e"), {"server": "nas", "path": "/e"}),
        (
            data("samba", "p", address="//nas/s", path="d", user="u", options=["domain=D"]),
            {"address": "//nas/s", "rootPath": "/d", "username": "u", "password": "p", "domain": "D"},
        ),
        (data("samba", address=r"\\nas\s"), {"address": "//nas/s", "rootPath": ""}),
        (data("samba", address="nas", path="/s/d/e"), {"address": "//nas/s", "rootPath": "/d/e"}),
        (
            data("azurefile", "k", user="acc", path="/share/d"),
            {"accountName": "acc", "shareName": "share", "rootPath": "/d", "accountKey": "k"},
        ),
        (
            data("azureblob", "sv=1&sig=x", user="acc", path="c"),
            {"accountName": "acc", "containerName": "c", "path": "", "accountSASToken": "sv=1&sig=x"},
        ),
        (
            data("s3", "k", address="http://h:1", user="id", path="/b/p/q"),
            {
                "bucket": "b", "path": "/p/q", "endpoint": "http://h:1",
                "accessKeyId": "id", "secretAccessKey": "k",
            },
        ),
    ],
)  # fmt: skip
def test_every_storage_type_produces_the_data_of_its_store(made, expected):
    assert made == expected


@pytest.mark.parametrize(
    "type, given, words",
    [
        ("ftp", {}, "unknown storage type 'ftp'"),
        ("", {}, "give the type of the storage"),
        ("azureblub", {}, "did you mean 'azureblob'"),
        ("hdfs", {}, "needs --address"),
        ("local", {"path": "here"}, "absolute"),
        ("s3", {"path": "/b", "options": ["secretKey=x"]}, "do not put a secret on the command line"),
        (
            "samba",
            {"address": "//h/s", "options": ["servers_data:password=x"]},
            "do not put a secret on the command",
        ),
        (
            "samba",
            {"address": "//h/s", "options": ["domian=x"]},
            "unknown option of storages",
        ),
        ("samba", {"address": "//h/s", "options": ["domain"]}, "needs NAME=VALUE"),
        ("samba", {"address": "h"}, "must be //HOST/SHARE"),
        ("hdfs", {"address": "ftp://h"}, "must be HOST:PORT"),
        ("azureblob", {"user": "a", "path": "/c", "address": "https://a.host/?sv=1&sig=x"}, "leave it out"),
        ("azureblob", {"user": "a", "path": "/c?sv=1&sig=x"}, "leave it out"),
        ("s3", {"path": "/b", "address": "https://ann:a/b=x@host"}, "leave it out"),
        ("samba", {"address": "smb://dom;ann:p=x@host/share"}, "leave it out"),
        ("samba", {"address": "ann:p=x@host/share"}, "leave it out"),
    ],
)
def test_invalid_storage_is_a_one_line_error_without_its_secrets(type, given, words):
    with pytest.raises(ConfigError, match=words) as raised:
        data(type, **given)
    assert "\n" not in str(raised.value) and "=x" not in str(raised.value)


def test_values_that_only_resemble_a_secret_are_accepted():
    for fields in (
        {"address": "//ann@h/s"},
        {"address": "//h/s", "path": "/key=3/a:b@c"},
        {"address": "h:445/s"},
    ):
        data("samba", **fields)


@pytest.mark.parametrize("name", ["0", "", "a/b", "..", "-x", "a b"])
def test_storage_name_that_does_not_fit_into_a_url_is_refused(name):
    with pytest.raises(ConfigError, match="may have letters"):
        user_storages.parse_storage(name, "local", "", "/x", "", (), False)


def test_ca_path_is_stored_as_an_absolute_path(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").touch()
    monkeypatch.chdir(tmp_path)
    fields = ("x", "hdfs", "https://nn1:9871,https://nn2:9871", "", "", ["ca=ca.pem"], False)
    assert user_storages.parse_storage(*fields).option("ca") == str(tmp_path / "ca.pem")


def test_every_type_that_can_be_opened_can_be_added():
    assert {kind.name for kind in kinds.KINDS} - {"other", "pfs", "sftp"} == set(kinds.ADDABLE)
