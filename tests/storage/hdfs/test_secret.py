"""Private data on HDFS: nothing is sent unencrypted after HTTPS, and private files stay private."""

from __future__ import annotations

import contextlib
import os
import stat

import pyhdfs
import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.hdfs.web.client import V1
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.storage.gateway import Gateway
from tests.storage.hdfs.test_web import certificate
from tests.storage.relay import Relay
from tests.storage.trees import at, plant

QUICK = RetryPolicy(3, 0.02)


@pytest.fixture
def root(hdfs, request):
    store = HdfsStore([hdfs.name_node], "root")
    root = f"/{request.node.name.partition('[')[0]}"
    store.make_folder(root)
    yield root
    store.remove(root, recursive=True)
    store.close()


def secure(gateway, root, folder):
    options = {"prefix": "/webhdfs/api/v1", "retries": QUICK, "verify": str(folder / "cert.pem")}
    return HdfsStore([gateway.host], "root", scheme="https", root=root, **options)


@pytest.mark.parametrize("port", ["", ":80", ":its own"], ids=["no port", "80", "its own port"])
def test_gateway_that_redirects_to_itself_over_http_is_asked_over_https(hdfs, root, tmp_path, port):
    with Gateway(hdfs.name_node, tls=certificate(tmp_path)) as gateway:
        address = gateway.host if "own" in port else f"127.0.0.1{port}"
        gateway.uri = f"http://{address}"  # in its redirects
        store = secure(gateway, root, tmp_path)
        store.write("/f", [b"secret"], 6)
        assert b"".join(store.read("/f")) == b"secret"
        assert gateway.count("CREATE") == gateway.count("OPEN") == 2
        store.close()


def test_nothing_is_sent_unencrypted_to_another_server(hdfs, root, tmp_path):
    with contextlib.closing(HdfsStore([hdfs.name_node], "root", root=root)) as direct:
        direct.write("/f", [b"known"], 5)
    with (
        Relay(hdfs.data_node) as plain,
        Gateway(hdfs.name_node, tls=certificate(tmp_path)) as gateway,
    ):
        gateway.uri = f"http://{plain.host}"
        store = secure(gateway, root, tmp_path)
        line = rf"^https://{gateway.host} redirects to http://{plain.host}, without encryption: refused"
        for act in (
            lambda: store.write("/f", iter([b"secret"]), 6),
            lambda: store.append("/f", [b"secret"], 6),
            lambda: list(store.read("/f")),
            lambda: store.digest("/f"),
        ):
            gateway.asked.clear()
            with pytest.raises(PathError, match=line):
                act()
            assert len(gateway.asked) == 1  # it is not retried
        assert plain.connections == 0
        store.close()


@pytest.fixture(params=["direct", "http"])
def there(request, hdfs, root):
    """A folder of HDFS, reached by the native protocol or over HTTP."""
    if request.param == "direct":
        store = HdfsStore([hdfs.name_node], "root", root=root, prefix=V1)
        yield Location(store, "/", "hdfs")
        store.close()
        return
    with Gateway(hdfs.name_node) as gateway:
        store = HdfsStore([gateway.host], "root", root=root, prefix="/webhdfs/api/v1")
        yield Location(store, "/", "hdfs")
        store.close()


def modes(hdfs, root):
    """The modes of everything below the root, read with another client than ours."""
    client, found, folders = pyhdfs.HdfsClient(hdfs.name_node, user_name="root"), {}, [""]
    for folder in folders:
        for entry in client.list_status(f"{root}/{folder}"):
            name, is_folder = f"{folder}{entry.pathSuffix}", entry.type == "DIRECTORY"
            kind = stat.S_IFDIR if is_folder else stat.S_IFREG
            found[name] = stat.filemode(kind | int(entry.permission, 8))
            folders += [f"{name}/"] * is_folder
    return found


def test_private_source_files_are_private_on_hdfs_and_after_copying_back(hdfs, here, there, root):
    plant(here, {"d/key": b"k", "d/run": b"r", "d/open": b"o", "d/shut/f": b"f", "d/group": b"g"})
    for name, mode in {"key": 0o600, "run": 0o700, "open": 0o644, "shut": 0o700, "group": 0o640}.items():
        os.chmod(f"{here.path}/d/{name}", mode)
    os.chmod(f"{here.path}/d/shut/f", 0o644)
    assert copy(plan_copy([at(here, "d")], there)).failed == ()
    assert modes(hdfs, root) == {
        "d": "drwxr-xr-x",
        "d/key": "-rw-------",
        "d/run": "-rwx------",
        "d/open": "-rw-r--r--",
        "d/group": "-rw-r--r--",
        "d/shut": "drwx------",
        "d/shut/f": "-rw-r--r--",
    }
    back = Location(LocalStore(), f"{here.path}/back", "back")
    assert copy(plan_copy([at(there, "d")], back)).failed == ()
    found = {name: stat.S_IMODE(os.stat(f"{back.path}/{name}").st_mode) for name in ("key", "run", "shut")}
    assert found == {"key": 0o600, "run": 0o700, "shut": 0o700}
    assert copy(plan_copy([at(there, "d")], at(there, "again"))).failed == ()
    assert modes(hdfs, f"{root}/again")["key"] == "-rw-------"


def test_private_file_is_private_while_it_is_written(hdfs, here, there, root):
    """Checked while its last piece is missing, when it is still a part under another name."""
    looked = []

    def pieces():
        yield b"k" * 100_000
        looked.extend(modes(hdfs, root).values())
        yield b"k"

    there.store.make_folder("/d")
    closed = there.store.closed
    if not closed.write_checked("/d/part", pieces(), 100_001):
        closed.write("/d/part", pieces(), 100_001)
    assert looked[0] == "drwxr-xr-x" and set(looked[1:]) <= {"-rw-------"}
    assert modes(hdfs, root)["d/part"] == "-rw-------"
