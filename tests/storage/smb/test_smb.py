"""What is specific to SMB shares: access, file names, and connections that break."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from openpai_tasks.errors import ConfigError, Denied, NotFound, PaiError, PathError, Unreachable
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Credentials, Destination
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.location import Location, locate, open_storage
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.smb import connection, files, kind
from openpai_tasks.storage.smb import names as smb_names
from openpai_tasks.storage.store import StorageSpec
from tests.memory import measurable, peak
from tests.storage.relay import TO_CLIENT, TO_SERVER, Fault, Relay
from tests.storage.samba_server import PASSWORD, USER, Samba
from tests.storage.trees import at, plant, seen

CUTS = [
    (act, way, size)
    for act in ("cut", "flip")
    for way in (TO_SERVER, TO_CLIENT)
    for size in (3000, 1_200_000)
]


def place(port, share="data", **more):
    login = {"username": USER, "password": PASSWORD}
    return StorageSpec("lab", "docs", "samba", {"address": f"//127.0.0.1:{port}/{share}", **login, **more})


def on(port, share="data", **more):
    return Location(open_storage(place(port, share, **more)), "/", "pai://lab/docs/")


@pytest.fixture
def share(samba, tmp_path):
    """An empty folder of the share ``data``, and where the server keeps it."""
    (samba.data / tmp_path.name).mkdir()
    there = on(samba.port, rootPath=tmp_path.name)
    return there, samba.data / tmp_path.name


@pytest.fixture
def own_samba():
    """A separate server for the test, which may be reconfigured or killed."""
    from tests.storage import samba_server

    if reason := samba_server.missing():
        pytest.skip(f"no Samba: {reason}")
    servers = []

    def start(options=""):
        servers.append(Samba(options).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


# Access


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"password": "wrong-" + PASSWORD}, Denied, f"refuses the user '{USER}': wrong name or password"),
        ({"username": "nobody-here"}, Denied, "refuses the user 'nobody-here': wrong name or password"),
        ({"address": "//127.0.0.1:{port}/none"}, NotFound, "has no share 'none'"),
        ({"address": "//127.0.0.1:1/data"}, Unreachable, "no SMB server answers at 127.0.0.1:1"),
        ({"rootPath": "missing"}, NotFound, "no such file or folder"),
    ],
)
def test_error_says_why_access_fails_without_showing_the_password(
    samba, change, error, text, caplog, monkeypatch
):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    caplog.set_level(logging.DEBUG)
    data = place(samba.port).data | {
        key: value.replace("{port}", str(samba.port)) for key, value in change.items()
    }
    store = open_storage(StorageSpec("lab", "docs", "samba", data))
    with pytest.raises(error, match=text) as raised:
        list(store.list("/"))
    if "rootPath" in change:
        assert store.stat("/") is None
    else:
        with pytest.raises(error, match=text):
            store.stat("/x")
    output = str(raised.value) + repr(raised.value) + repr(store._server.login) + caplog.text
    assert PASSWORD not in output and "\n" not in str(raised.value)


def test_server_that_accepts_anybody_as_a_guest_is_refused(own_samba):
    server = own_samba("map to guest = bad user")
    data = place(server.port).data | {"username": "nobody-here"}
    with pytest.raises(Denied, match="as a guest, and cannot sign the messages of a guest"):
        open_storage(StorageSpec("lab", "docs", "samba", data)).stat("/")


def test_a_read_only_share_is_read_and_not_changed(samba, here):
    (samba.fixed / "f").write_bytes(b"fixed")
    there = on(samba.port, "fixed")
    assert seen(there) == {"f": b"fixed"}
    plant(here, {"x": b"x", "y": b"y"})
    copied = copy(plan_copy([at(here, "x"), at(here, "y")], there))
    assert [failure.reason.partition(": ")[2] for failure in copied.failed] == ["access denied"] * 2
    for act in (
        lambda: there.store.remove("/f"),
        lambda: there.store.rename("/f", "/g"),
        lambda: there.store.make_folder("/d"),
        lambda: there.store.set_mtime("/f", 0),
    ):
        with pytest.raises(Denied):
            act()
    assert os.listdir(samba.fixed) == ["f"]


def test_a_storage_that_is_read_only_for_the_user_is_not_changed(samba):
    data = place(samba.port).data
    store = open_storage(StorageSpec("lab", "docs", "samba", data, read_only=True))
    for act in (
        lambda: store.write("/f", [b""]),
        lambda: store.remove("/f"),
        lambda: store.rename("/f", "/g"),
        lambda: store.make_folder("/d"),
        lambda: store.set_mtime("/f", 0),
    ):
        with pytest.raises(Denied, match="read-only for you"):
            act()


@pytest.mark.parametrize(
    "options, dialect, encrypted",
    [
        ("", 0x311, True),
        ("server smb encrypt = off", 0x311, False),
        ("server max protocol = SMB3_02", 0x302, True),
        ("server max protocol = SMB2_10", 0x210, False),
    ],
)
def test_best_offered_dialect_is_used_with_encryption_or_signing(own_samba, options, dialect, encrypted):
    there = on(own_samba(options).port)
    plant(there, {"d/f": b"1" * 300_000, "g": b"2"})
    assert seen(there) == {"d/f": b"1" * 300_000, "g": b"2"}
    session = there.store._server._session
    assert session.connection.dialect == dialect and bool(session.encrypt_data) == encrypted
    assert encrypted or session.signing_required


def test_azure_file_share_is_opened_with_the_key_and_only_encrypted(own_samba):
    def opened(server):
        data = {"shareName": "data", "accountName": USER, "accountKey": PASSWORD, "path": "in/it"}
        return open_storage(
            StorageSpec("lab", "az", "azurefile", data | {"dataStore": f"127.0.0.1:{server.port}"})
        )

    server = own_samba()
    (server.data / "in" / "it").mkdir(parents=True)
    opened(server).write("/f", [b"1"])
    assert (server.data / "in" / "it" / "f").read_bytes() == b"1"
    with pytest.raises(ConfigError, match="offers no encryption"):
        opened(own_samba("server smb encrypt = off")).stat("/")


def test_azure_file_share_is_on_the_server_of_the_account():
    older = {"fileShare": "s", "accountName": "acc", "key": "k"}
    store = open_storage(StorageSpec("lab", "az", "azurefile", older))
    assert store.address("/x") == "smb://acc.file.core.windows.net:445/s/x"
    assert store._server.login.must_encrypt


@pytest.mark.parametrize(
    "data, address",
    [
        ({"address": "//nas/docs"}, "smb://nas:445/docs/x"),
        ({"address": "//nas/docs/a/b/"}, "smb://nas:445/docs/a/b/x"),
        ({"address": r"\\nas\docs"}, "smb://nas:445/docs/x"),
        ({"address": "nas", "rootPath": "/docs/a"}, "smb://nas:445/docs/a/x"),
        ({"address": "//nas/docs", "rootPath": "/", "port": "1445"}, "smb://nas:1445/docs/x"),
        ({"address": "//[::1]:1445/docs"}, "smb://[::1]:1445/docs/x"),
    ],
)
def test_every_notation_of_an_address_is_understood(data, address):
    store = open_storage(
        StorageSpec("lab", "docs", "samba", {**data, "userName": "u", "password": "p", "domain": "LAB"})
    )
    assert store.address("/x") == address and store._server.login.user == "LAB\\u"


@pytest.mark.parametrize(
    "data, text",
    [
        ({"address": "//nas", "username": "u", "password": "p"}, "does not say which share"),
        ({"address": "//nas/s", "username": "u"}, "has no password; mount it"),
        ({"address": "//nas/s", "password": "p"}, "has no user name; mount it"),
        ({"address": "//nas:x/s", "username": "u", "password": "p"}, "invalid server"),
        ({"address": "//nas:99999/s", "username": "u", "password": "p"}, "invalid server 'nas:99999'"),
        ({"address": "//nas/s", "username": "u", "password": "p", "port": "abc"}, "invalid server 'nas:abc'"),
        (
            {"address": "//nas/s", "username": "u", "password": "p", "port": 99999},
            "invalid server 'nas:99999'",
        ),
        ({"address": "//[::1/s", "username": "u", "password": "p"}, r"invalid server '\[::1'"),
    ],
)
def test_address_or_login_that_is_incomplete_is_refused(data, text, monkeypatch):
    monkeypatch.setenv(kind.PASSWORD, "for another server")
    with pytest.raises(ConfigError, match=text):
        open_storage(StorageSpec("lab", "docs", "samba", data))


def test_server_is_identified_by_its_ipv6_address_too():
    data = {"address": "//[::1]/docs", "username": "u", "password": "p"}
    assert open_storage(StorageSpec("lab", "docs", "samba", data)).identities("/a") == {"::1:445/docs/a"}


def test_mounted_share_is_used_as_a_local_folder(tmp_path):
    data = {"address": "//nas/docs", "username": "u", "password": "p"}
    for what in ("lab/docs", "//nas/docs"):
        store = open_storage(StorageSpec("lab", "docs", "samba", data, mounts=((what, str(tmp_path)),)))
        assert (store.kind, store.root) == ("local", str(tmp_path))


def test_each_user_has_a_folder_where_the_storage_is_not_shared(samba, tmp_path):
    data = place(samba.port, rootPath=f"/{tmp_path.name}/users").data
    (samba.data / tmp_path.name / "users").mkdir(parents=True)
    store = open_storage(StorageSpec("lab", "docs", "samba", data, user="ann", share=False))
    assert list(store.list("/")) == []
    store.write("/f", [b"1"])
    assert (samba.data / tmp_path.name / "users" / "ann" / "f").read_bytes() == b"1"


# URLs


class NoBook:
    """Stands in for the clusters, none of which is needed."""


def test_url_opens_a_share_without_showing_the_password(samba, share, tmp_path, monkeypatch):
    plant(share[0], {"a b/f": b"1"})
    monkeypatch.setenv(kind.PASSWORD, PASSWORD)
    url = f"smb://{USER}@127.0.0.1:{samba.port}/data/{tmp_path.name}/a b"
    found = locate(url, NoBook())
    assert seen(found) == {"f": b"1"} and found.url == url
    assert PASSWORD not in repr(found)
    assert locate(f"smb://LAB;{USER}@nas/data", NoBook()).store._server.login.user == f"LAB\\{USER}"


def test_password_may_be_stored_with_the_other_credentials(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.delenv(kind.PASSWORD, raising=False)
    with pytest.raises(ConfigError, match=f"no password for 'u' on nas: set {kind.PASSWORD}"):
        locate("smb://u@nas/docs/x", NoBook())
    credentials.save(Destination("smb", "smb://nas", "u"), Credentials(password="kept"))
    assert locate("smb://u@nas/docs/x", NoBook()).store._server.login.password == "kept"


def test_url_with_a_password_is_refused_without_quoting_it():
    with pytest.raises(ConfigError, match="with a password in it") as raised:
        locate("smb://u:hunter2@nas/docs/../x", NoBook())
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["smb://", "smb://nas/docs", "smb://u@/docs", "smb://u@nas", "smb://u@nas/"])
def test_a_url_without_user_server_or_share_is_refused(url):
    with pytest.raises(ConfigError, match="smb://USER@HOST/SHARE/PATH"):
        locate(url, NoBook())


def test_error_for_a_missing_package_names_the_extra():
    code = """
import sys
sys.modules["smbprotocol"] = None
from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec
data = {"address": "//nas/s", "username": "u", "password": "p"}
open_storage(StorageSpec("lab", "d", "samba", data, mounts=(("lab/d", "/"),)))
try:
    open_storage(StorageSpec("lab", "d", "samba", data))
except ConfigError as err:
    print(err)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = "storage needs the package 'smbprotocol': pip install 'openpai-tasks[smb]'\n"
    assert ran.stdout == f"Samba {line}", ran.stderr


def test_missing_package_is_reported_before_a_password_is_requested():
    code = """
import sys
sys.modules["smbprotocol"] = None
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.files import user_storages
from openpai_tasks.storage.location import locate
def own(*options):
    return user_storages.parse_storage("d", "samba", "//nas/s", "", "ann", options, False)
user_storages.check_installed(own("mount=/mnt"))
for act in (lambda: user_storages.check_installed(own()), lambda: locate("smb://ann@nas/s/f", None)):
    try:
        act()
    except ConfigError as err:
        print(err)
"""
    environment = {**os.environ, "OPENPAI_SMB_PASSWORD": ""}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    line = "storage needs the package 'smbprotocol': pip install 'openpai-tasks[smb]'\n"
    assert ran.stdout == f"Samba {line}" * 2, ran.stderr


# Names


def test_special_characters_in_names_are_mapped_like_on_a_mounted_share(share):
    there, folder = share
    for name, kept in {
        'a"*:<>?\\|b': "a\uf020\uf021\uf022\uf023\uf024\uf025\uf026\uf027b",
        "new\nline\x01": "new\uf00aline\uf001",
        "dots..": "dots.\uf029",
        "space ": "space\uf028",
        " in . it": " in . it",
    }.items():
        there.store.write(f"/{name}", [name.encode()])
        assert (folder / kept).read_bytes() == name.encode()
        assert seen(there) == {name: name.encode()}
        there.store.remove(f"/{name}")


@pytest.mark.parametrize(
    "name, text",
    [
        ("a\uf022b", "reserved on shares"),
        ("a\uf028", "reserved on shares"),
        ("aux.c", "for a device"),
        ("NUL", "for a device"),
        ("x" * 256, "no such name"),
        (os.fsdecode(b"no-utf-8-\xff"), "not valid UTF-8"),
    ],
)
def test_name_that_would_be_read_back_differently_is_refused(share, here, name, text):
    there, folder = share
    for act in (
        lambda: there.store.write(f"/{name}", [b""]),
        lambda: there.store.make_folder(f"/{name}/below"),
    ):
        with pytest.raises(PathError, match=text):
            act()
    if len(name) < 256:
        plant(here, {f"d/{name}": b"", "d/good": b""})
        copied = copy(plan_copy([at(here, "d")], at(there, "d")))
        assert (copied.files, len(copied.failed)) == (1, 1) and text in copied.failed[0].reason
        assert os.listdir(folder / "d") == ["good"]


@pytest.mark.parametrize("name", ["..", "a/b"])
def test_listed_name_that_is_not_a_plain_file_name_is_an_error(name):
    with pytest.raises(PathError, match="cannot be a file's"):
        smb_names.decode(name.encode("utf-16-le"), "/d")
    with pytest.raises(PathError, match="not valid UTF-8"):
        smb_names.decode(b"a\0\xff\xdf", "/d")


def test_names_that_differ_only_in_case_do_not_replace_each_other(share, here):
    there, _ = share
    plant(here, {"d/File": b"1", "d/file": b"2", "d/Sub/x": b"3", "d/sub/x": b"4", "d/other": b"5"})
    copied = copy(plan_copy([at(here, "d")], at(there, "d")), Rules(workers=4))
    assert (copied.files, len(copied.failed)) == (3, 2)
    assert all("the server treats it as" in failure.reason for failure in copied.failed)
    arrived, sent = seen(at(there, "d")), seen(at(here, "d"))
    assert len(arrived) == 3 and arrived.items() <= sent.items()


def test_case_sensitive_server_keeps_both_names(samba, here):
    there = on(samba.port, "exact")
    plant(here, {"d/File": b"1", "d/file": b"2", "d/Sub/x": b"3", "d/sub/x": b"4"})
    assert copy(plan_copy([at(here, "d")], at(there, "d"))).failed == ()
    assert seen(at(there, "d")) == seen(at(here, "d"))
    there.store.remove("/d", recursive=True)


def test_a_large_folder_is_listed_in_batches_and_removed(share, monkeypatch):
    monkeypatch.setattr(files, "BATCH", 10_000)
    there, folder = share
    (folder / "d" / "sub").mkdir(parents=True)
    names = {f"a name of some length {number:05d}" for number in range(300)}
    for name in names:
        (folder / "d" / name).touch()
    assert {entry.name for entry in there.store.list("/d")} == names | {"sub"}
    there.store.remove("/d", recursive=True)
    assert os.listdir(folder) == []


# Connections


def test_many_files_are_copied_over_one_connection(samba, share, here, tmp_path):
    tree = {f"d/{number % 7}/{number}": bytes([number % 256]) * (number * 185) for number in range(60)}
    plant(here, tree)
    with Relay(f"127.0.0.1:{samba.port}") as relay:
        there = on(relay.address[1], rootPath=tmp_path.name)
        assert copy(plan_copy([at(here, "d")], at(there, "d")), Rules(workers=16)).files == 60
        assert copy(plan_copy([at(there, "d")], at(here, "back")), Rules(workers=16)).files == 60
        assert relay.connections == 1
    assert seen(at(here, "back")) == seen(at(here, "d"))


def until_closed(folder):
    """Wait until the server has noticed broken connections: a removed part stays as long as it is open."""
    end = time.monotonic() + 60
    while any(folder.rglob(f"{PART}*")) and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.parametrize("act, way, offset", CUTS)
def test_broken_connection_is_retried_and_loses_no_data(samba, share, here, tmp_path, act, way, offset):
    plant(here, {"d/big": os.urandom(1_300_003), "d/small": b"s"})
    with Relay(f"127.0.0.1:{samba.port}") as relay:
        there = on(relay.address[1], rootPath=tmp_path.name)
        there.store.stat("/")
        relay.faults.append(Fault(act, way, relay.moved[way] + offset))
        if way == TO_CLIENT:
            plant(share[0], seen(here))
            assert copy(plan_copy([at(there, "d")], at(here, "back"))).failed == ()
            assert seen(at(here, "back")) == seen(at(here, "d"))
        else:
            assert copy(plan_copy([at(here, "d")], at(there, "d"))).failed == ()
            until_closed(share[1])
            assert seen(at(share[0], "d")) == seen(at(here, "d"))
        assert not relay.faults and relay.connections == 2


def test_broken_listing_resumes_without_repeating_a_name(samba, share, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH", 4096)
    names = [f"{number:03d}" for number in range(200)]
    for name in names:
        (share[1] / name).touch()
    with Relay(f"127.0.0.1:{samba.port}") as relay:
        there = on(relay.address[1], rootPath=tmp_path.name)
        there.store.stat("/")
        relay.faults.append(Fault("cut", TO_CLIENT, relay.moved[TO_CLIENT] + 10_000))
        assert sorted(entry.name for entry in there.store.list("/")) == names
        assert not relay.faults and relay.connections == 2


def test_silent_connection_is_given_up_and_replaced(samba, share, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "SILENCE", 3.0)
    monkeypatch.setattr(connection, "LOOK", 0.1)
    content = os.urandom(6_000_000)
    plant(share[0], {"f": content})
    with Relay(f"127.0.0.1:{samba.port}") as relay:
        there = on(relay.address[1], rootPath=tmp_path.name)
        assert there.store.stat("/f").size == len(content)
        relay.faults.append(Fault("stall", TO_CLIENT, relay.moved[TO_CLIENT] + 2_000_000))
        assert b"".join(there.store.read("/f")) == content
        assert relay.connections >= 2  # more if the server is slow, too


class Waiting(Watch):
    """Sets ``reached`` when more than ``count`` bytes have moved, and waits there for ``go_on``.

    It pauses before retries until ``is_back``.
    """

    def __init__(self, count):
        super().__init__()
        self._left, self.reached, self.go_on = count, threading.Event(), threading.Event()
        self.is_back = threading.Event()

    def moved(self, count):
        self._left -= count
        if self._left < 0:
            self.reached.set()
            self.go_on.wait(60)

    def wait(self, seconds):
        self.is_back.wait(100)
        return super().wait(seconds)


def test_network_that_is_cut_at_random_points_leaves_nothing_beside_the_tree(
    samba, share, here, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    plant(here, {f"d/{number % 3}/{number}": chance.randbytes(300_000) for number in range(6)})
    for _ in range(2):
        with Relay(f"127.0.0.1:{samba.port}") as relay:
            there = on(relay.address[1], rootPath=tmp_path.name)
            relay.faults.append(Fault("cut", TO_SERVER, chance.randrange(5_000, 1_500_000), times=99))
            with contextlib.suppress(PaiError):
                copy(plan_copy([at(here, "d")], at(there, "d")), Rules(workers=4))
    assert copy(plan_copy([at(here, "d")], at(share[0], "d"))).failed == ()
    until_closed(share[1])
    assert seen(share[0]) == seen(here)


@pytest.mark.parametrize("way", ["up", "down"])
def test_copy_waits_for_a_server_that_restarts(own_samba, here, way, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 1.0)  # it needs a while to come back where much else runs
    server = own_samba()
    there = on(server.port)
    tree = {f"d/{number}": os.urandom(500_000) for number in range(12)}
    source, target = (here, there) if way == "up" else (there, here)
    plant(source, tree)
    watch, copied = Waiting(1_400_000), []
    items = plan_copy([at(source, "d")], at(target, "back"))
    copying = threading.Thread(target=lambda: copied.append(copy(items, Rules(), watch)))
    copying.start()
    assert watch.reached.wait(60)
    server.kill()
    watch.go_on.set()
    time.sleep(0.3)
    server.start()
    watch.is_back.set()
    copying.join(100)
    assert copied[0].failed == () and copied[0].files == 12
    parts = {name for name in seen(at(target, "back")) if name.startswith(".pai-part")}
    assert {f"d/{name}": data for name, data in seen(at(target, "back")).items() if name not in parts} == tree


def test_server_that_stays_down_fails_the_copy(own_samba, here, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    server = own_samba()
    there = on(server.port)
    plant(here, {"f": b"1"})
    there.store.stat("/")
    server.kill()
    with pytest.raises(Unreachable, match="no SMB server answers"):
        plan_copy([at(here, "f")], there)


def test_forked_process_opens_its_own_connection(share):
    there, _ = share
    plant(there, {"f": b"1"})
    child = os.fork()
    if not child:
        os._exit(0 if seen(there) == {"f": b"1"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert seen(there) == {"f": b"1"}


def test_error_raised_by_the_source_is_passed_on_unchanged(share):
    there, _ = share

    def broken():
        yield b"1" * 3_000_000
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match="the tape is torn") as raised:
        there.store.write("/f", broken())
    assert not isinstance(raised.value, PaiError)
    assert there.store.stat("/").is_folder  # the connection still works


@measurable
def test_memory_use_does_not_grow_with_the_files(samba, share, tmp_path):
    for number in range(4):
        with open(tmp_path / f"{number}.bin", "wb") as file:
            file.truncate(40 << 20)
    url = f"smb://{USER}@127.0.0.1:{samba.port}/data/{tmp_path.name}/"
    code = "from openpai_tasks.__main__ import main; main()"
    environment = {**os.environ, kind.PASSWORD: PASSWORD, "OPENPAI_HOME": str(tmp_path / "home")}
    argv = [sys.executable, "-c", code, "storage.copy", str(tmp_path / "*.bin"), url]
    with subprocess.Popen(argv, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        most = peak(process)
    assert process.returncode == 0 and most < 200 << 20
    assert share[0].store.stat("/3.bin").size == 40 << 20
