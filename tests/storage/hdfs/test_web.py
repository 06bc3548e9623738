"""WebHDFS against a real HDFS, and through a gateway that simulates network faults."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyhdfs
import pytest

from openpai_tasks.errors import ConfigError, Denied, NotFound, PathError, Unreachable
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import transfer
from openpai_tasks.storage.hdfs import kind
from openpai_tasks.storage.hdfs.kind import make_data, open_store, open_url
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.hdfs.web import name_nodes
from openpai_tasks.storage.hdfs.web.data_nodes import WIDE
from openpai_tasks.storage.hdfs.web.errors import RemoteError, make_error
from openpai_tasks.storage.hdfs.web.name_nodes import RETRIES
from openpai_tasks.storage.kinds import UserStorage, find_type
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.retry import CorruptData, retrying
from openpai_tasks.storage.store import StorageSpec, fingerprint
from tests.memory import measurable
from tests.sdk.sshd_server import refusing_port
from tests.storage.gateway import Fault, Gateway

QUICK = RetryPolicy(3, 0.02)
MEGABYTE = 1 << 20


@pytest.fixture
def store(hdfs, request):
    """A store whose root is a separate folder for the test."""
    store = HdfsStore([hdfs.name_node], "root", root=f"/{request.node.name.replace('[', '/').rstrip(']')}")
    store.make_folder("/")
    yield store
    store.close()


@pytest.fixture
def gateway(hdfs):
    with Gateway(hdfs.name_node) as gateway:
        yield gateway


def behind(gateway: Gateway, store: HdfsStore, **options) -> HdfsStore:
    """The same folder, through the gateway."""
    options = {"retries": QUICK, "prefix": "/webhdfs/api/v1", **options}
    return HdfsStore([gateway.host], "root", root=store.root, **options)


def content(store: HdfsStore, path: str, *span: int) -> bytes:
    return b"".join(store.read(path, *span))


def entry_of(path: Path):
    entry = LocalStore().stat(str(path))
    assert entry
    return entry


def noise(size: int) -> bytes:
    return os.urandom(size)


def test_file_is_read_back_in_whole_and_in_part(store):
    data = noise(3 * MEGABYTE + 17)
    store.write("/f", iter([data[:MEGABYTE], b"", data[MEGABYTE:]]), len(data))
    assert content(store, "/f") == data
    assert content(store, "/f", MEGABYTE - 1, 3) == data[MEGABYTE - 1 :][:3]
    assert content(store, "/f", len(data) - 2, 100) == data[-2:]
    assert content(store, "/f", len(data)) == content(store, "/f", len(data) + 5) == b""


def test_a_file_of_unknown_size_is_sent_in_chunks(store):
    store.write("/f", iter([b"one ", b"", b"two"]))
    assert content(store, "/f") == b"one two"


def test_pyhdfs_is_loaded_only_to_change_files(store):
    store.write("/f", [b"some"], 4)
    code = (
        "import sys\n"
        "from openpai_tasks.storage.hdfs.store import HdfsStore\n"
        f"store = HdfsStore({store.hosts!r}, 'root', root={store.root!r})\n"
        "assert [entry.name for entry in store.list('/')] == ['f'] and store.stat('/f').size == 4\n"
        "assert b''.join(store.read('/f')) == b'some'\n"
        "print(*{'pyhdfs', 'requests'} & sys.modules.keys())\n"
        "store.remove('/f')\n"
        "print('pyhdfs' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\nTrue\n"


@pytest.mark.parametrize("act", ["write", "make_folder", "rename"])
def test_colon_in_a_name_is_refused_with_one_line(store, act):
    store.write("/f", [b""], 0)
    calls = {
        "write": lambda: store.write("/a:b", [b""], 0),
        "make_folder": lambda: store.make_folder("/a:b/c"),
        "rename": lambda: store.rename("/f", "/a:b"),
    }
    with pytest.raises(PathError, match=r"^/a:b.*: HDFS allows no ':' in a name; choose another one$"):
        calls[act]()


def test_path_cannot_escape_the_root(store):
    for path in ("/../x", "/a/../../x", "relative", "/a/./b"):
        with pytest.raises(PathError, match="cannot be a path"):
            store.stat(path)


def test_folder_larger_than_a_batch_is_listed_completely(store, gateway):
    for number in range(120):
        store.make_folder(f"/{number}")
    names = [entry.name for entry in behind(gateway, store).list("/")]
    assert sorted(names) == sorted(map(str, range(120)))
    assert gateway.count("LISTSTATUS_BATCH") == 3


def test_hdfs_without_batched_listing_is_listed_too(store, gateway):
    store.make_folder("/d")
    gateway.rewrite = ("LISTSTATUS_BATCH", "LISTSTATUS_NEVER")
    assert [entry.name for entry in behind(gateway, store).list("/")] == ["d"]
    assert gateway.asked[-1] == "GET LISTSTATUS"


def test_listed_name_that_escapes_the_folder_is_an_error(store, gateway):
    store.make_folder("/xxxevil")
    gateway.faults.append(Fault("LISTSTATUS_BATCH", "swap", old=b"xxxevil", new=b"../evil"))
    with pytest.raises(PathError, match="refused"):
        list(behind(gateway, store).list("/"))


def test_refused_or_missing_paths_are_requested_once(store, gateway):
    store.write("/f", [b"x"], 1)
    other = HdfsStore([gateway.host], "eve", root=store.root, prefix="/webhdfs/api/v1")
    for act, error in (
        (lambda: other.make_folder("/mine"), Denied),
        (lambda: other.remove("/f"), Denied),
        (lambda: content(other, "/none"), NotFound),
    ):
        gateway.asked.clear()
        with pytest.raises(error) as caught:
            act()
        assert len(gateway.asked) == 1
        assert "\n" not in str(caught.value) and " at org." not in str(caught.value)


def test_refused_upload_ends_at_once(store):
    """The data node refuses and closes the connection long before it has received everything."""
    sent = []

    def pieces():
        for _ in range(200):
            sent.append(1)
            yield bytes(MEGABYTE)

    eve = HdfsStore(store.hosts, "eve", root=store.root)
    with pytest.raises(Denied, match="Permission denied: user=eve"):
        eve.write("/f", pieces(), 200 * MEGABYTE)
    assert len(sent) < 100


@pytest.mark.parametrize(
    "block, size",
    [
        *[(65536, size) for size in (0, 1, 511, 512, 513, 4096, 65536, 70000, MEGABYTE + 1)],
        *[(MEGABYTE, 3 * MEGABYTE + 1), (0, 0), (0, 70000)],
    ],
)
def test_locally_computed_digest_equals_that_of_hdfs(store, hdfs, size, block):
    data = noise(size)
    client = pyhdfs.HdfsClient(hdfs.name_node, user_name="root")
    client.create(f"{store.root}/f", data, **({"blocksize": block} if block else {}))
    found = store.digest("/f")
    hasher = store.hasher(found.kind) if block else store.hasher()
    assert fingerprint(hasher, [data[:1000], data[1000:1001], data[1001:]]) == found


def test_java_sees_the_same_files_and_computes_the_same_digest(store, hdfs):
    store.write("/a b#%?", [b"some bytes"], 10)
    kind, value = hdfs.shell("-checksum", f"{store.root}/a b#%?").split()[-2:]
    digest = store.digest("/a b#%?")
    assert (digest.kind, digest.value) == (kind, value[24:56])


def test_unsupported_digest_has_no_hasher(store):
    assert store.hasher("COMPOSITE-CRC32C") is None


def test_rename_replaces_a_file_in_one_step(store, gateway):
    store.write("/new", [b"new"], 3)
    store.write("/old", [b"old"], 3)
    behind(gateway, store).rename("/new", "/old")
    assert content(store, "/old") == b"new" and store.stat("/new") is None
    assert gateway.asked == ["PUT RENAME"]


def test_rename_whose_response_was_lost_succeeds(store, gateway):
    store.write("/f", [b"x"], 1)
    gateway.faults.append(Fault("RENAME", "lose"))
    behind(gateway, store).rename("/f", "/g")
    assert content(store, "/g") == b"x"


@pytest.mark.parametrize("at", [0, 1, 100_000, MEGABYTE])
def test_cut_download_resumes_where_it_stopped(store, gateway, at):
    data = noise(3 * MEGABYTE)
    store.write("/f", [data], len(data))
    gateway.faults.append(Fault("OPEN", "cut", at, times=2))
    assert content(behind(gateway, store), "/f") == data
    assert gateway.count("OPEN") == 6  # three times two: the name node's and the data node's


def test_download_that_is_always_cut_at_the_same_place_is_given_up(store, gateway):
    store.write("/f", [b"x" * 100], 100)
    gateway.faults.append(Fault("OPEN", "cut", 0, times=100))
    with pytest.raises(Unreachable, match=r"^/f: HDFS does not answer"):
        content(behind(gateway, store), "/f")
    assert gateway.count("OPEN") < 20


def test_stalled_download_times_out_and_is_resumed(store, gateway):
    store.write("/f", [b"x" * 1000], 1000)
    gateway.faults.append(Fault("OPEN", "stall", 10))
    start = time.monotonic()
    assert content(behind(gateway, store, timeout=5), "/f") == b"x" * 1000
    assert 5 < time.monotonic() - start < 40


def test_slow_download_that_continues_is_not_given_up(store, gateway):
    data = noise(3000)
    store.write("/f", [data], len(data))
    gateway.faults.append(Fault("OPEN", "drip"))
    assert content(behind(gateway, store, timeout=20), "/f") == data


def test_response_that_is_too_short_is_completed(store, gateway):
    data = noise(5000)
    store.write("/f", [data], len(data))
    gateway.faults.append(Fault("OPEN", "shorten", 1234))
    assert content(behind(gateway, store), "/f", 0, 5000) == data


def test_wrong_length_and_a_flipped_byte_are_retried_and_leave_the_right_file(store, gateway, tmp_path):
    data = noise(5000)
    store.write("/f", [data], len(data))
    gateway.faults += [Fault("OPEN", "shorten", 1234), Fault("OPEN", "flip", 99)]
    there = behind(gateway, store)
    transfer(there, there.stat("/f"), LocalStore(), str(tmp_path / "f"), Watch())
    assert (tmp_path / "f").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_cut_upload_is_retried(store, gateway, tmp_path):
    (tmp_path / "f").write_bytes(noise(2 * MEGABYTE))
    gateway.faults.append(Fault("CREATE", "cut", MEGABYTE, is_upload=True))
    transfer(LocalStore(), entry_of(tmp_path / "f"), behind(gateway, store), "/f", Watch())
    assert content(store, "/f") == (tmp_path / "f").read_bytes()
    assert [entry.name for entry in store.list("/")] == ["f"]


def test_busy_gateway_is_retried(store, gateway):
    gateway.faults += [Fault("CREATE", "refuse"), Fault("MKDIRS", "refuse")]
    there = behind(gateway, store)
    there.make_folder("/d")
    there.write("/d/f", [b"x"], 1)
    assert content(store, "/d/f") == b"x"


OPS = {"make_folder": "MKDIRS", "stat": "GETFILESTATUS", "digest": "GETFILECHECKSUM", "remove": "DELETE"}


@pytest.mark.parametrize("act, op", OPS.items(), ids=OPS)
def test_failing_operation_is_retried_by_one_layer_only(store, gateway, act, op):
    store.write("/f", [b"x"], 1)
    there = behind(gateway, store, retries=RETRIES._replace(least_pause=0.001))
    assert there.stat("/") is not None
    fault = Fault(op, "refuse", times=1000)
    gateway.faults.append(fault)
    with pytest.raises(Unreachable):
        retrying(lambda: getattr(there, act)("/f"))
    assert 1000 - fault.times == RETRIES.tries


def test_failing_create_or_open_is_retried_by_one_layer_only(store, gateway, tmp_path):
    store.write("/f", [b"x"], 1)
    (tmp_path / "f").write_bytes(b"x")
    there = behind(gateway, store, retries=RETRIES._replace(least_pause=0.001))
    found = there.stat("/f")
    create, opening = (Fault(op, "refuse", times=1000) for op in ("CREATE", "OPEN"))
    gateway.faults += [create, opening]
    with pytest.raises(Unreachable):
        transfer(LocalStore(), entry_of(tmp_path / "f"), there, "/g", NoPauses())
    assert 1000 - create.times == 5  # the pieces come only once, so that the copy itself retries
    with pytest.raises(Unreachable):
        transfer(there, found, LocalStore(), str(tmp_path / "g"), Watch())
    assert 1000 - opening.times == RETRIES.tries


def test_hdfs_that_never_answered_is_given_up_soon():
    tried = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hang_up, args=(server, tried), daemon=True).start()
        host = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable):
            retrying(lambda: HdfsStore([host], "root", retries=RETRIES._replace(least_pause=0.001)).stat("/"))
        assert len(tried) == 5


class NoPauses(Watch):
    """Skips every pause."""

    def wait(self, seconds: float) -> bool:
        return False


def hang_up(server: socket.socket, tried: list[int]) -> None:
    with suppress(OSError):
        while True:
            visitor, _ = server.accept()
            tried.append(1)  # before the visitor can notice, and be done
            visitor.close()


def test_stopping_a_copy_ends_the_retry_pauses_of_its_storage(store, gateway, tmp_path):
    store.write("/f", [b"x"], 1)
    there, pauses = behind(gateway, store, retries=RetryPolicy(9, 60.0, longest_pause=60.0)), []
    found = there.stat("/f")
    gateway.faults.append(Fault("OPEN", "refuse", times=1000))

    class Ended(Watch):
        def wait(self, seconds: float) -> bool:
            pauses.append(seconds)
            threading.Timer(0.2, self.stop).start()
            return super().wait(seconds)

    start = time.monotonic()
    with pytest.raises(Unreachable):
        transfer(there, found, LocalStore(), str(tmp_path / "f"), Ended())
    assert time.monotonic() - start < 40 < pauses[0]


def test_file_that_changes_its_size_while_it_is_sent_is_an_error(store):
    for pieces in ([b"abc"], [b"abcabc"]):
        with pytest.raises(CorruptData, match="while it was read"):
            store.write("/f", pieces, 5)


def test_error_raised_by_the_source_is_passed_on_unchanged(store):
    def pieces():
        yield b"a"
        raise PathError("the disk is gone")

    with pytest.raises(PathError, match=r"^the disk is gone$"):
        store.write("/f", pieces(), 5)


def test_second_name_node_is_used_when_the_first_is_on_standby_or_gone(store, hdfs):
    with Gateway(hdfs.name_node) as second:
        with Gateway(hdfs.name_node) as first:
            options = {"root": store.root, "prefix": "/webhdfs/api/v1", "retries": QUICK}
            there = HdfsStore([first.host, second.host], "root", **options)
            there.write("/f", [b"x"], 1)
            assert first.asked and not second.asked
            first.faults.append(Fault("GETFILESTATUS", "standby"))
            assert there.stat("/f").size == 1
            assert second.asked == ["GET GETFILESTATUS"]
        assert content(there, "/f") == b"x"  # the first is gone
        there.rename("/f", "/g")
        assert [entry.name for entry in there.list("/")] == ["g"]


def test_unreachable_name_node_is_a_one_line_error():
    port = refusing_port()
    store = HdfsStore([f"127.0.0.1:{port}"], "root", retries=QUICK)
    with pytest.raises(
        Unreachable, match=rf"^/x: HDFS does not answer: 127.0.0.1:{port}: Connection refused$"
    ):
        store.stat("/x")


def test_a_connection_that_was_closed_while_idle_is_replaced(store, gateway):
    gateway.lies = True
    there = behind(gateway, store, retries=RetryPolicy(1, 0.2))
    for _ in range(5):
        assert there.stat("/").is_folder


def test_a_storage_of_an_old_cluster_is_reached_through_its_gateway(hdfs, gateway):
    place = StorageSpec("lab", "hdfs-0", "hdfs", {"webhdfs": f"{gateway.uri}/webhdfs"}, user="root")
    store = open_store(place)
    name = "/ä b#%?&+.txt"
    store.write(name, [b"through"], 7)
    assert content(store, name) == b"through"
    assert gateway.asked[:2] == ["PUT CREATE"] * 2
    store.remove(name)


def test_https_gateway_is_verified_with_the_given_certificate(hdfs, store, tmp_path):
    context = certificate(tmp_path)
    with Gateway(hdfs.name_node, tls=context) as gateway:
        there = behind(gateway, store, scheme="https", verify=str(tmp_path / "cert.pem"))
        there.write("/f", [b"secret"], 6)
        assert content(there, "/f") == b"secret"
        with pytest.raises(Unreachable, match="certificate"):
            behind(gateway, store, scheme="https").stat("/f")


def certificate(folder: Path):
    import ssl

    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-keyout", "key.pem", "-out", "cert.pem", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *files], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@measurable
def test_a_large_file_is_read_in_several_ranges_and_little_memory(store, gateway):
    """Runs in a separate process and reads its peak memory from the system."""
    size = 4 * WIDE
    there = behind(gateway, store)
    code = (
        "import hashlib, sys\n"
        "from openpai_tasks.storage.hdfs.store import HdfsStore\n"
        f"options = dict(root={store.root!r}, prefix='/webhdfs/api/v1', fast=1e12)\n"
        f"store = HdfsStore([{gateway.host!r}], 'root', **options)\n"
        f"piece, count = bytes(range(256)) * 4096, {size} >> 20\n"
        "hasher = store.hasher()\n"
        "def pieces():\n"
        "    for number in range(count):\n"
        "        block = number.to_bytes(8, 'big') + piece[8:]\n"
        "        hasher.update(block)\n"
        "        yield block\n"
        "store.write('/f', pieces(), count << 20)\n"
        "assert store.digest('/f') == hasher.digest()\n"
        "again = store.hasher()\n"
        "for got in store.read('/f'): again.update(got)\n"
        "assert again.digest() == hasher.digest()\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200 << 10  # KiB
    assert gateway.count("OPEN") > 2 * 4
    assert there.stat("/f").size == size


def test_closing_a_large_read_early_ends_its_threads(store):
    hasty = HdfsStore(store.hosts, "root", root=store.root, fast=1e12)
    hasty.write("/f", (bytes(MEGABYTE) for _ in range(WIDE >> 20)), WIDE)
    before, most, moved = set(threading.enumerate()), 0, 0
    pieces = hasty.read("/f")
    while moved <= WIDE // 2:
        moved += len(next(pieces))
        most = max(most, len(set(threading.enumerate()) - before))
    pieces.close()
    assert most > 0 and set(threading.enumerate()) <= before
    assert sum(map(len, hasty.read("/f"))) == WIDE


def test_large_file_on_a_fast_connection_is_read_by_one_connection(store, gateway):
    store.write("/f", (bytes(MEGABYTE) for _ in range(WIDE >> 20)), WIDE)
    there = behind(gateway, store, fast=1.0)
    assert sum(map(len, there.read("/f"))) == WIDE
    assert gateway.count("OPEN") == 2


PLACES = {
    "webhdfs://nn:9870/a/b": (("nn:9870",), "/a/b"),
    "webhdfs://bob@nn1:1,nn2:2": (("nn1:1", "nn2:2"), "/"),
    "hdfs://nn/a": (("nn:9870", "nn:50070", "nn:5070"), "/a"),
    "hdfs://nn:9000/": (("nn:9870", "nn:50070", "nn:5070"), "/"),
    "hdfs://nn:9820": (("nn:9870", "nn:50070", "nn:5070"), "/"),
    "hdfs://bob@[::1]:9870,nn2:2/a": (("[::1]:9870", "nn2:2"), "/a"),
    "hdfs://[::1]": (("[::1]:9870", "[::1]:50070", "[::1]:5070"), "/"),
}


def test_a_url_names_its_name_nodes():
    opened = {url: open_url(url) for url in PLACES}
    assert {url: (store.hosts, path) for url, (store, path) in opened.items()} == PLACES


def test_a_job_gets_the_web_port_that_answers(hdfs, monkeypatch):
    host, _, port = hdfs.name_node.rpartition(":")
    first, last = refusing_port(), refusing_port()
    monkeypatch.setattr(name_nodes, "PROBE_SECONDS", 60.0)

    def urls(*ports):
        for module in (kind, name_nodes):
            monkeypatch.setattr(module, "WEB_PORTS", ports)
        store, path = open_url(f"hdfs://{host}/data")
        return [url.removesuffix("/webhdfs/v1/data") for url in kind.job_folder(store, path).urls]

    assert urls(first, int(port), last) == [f"http://{hdfs.name_node}"]
    assert urls(first, last) == [f"http://{host}:{first}", f"http://{host}:{last}"]  # a job may reach it
    store = HdfsStore([f"{host}:{first}", hdfs.name_node], "ann")  # as given
    assert len(store.urls("/")) == 2


def test_a_web_port_that_cannot_be_found_is_asked_for():
    hosts = [f"127.0.0.1:{refusing_port()}" for _ in range(2)]
    ports = ", ".join(host.partition(":")[2] for host in hosts)
    with pytest.raises(Unreachable) as caught:
        list(HdfsStore(hosts, "ann", retries=RetryPolicy(1, 0.2)).list("/"))
    hint = f"(tried its web ports {ports}; if it has another one, use webhdfs://127.0.0.1:PORT)"
    assert str(caught.value).endswith(hint)


@pytest.mark.parametrize(
    "address, path, data",
    [
        ("hdfs://nn:9000", "/user/ann", {"namenode": "nn:9000", "path": "/user/ann"}),
        ("hdfs://nn:9000/user/ann/", "", {"namenode": "nn:9000", "path": "/user/ann"}),
        ("hdfs://nn1:8020,nn2:8020", "", {"namenode": "nn1:8020,nn2:8020", "path": "/"}),
    ],
)
def test_an_address_may_be_a_url_of_hadoop(address, path, data):
    assert make_data(UserStorage("own", find_type("hdfs"), address, path), "") == data


def test_an_address_with_a_folder_and_another_path_is_refused():
    with pytest.raises(ConfigError, match="--address must be"):
        make_data(UserStorage("own", find_type("hdfs"), "hdfs://nn/a", "/b"), "")


def test_a_url_without_a_name_node_is_an_error():
    for url in (
        *("hdfs:///a", "webhdfs://nn:port/a", "webhdfs://root@/", "hdfs://nn:99999/", "hdfs://nn:0/"),
        *("hdfs://nn:\u0663/a", "hdfs://[::1/a", "hdfs://::1/a", "hdfs://[nn]/a", "hdfs://n..n/"),
    ):
        with pytest.raises(ConfigError, match="name node"):
            open_url(url)


NAME_NODES = [
    ({"namenode": "10.0.0.1", "port": 5070}, ("10.0.0.1:5070",)),
    ({"namenode": "10.0.0.1", "port": "9000"}, ("10.0.0.1:9870", "10.0.0.1:50070", "10.0.0.1:5070")),
    ({"namenode": "nn1:1,nn2:2"}, ("nn1:1", "nn2:2")),
    ({"namenode": "[::1],nn2", "port": 5070}, ("[::1]:5070", "nn2:5070")),
    ({"web_hdfs_uri": "http://nn:50070"}, ("nn:50070",)),
    ({"webhdfs": "https://nn1:9871,https://[::1]:9871"}, ("nn1:9871", "[::1]:9871")),
    ({}, ("lab.example:80",)),
]


def test_a_storage_names_its_name_nodes():
    more = {"user": "ann", "share": False, "cluster_uri": "http://lab.example"}
    stores = [open_store(StorageSpec("lab", "data", "hdfs", data, **more)) for data, _ in NAME_NODES]
    assert [store.hosts for store in stores] == [hosts for _, hosts in NAME_NODES]
    assert {store.root for store in stores} == {"/ann"}


def test_storage_without_an_address_is_an_error():
    with pytest.raises(ConfigError, match="'data' of 'lab': invalid url of HDFS"):
        open_store(StorageSpec("lab", "data", "hdfs", {}, user="ann"))


INVALID = [
    ({"webhdfs": "http://nn:99999"}, "invalid url of HDFS 'http://nn:99999'"),
    ({"webhdfs": "http://[::1"}, r"invalid url of HDFS 'http://\[::1'"),
    ({"webhdfs": "https://nn1:9871,nn2:9871"}, "'nn2:9871': expected http://HOST:PORT or https://"),
    ({"webhdfs": "https://nn1:9871,http://nn2:9870"}, "must all be http or all https"),
    ({"webhdfs": "http://nn1/webhdfs,http://nn2"}, "with one path"),
    ({"namenode": "nn", "port": "abc"}, "invalid name node 'nn:abc'"),
]


def test_storage_with_an_invalid_address_is_refused_with_one_line():
    for data, says in INVALID:
        with pytest.raises(ConfigError, match=says) as caught:
            open_store(StorageSpec("lab", "data", "hdfs", data, user="ann"))
        assert len(str(caught.value).splitlines()) == 1


def test_active_one_of_several_https_name_nodes_is_used(hdfs, store, tmp_path):
    context = certificate(tmp_path)
    with (
        Gateway(hdfs.name_node, tls=context) as active,
        Gateway(hdfs.name_node, tls=context, is_standby=True) as standby,
    ):
        urls = f"https://127.0.0.1:{refusing_port()},{standby.uri},{active.uri}"
        data = {"webhdfs": urls, "path": store.root}
        there = open_store(
            StorageSpec("lab", "data", "hdfs", data, "root", verify=str(tmp_path / "cert.pem"))
        )
        there.write("/f", [b"secret"], 6)
        assert content(there, "/f") == content(store, "/f") == b"secret"
        assert "PUT CREATE" in standby.asked and active.count("CREATE") == 2
        there.close()


def test_native_port_instead_of_the_web_port_is_reported(hdfs):
    with pytest.raises(Unreachable, match=f"404 from {hdfs.rpc}, .* use the web port of a name node"):
        HdfsStore([hdfs.rpc], "root", retries=QUICK).stat("/")


@pytest.mark.parametrize("way", ["direct", "gateway"])
def test_a_file_from_before_1970_is_copied_once(store, gateway, tmp_path, way):
    (tmp_path / "old").write_bytes(b"old")
    os.utime(tmp_path / "old", (-86400, -86400))
    there = store if way == "direct" else behind(gateway, store)
    source = Location(LocalStore(), str(tmp_path), "here", is_content=True)
    for count in (1, 0):
        done = copy(plan_copy([source], Location(there, "/to", "hdfs")))
        assert (done.files, done.failed) == (count, ())
    assert there.stat("/to/old").mtime_ms == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("append: lastBlock=blk_1 of src=/f is not sufficiently replicated yet.", Unreachable),
        ("File /f could only be written to 0 of the 1 minReplication nodes.", Unreachable),
        ("The DiskSpace quota of /d is exceeded: quota = 1048576 B", PathError),
    ],
)
def test_temporary_errors_are_distinguished_from_permanent_ones(text, kind):
    assert type(make_error(RemoteError("IOException", text), "/f")) is kind
