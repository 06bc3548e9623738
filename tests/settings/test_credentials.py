"""Where passwords and tokens are stored, and that they appear nowhere else."""

import dataclasses
import json
import stat
import sys

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Credentials, Destination

LAB = Destination("lab", "https://lab/rest-server", "alice")
SECRET = Credentials("pass: word # '\"", "to.ke.n")

WORKING = """
import json, os
from keyring import errors
def _all():
    path = os.environ["RING"]
    return json.load(open(path)) if os.path.exists(path) else {}
def get_password(service, name):
    return _all().get(service + name)
def set_password(service, name, text):
    json.dump({**_all(), service + name: text}, open(os.environ["RING"], "w"))
def delete_password(service, name):
    left = _all(); del left[service + name]
    json.dump(left, open(os.environ["RING"], "w"))
"""
REFUSING = """
from keyring import errors
def get_password(*args): raise errors.KeyringError("no D-Bus")
set_password = delete_password = get_password
"""
CRASHING = """
from keyring import errors
def get_password(*args): raise RuntimeError("back end fell over")
set_password = delete_password = get_password
"""
FORGETFUL = """
from keyring import errors
def get_password(*args): return None
def set_password(*args): pass
"""
UNLOADABLE = "raise RuntimeError('cannot load the back end')"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RING", str(tmp_path / "ring.json"))
    return tmp_path / "home"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a `keyring` package with the given text in place of any that is installed."""

    def put(text):
        package = tmp_path / "site" / "keyring"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(text)
        (package / "errors.py").write_text("class KeyringError(Exception): pass")
        forget_modules()
        monkeypatch.syspath_prepend(str(package.parent))

    def forget_modules():
        for name in [name for name in sys.modules if name.split(".")[0] == "keyring"]:
            del sys.modules[name]

    yield put
    forget_modules()


@pytest.mark.parametrize("text", [REFUSING, CRASHING, FORGETFUL, UNLOADABLE])
def test_private_file_is_used_when_the_keyring_does_not_work(install, own_home, text):
    install(text)
    where = credentials.save(LAB, SECRET)
    assert where == str(own_home / "credentials.yaml")
    assert credentials.load(LAB) == SECRET
    assert stat.S_IMODE((own_home / "credentials.yaml").stat().st_mode) == 0o600
    credentials.forget(LAB)
    assert not credentials.load(LAB)


def test_working_keyring_stores_the_secret_and_no_file_does(install, own_home, tmp_path):
    install(WORKING)
    assert credentials.save(LAB, SECRET) == "the system keyring"
    assert credentials.load(LAB) == SECRET
    assert not (own_home / "credentials.yaml").exists()
    credentials.forget(LAB)
    assert not credentials.load(LAB)
    assert "pass: word" not in (tmp_path / "ring.json").read_text()


def test_secret_moves_from_the_file_to_a_keyring_that_works_again(install, own_home):
    install(REFUSING)
    credentials.save(LAB, SECRET)
    install(WORKING)
    assert credentials.load(LAB) == SECRET
    credentials.save(LAB, SECRET)
    assert SECRET.token not in (own_home / "credentials.yaml").read_text()
    assert credentials.load(LAB) == SECRET


def test_the_real_keyring_without_a_back_end_falls_back_to_the_file(own_home, monkeypatch):
    keyring = pytest.importorskip("keyring")
    from keyring.backends import fail

    monkeypatch.setattr(keyring.core, "_keyring_backend", fail.Keyring())
    assert credentials.save(LAB, SECRET) == str(own_home / "credentials.yaml")
    assert credentials.load(LAB) == SECRET


@pytest.mark.parametrize("ring", [REFUSING, WORKING], ids=["file", "keyring"])
def test_secret_is_loaded_only_for_its_exact_destination(install, ring):
    install(ring)
    credentials.save(LAB, SECRET)
    for other in (
        {"alias": "prod"},
        {"address": "https://elsewhere/rest-server"},
        {"address": "https://lab"},
        {"address": "http://lab/rest-server"},
        {"user": "bob"},
        {"ca": "sha256:0"},
    ):
        assert not credentials.load(dataclasses.replace(LAB, **other)), other
    assert credentials.load(LAB) == SECRET


@pytest.mark.parametrize("ring", [REFUSING, WORKING], ids=["file", "keyring"])
def test_secret_for_a_new_ca_replaces_the_old_one(install, own_home, tmp_path, ring):
    install(ring)
    credentials.save(dataclasses.replace(LAB, ca="sha256:0"), Credentials("first"))
    credentials.save(dataclasses.replace(LAB, ca="sha256:1"), Credentials("second"))
    assert not credentials.load(LAB) and not credentials.load(dataclasses.replace(LAB, ca="sha256:0"))
    credentials.forget(LAB)
    kept = own_home / "credentials.yaml" if ring is REFUSING else tmp_path / "ring.json"
    assert "first" not in kept.read_text() and "second" not in kept.read_text()


def test_keyring_names_differ_for_different_destinations():
    first = Destination("a b", "https://lab", "c")
    second = Destination("a", "b https://lab", "c")
    third = Destination("a", "b", "https://lab c")
    assert len({one.keys[0].name for one in (first, second, third)}) == 3


OLD_FILE = """
- cluster_alias: lab
  pai_uri: https://lab
  user: alice
  password: old password
  token: to.ke.n
"""
OLD_RING = {
    "openpai-taskslab alice@https://lab": json.dumps(
        {"cluster_alias": "lab", "pai_uri": "https://lab", "user": "alice", "password": "old password"}
    )
}


def test_old_format_entry_is_used_for_the_users_clusters_only_and_is_migrated(install, own_home):
    install(REFUSING)
    own_home.mkdir()
    (own_home / "credentials.yaml").write_text(OLD_FILE)
    own = dataclasses.replace(LAB, ca="sha256:0", former="https://lab")
    assert not credentials.load(dataclasses.replace(own, former=""))  # a project's
    assert not credentials.load(dataclasses.replace(own, former="https://other"))
    assert credentials.load(own) == Credentials("old password", "to.ke.n")
    text = (own_home / "credentials.yaml").read_text()
    assert "pai_uri" not in text and "ca: sha256:0" in text and "address: https://lab/rest-server" in text
    assert not credentials.load(dataclasses.replace(own, ca="sha256:1"))


def test_old_format_entry_is_migrated_within_the_keyring(install, own_home, tmp_path):
    install(WORKING)
    (tmp_path / "ring.json").write_text(json.dumps(OLD_RING))
    own = dataclasses.replace(LAB, former="https://lab")
    assert not credentials.load(LAB)
    assert credentials.load(own).password == "old password"
    assert list(json.loads((tmp_path / "ring.json").read_text())) == [
        "openpai-taskslab https://lab/rest-server alice"
    ]
    assert credentials.load(LAB).password == "old password"
    assert not (own_home / "credentials.yaml").exists()


def test_forget_removes_an_old_format_entry(install, own_home):
    install(REFUSING)
    own_home.mkdir()
    (own_home / "credentials.yaml").write_text(OLD_FILE)
    credentials.forget(dataclasses.replace(LAB, former="https://lab"))
    assert "old password" not in (own_home / "credentials.yaml").read_text()


def test_keyring_entry_stored_under_a_wrong_name_is_ignored(install, tmp_path):
    install(WORKING)
    stray = {"cluster_alias": "lab", "address": "https://elsewhere", "user": "alice", "password": "x"}
    name = "openpai-tasks" + LAB.keys[0].name
    (tmp_path / "ring.json").write_text(json.dumps({name: json.dumps(stray)}))
    assert not credentials.load(LAB)


def test_repr_and_str_show_no_secret():
    for text in (repr(SECRET), str(SECRET), f"{[SECRET]}"):
        assert "pass: word" not in text and "to.ke.n" not in text
    assert repr(SECRET) == "Credentials(password, token, application=False)"


def test_invalid_credentials_file_is_a_one_line_error_without_its_content(install, own_home):
    install(REFUSING)
    own_home.mkdir()
    (own_home / "credentials.yaml").write_text("- password: [hunter2\n")
    with pytest.raises(ConfigError, match="not valid YAML") as raised:
        credentials.load(LAB)
    assert "hunter2" not in str(raised.value) and "\n" not in str(raised.value)


def test_a_secret_is_read_from_the_first_line_of_a_file(tmp_path):
    (tmp_path / "secret").write_text("with space \r\nsecond line\n")
    assert credentials.read_secret(str(tmp_path / "secret")) == "with space "


@pytest.mark.parametrize("content", [None, ""])
def test_missing_or_empty_secret_file_is_an_error(tmp_path, content):
    if content is not None:
        (tmp_path / "secret").write_text(content)
    with pytest.raises(ConfigError, match="secret"):
        credentials.read_secret(str(tmp_path / "secret"))


@pytest.mark.parametrize("token", ["", "abc", "a.b.c", "a.!!.c", "a.W10.c"])
def test_token_that_is_not_a_jwt_has_no_claims(token):
    assert credentials.token_claims(token) == {}
