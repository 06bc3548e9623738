"""What is specific to object stores: S3 (s3rver, rclone) and Azure Blob (Azurite), each a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from openpai_tasks.errors import ConfigError, Denied, NotFound, PathError, Unreachable
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put, transfer
from openpai_tasks.storage.location import Location, locate, open_storage
from openpai_tasks.storage.objects import errors, upload
from openpai_tasks.storage.objects.s3 import answers, bucket
from openpai_tasks.storage.objects.s3.client import S3Call
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.store import StorageSpec, fingerprint
from tests import memory
from tests.needs import require
from tests.sdk.sshd_server import refusing_port
from tests.storage import object_servers
from tests.storage.relay import TO_CLIENT, TO_SERVER, Fault, Relay
from tests.storage.stores import azure_data, s3_data
from tests.storage.trees import at, plant, seen

PART = 1 << 20  # so that a file in parts is a small one
SECRETS = (object_servers.RCLONE_SECRET, object_servers.ACCOUNT_KEY)
KINDS = {"s3rver": "s3", "rclone": "s3", "azurite": "azureBlob"}
ALL, CHECKED = tuple(KINDS), ("rclone", "azurite")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(upload, "PART", PART)


class Service:
    """A server and its stores, with a separate folder for each test."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.server = object_servers.shared(name)

    def data(self, host=""):
        found = (azure_data if self.name == "azurite" else s3_data)(self.server, self.folder)
        return {
            key: value.replace(self.server.host, host or self.server.host) for key, value in found.items()
        }

    def open(self, host="", **others):
        place = StorageSpec("lab", "objects", KINDS[self.name], {**self.data(host), **others})
        return Location(open_storage(place), "/", "pai://lab/objects/")

    def wrong_key(self):
        name = "accountKey" if self.name == "azurite" else "secretAccessKey"
        return {name: "d3Jvbmc="}


@pytest.fixture
def service(request, tmp_path):
    if reason := object_servers.missing(request.param):
        pytest.skip(f"no {request.param}: {reason}")
    return Service(request.param, f"{request.param}-{tmp_path.name}"[:60].rstrip("-_"))


def is_same(one, other):
    """Compare without a report of megabytes on failure."""
    return one == other


def swap(times):
    return Fault("swap", times=times, old=b"very last", new=b"VERY last")


def sent(here, place):
    """Send only the file, without any other requests."""
    transfer(here.store, here.store.stat(at(here, "f").path), place.store, "/f", Watch())


def over(*names):
    return pytest.mark.parametrize("service", names, indirect=True)


@over(*CHECKED)
def test_wrong_key_is_refused_at_once_and_not_shown(service):
    with Relay(service.server.host) as relay:
        store = service.open(relay.host, **service.wrong_key()).store
        for act in (
            store.stat,
            lambda path: list(store.list(path)),
            lambda path: put(store, path, lambda: [b"1"]),
        ):
            relay.asked.clear()
            with pytest.raises(Denied) as refused:
                act("/f")
            assert len(relay.asked) == 1
            assert not any(secret in str(refused.value) for secret in (*SECRETS, "d3Jvbmc="))


@over(*ALL)
def test_error_names_a_missing_bucket(service):
    name = "containerName" if service.name == "azurite" else "bucket"
    place = service.open(**{name: "none-of-that-name"})
    assert place.store.stat("/") is None
    with pytest.raises(NotFound, match="none-of-that-name"):
        list(place.store.list("/"))
    with pytest.raises(NotFound, match="none-of-that-name"):
        put(place.store, "/f", lambda: [b"1"])


@over("rclone", "azurite")
def test_unreachable_server_is_an_error_after_some_retries(service):
    with pytest.raises(Unreachable, match="no answer"):
        service.open(f"127.0.0.1:{refusing_port()}").store.stat("/f")


@over("rclone", "azurite")
def test_busy_server_is_retried(service):
    with Relay(service.server.host, [Fault("busy", times=3)]) as relay:
        place = service.open(relay.host)
        put(place.store, "/f", lambda: [b"1"])
        assert [entry.name for entry in place.store.list("/")] == ["f"] and not relay.faults


@over(*CHECKED)
def test_upload_of_a_file_is_tried_five_times_in_all(service, here):
    plant(here, {"f": b"1"})
    with Relay(service.server.host, [Fault("busy", times=99)]) as relay:
        with pytest.raises(Unreachable, match="is not ready"):
            sent(here, service.open(relay.host))
        assert [asked.partition(" ")[0] for asked in relay.asked] == ["PUT"] * 5


@over(*CHECKED)
@pytest.mark.parametrize("way, place", [(TO_SERVER, 1 << 20), (TO_CLIENT, 0)], ids=["taking", "answering"])
def test_server_that_stops_responding_is_given_up_after_five_tries(service, here, monkeypatch, way, place):
    plant(here, {"f": bytes(6 * place or 1)})
    monkeypatch.setattr(upload, "PART", 8 << 20)  # one request for the file
    monkeypatch.setattr(errors, "LONGEST", 0.4)
    monkeypatch.setattr(errors, "SLOWEST", 1 << 40)
    with Relay(service.server.host, [Fault("stall", way, place, times=99)]) as relay:
        start = time.monotonic()
        with pytest.raises(Unreachable, match="no answer"):
            sent(here, service.open(relay.host))
        assert 5 * 0.4 <= time.monotonic() - start < 45
        assert relay.connections <= 5


@over(*CHECKED)
@pytest.mark.parametrize("size", [1000, PART + 1000], ids=["whole", "in parts"])
def test_data_damaged_on_the_way_is_refused_by_the_server_and_sent_again(service, size):
    content = b"x" * (size - 20) + b"the very last of it!"
    with Relay(service.server.host, [swap(1)]) as relay:
        place = service.open(relay.host)
        put(place.store, "/f", lambda: [content])
        assert not relay.faults and is_same(seen(place)["f"], content)


@over(*CHECKED)
def test_data_that_is_always_damaged_never_replaces_the_file(service):
    with Relay(service.server.host, [swap(99)]) as relay:
        place = service.open(relay.host)
        put(place.store, "/f", lambda: [b"what was there before"])
        with pytest.raises(CorruptData, match="damaged in transit"):
            put(place.store, "/f", lambda: [b"the very last of it!"])
        assert seen(place) == {"f": b"what was there before"}


@over(*ALL)
def test_failed_source_leaves_the_old_file(service):
    def pieces():
        yield b"x" * (PART + 5)
        raise PathError("the source is gone")

    place = service.open()
    put(place.store, "/f", lambda: [b"before"])
    with pytest.raises(PathError, match="gone"):
        put(place.store, "/f", pieces)
    with pytest.raises(CorruptData, match=r"got \d+ of \d+ bytes"):
        place.store.write("/f", [b"x" * PART, b"y"], PART + 2)
    assert seen(place) == {"f": b"before"}


@over("rclone")
def test_failed_upload_leaves_no_multipart_upload_behind(service):
    from openpai_tasks.storage.objects.s3.client import S3Call

    place = service.open()
    with pytest.raises(CorruptData):
        place.store.write("/f", [b"x" * PART, b"y"], PART + 2)
    uploads = place.store._bucket.document(S3Call("GET", "", {"uploads": ""}))
    assert "Upload" not in answers.fields(uploads)


TREE = {"empty": b"", "none/": None, "d/small": b"1", "d/e/f": b"22", "d/large": b"x" * (3 << 20)}


def test_small_tree_is_copied_to_a_new_rclone_server_and_back(here, tmp_path):
    """rclone keeps no folders: empty ones do not arrive, and only the first folder causes a request."""
    if reason := object_servers.missing("rclone"):
        pytest.skip(f"no rclone: {reason}")
    plant(here, {f"tree/{name}": content for name, content in TREE.items()})
    server = object_servers.Server("rclone").start()
    try:
        with Relay(server.host) as relay:
            data = s3_data(server, "new") | {"endpoint": f"http://{relay.host}"}
            place = Location(
                open_storage(StorageSpec("lab", "objects", "s3", data)), "/", "pai://lab/objects/"
            )
            assert copy(plan_copy([at(here, "tree")], at(place, "up"))).failed == ()
            assert copy(plan_copy([at(place, "up")], at(here, "back"))).failed == ()
            relay.asked.clear()
            place.store.make_folder("/up/more/folders")
            assert relay.asked == []
    finally:
        server.stop()
    assert seen(at(here, "back")) == {name: content for name, content in TREE.items() if content is not None}


@over(*ALL)
@pytest.mark.parametrize("is_whole", [True, False], ids=["right", "damaged"])
def test_file_replaced_by_another_writer_meanwhile_is_kept(service, monkeypatch, is_whole):
    place, other = service.open(), service.open()
    kind = type(place.store._bucket.begin(f"{service.folder}/none", None, PART))
    is_intact, theirs = kind.is_intact, b"t" * (PART + 7)

    def replaced(session, size, md5):
        monkeypatch.setattr(kind, "is_intact", is_intact)
        other.store.write("/f", [theirs], len(theirs))
        return is_intact(session, size, md5 if is_whole else b"another")

    monkeypatch.setattr(kind, "is_intact", replaced)
    with pytest.raises(PathError, match="another writer replaced it") as raised:
        place.store.write("/f", [b"o" * (PART + 5)], PART + 5)
    assert not isinstance(raised.value, CorruptData)  # which would be retried
    assert is_same(seen(place)["f"], theirs)


@over("s3rver", "azurite")
def test_own_upload_that_arrived_damaged_is_removed(service, monkeypatch):
    place = service.open()
    kind = type(place.store._bucket.begin(f"{service.folder}/none", None, PART))
    monkeypatch.setattr(kind, "is_intact", lambda session, size, md5: False)
    with pytest.raises(CorruptData, match="it was removed"):
        place.store.write("/f", [b"o" * (PART + 5)], PART + 5)
    assert place.store.stat("/f") is None


KILLED = """
import sys, json, time
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec
def pieces():
    for _ in range(5):
        yield b"x" * (4 << 20)
    print("sent", flush=True)
    time.sleep(60)
kind, data = json.loads(sys.stdin.readline())
open_storage(StorageSpec("lab", "objects", kind, data)).write_whole("/f", pieces(), 100 << 20)
"""


@over(*CHECKED)
def test_killed_copy_leaves_no_file_under_the_target_name(service):
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child.stdin.write(json.dumps([KINDS[service.name], service.data()]) + "\n")
    child.stdin.flush()
    assert child.stdout.readline() == "sent\n"
    child.kill()
    child.communicate()
    place = service.open()
    assert place.store.stat("/f") is None and list(place.store.list("/")) == []
    put(place.store, "/f", lambda: [b"again"])
    assert seen(place) == {"f": b"again"}


@over(*ALL)
def test_large_file_is_uploaded_in_parts_and_recognized_by_its_digest(service, here):
    content = os.urandom(2 * PART) + b"end"
    plant(here, {"f": content})
    place = service.open()
    assert copy(plan_copy([at(here, "f")], at(place, "f"))).failed == ()
    raised = place.store.digest("/f")
    assert raised == fingerprint(place.store.hasher(raised.kind), [content])
    assert copy(plan_copy([at(here, "f")], place), Rules(checksum=True)).skipped == 1
    assert copy(plan_copy([at(here, "f")], place)).skipped == 1
    assert copy(plan_copy([at(place, "f")], at(here, "back"))).failed == ()
    assert is_same(seen(here)["back"], content)
    assert here.store.stat(at(here, "f").path).mtime_ms == here.store.stat(at(here, "back").path).mtime_ms


@over("s3rver", "azurite")
def test_sync_of_unchanged_files_costs_one_listing_per_folder(service, here):
    plant(here, {f"{folder}/{number}": b"x" * number for folder in "ab" for number in range(40)})
    with Relay(service.server.host) as relay:
        place = service.open(relay.host)
        assert copy(plan_sync(here, place)).files == 80
        for source, target in ((here, place), (place, here)):
            relay.asked.clear()
            again = copy(plan_sync(source, target))
            assert (again.skipped, again.files) == (80, 0)
            assert len(relay.asked) <= 3 + 3, relay.asked  # three folders, and requests for the root


@over("s3rver", "azurite")
def test_modification_times_survive_a_copy_there_and_back(service, here):
    plant(here, {"d/small": b"1", "d/large": b"x" * (2 << 20)})
    for number, name in enumerate(("d/small", "d/large")):
        here.store.set_mtime(at(here, name).path, 1_500_000_000_123 + number)
    place = service.open()
    copy(plan_copy([at(here, "d")], at(place, "d")))
    copy(plan_copy([at(place, "d")], at(here, "back")))
    assert [here.store.stat(at(here, f"back/{name}").path).mtime_ms for name in ("small", "large")] == [
        1_500_000_000_123,
        1_500_000_000_124,
    ]


@over("s3rver")
def test_older_file_of_the_same_size_is_copied_and_not_skipped(service, here):
    plant(here, {"d/small": b"new", "d/large": b"n" * (2 << 20)})
    place = service.open()
    copy(plan_copy([at(here, "d")], at(place, "d")))
    plant(here, {"d/small": b"old", "d/large": b"o" * (2 << 20)})
    for name in ("d/small", "d/large"):
        here.store.set_mtime(at(here, name).path, 1_000_000_000_000)
    assert copy(plan_copy([at(here, "d/.")], at(place, "d"))).files == 2
    there = seen(at(place, "d"))
    assert all(is_same(there[name], content) for name, content in seen(at(here, "d")).items())


@over("rclone")
def test_long_listing_is_streamed(service):
    folder = service.server.data / object_servers.BUCKET / service.folder / "many"
    folder.mkdir(parents=True)
    for number in range(2500):
        (folder / f"{number:06d}").touch()
    with Relay(service.server.host) as relay:
        place = service.open(relay.host)
        end = time.monotonic() + 60
        while place.store.stat("/many") is None and time.monotonic() < end:  # rclone refreshes once a second
            time.sleep(0.05)
        relay.asked.clear()
        entries = place.store.list("/many")
        assert next(entries).name == "000000" and len(relay.asked) == 1
        assert sum(1 for _ in entries) == 2499 and len(relay.asked) == 3


@over("rclone", "azurite")
def test_cut_download_is_resumed(service):
    content = os.urandom(3 << 20)
    put(service.open().store, "/f", lambda: [content])
    with Relay(service.server.host, [Fault("cut", TO_CLIENT, 1 << 20, times=2)]) as relay:
        assert is_same(b"".join(service.open(relay.host).store.read("/f")), content)
        assert not relay.faults


@over("s3rver", "azurite")
def test_folder_remains_when_its_last_file_is_removed(service):
    place = service.open()
    plant(place, {"a/b/f": b"1"})
    place.store.remove("/a/b/f")
    assert seen(place) == {"a/b/": None}
    place.store.remove("/a/b")
    assert seen(place) == {"a/": None}


@over("azurite")
def test_folder_made_by_blobfuse_is_a_folder(service):
    place = service.open()
    container, root = place.store._bucket, f"{service.folder}/"
    for name in ("full", "empty"):
        blob = container._container.get_blob_client(root + name)
        container.run("", blob.upload_blob, b"", metadata={"hdi_isfolder": "true"})
    put(place.store, "/full/f", lambda: [b"1"])
    assert sorted(entry.name for entry in place.store.list("/")) == ["empty", "full"]
    assert seen(place) == {"empty/": None, "full/f": b"1"}
    place.store.remove("/full", recursive=True)
    assert seen(place) == {"empty/": None}


@over("s3rver", "azurite")
def test_threads_share_a_store(service):
    place, failed = service.open(), []

    def work(number):
        try:
            content = bytes([number]) * 100_000
            put(place.store, f"/{number}", lambda: [content])
            assert b"".join(place.store.read(f"/{number}")) == content
        except BaseException as err:
            failed.append(err)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and len(list(place.store.list("/"))) == 16


@over("azurite")
def test_a_read_only_storage_is_not_changed(service):
    store = open_storage(StorageSpec("lab", "blobs", "azureBlob", service.data(), read_only=True))
    for act in (store.make_folder, store.remove, lambda path: put(store, path, lambda: [b"1"])):
        with pytest.raises(Denied, match="read-only"):
            act("/f")


@over("azurite")
def test_each_user_has_a_folder_where_the_storage_is_not_shared(service):
    store = open_storage(StorageSpec("lab", "blobs", "azureBlob", service.data(), user="ann", share=False))
    put(store, "/f", lambda: [b"1"])
    assert seen(service.open()) == {"ann/f": b"1"}


COPIES = """
import json, sys
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.objects import upload
from openpai_tasks.storage.store import StorageSpec
from tests.memory import peak_of
upload.PART, upload.ROOM = 1 << 20, 3 << 20
kind, data, folder = json.loads(sys.argv[1])
store = open_storage(StorageSpec("lab", "objects", kind, data))
for size in ("small", "large"):
    there = Location(store, f"/{size}", "there")
    here, back = (Location(LocalStore(), f"{folder}/{name}", name) for name in (size, f"{size}-back"))
    for source, target in ((here, there), (there, back)):
        copied = copy(plan_copy([source], target))
        assert copied.files == 4 and not copied.failed, copied
    print(peak_of("self"))
"""


@memory.measurable
@over(*CHECKED)
def test_memory_use_is_bounded_however_large_the_files(service, tmp_path):
    for name, size in {"small": 1, "large": 20 << 20}.items():
        (tmp_path / name).mkdir()
        for number in range(4):
            with open(tmp_path / name / str(number), "wb") as file:
                file.truncate(size)
    data = json.dumps([KINDS[service.name], service.data(), str(tmp_path)])
    done = subprocess.run([sys.executable, "-c", COPIES, data], stdout=subprocess.PIPE, text=True, check=True)
    small, large = map(int, done.stdout.split())
    assert large - small < 65e6  # less than the files, and more than what parts of 1 MiB need


@over("rclone")
def test_s3_urls_use_the_standard_aws_settings(service, monkeypatch):
    data = service.data()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", data["endpoint"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", data["accessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", data["secretAccessKey"])
    place = locate(f"s3://{data['bucket']}/{service.folder}/100%#?.txt", None)
    put(place.store, place.path, lambda: [b"1"])
    assert seen(service.open()) == {"100%#?.txt": b"1"}
    with pytest.raises(ConfigError, match="names no bucket"):
        locate("s3:///x", None)
    with pytest.raises(ConfigError, match="names an invalid bucket 'b': expected at least two letters"):
        locate("s3://b/x", None)


@over("rclone")
def test_s3_without_credentials_says_what_to_set(service, monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{service.server.host}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        locate(f"s3://{object_servers.BUCKET}/f", None).store.stat("/f")


@over("azurite")
def test_azure_urls_use_the_standard_azure_settings(service, monkeypatch):
    data = service.data()
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    url = f"az://{data['containerName']}/{service.folder}/a b.txt"
    with pytest.raises(ConfigError, match="AZURE_STORAGE_CONNECTION_STRING"):
        locate(url, None)
    login = f"AccountName={data['accountName']};AccountKey={data['accountKey']}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"BlobEndpoint={data['dataStore']};{login}")
    place = locate(url, None)
    put(place.store, place.path, lambda: [b"1"])
    assert seen(service.open()) == {"a b.txt": b"1"}


@over("azurite")
def test_sas_token_opens_a_storage_like_a_key(service):
    from datetime import datetime, timedelta, timezone

    from azure.storage.blob import generate_container_sas

    data = service.data()
    token = generate_container_sas(
        data["accountName"],
        data["containerName"],
        account_key=data.pop("accountKey"),
        permission="rwdl",
        expiry=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    store = open_storage(StorageSpec("lab", "blobs", "azureBlob", {**data, "accountSASToken": token}))
    put(store, "/f", lambda: [b"1"])
    assert seen(Location(store, "/", "")) == {"f": b"1"}
    address = f"http://127.0.0.1:{refusing_port()}/{data['accountName']}"
    away = {**data, "accountSASToken": token, "dataStore": address}
    with pytest.raises(Unreachable) as raised:
        open_storage(StorageSpec("lab", "blobs", "azureBlob", away)).stat("/f")
    assert "sig=" not in str(raised.value)


def test_a_storage_without_a_key_does_not_get_the_azure_login_of_this_machine(monkeypatch):
    require("adlfs")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig=mine")
    data = {"containerName": "data", "accountName": "lab", "dataStore": "https://127.0.0.1:9/lab"}
    with pytest.raises(ConfigError, match="has no key"):
        open_storage(StorageSpec("lab", "blobs", "azureBlob", data))


@pytest.mark.parametrize("kind, data", [("s3", {}), ("azureBlob", {"containerName": "c"}), ("azureBlob", {})])
def test_storage_with_missing_fields_is_an_error(kind, data):
    require("adlfs")
    with pytest.raises(ConfigError, match="names no"):
        open_storage(StorageSpec("lab", "objects", kind, data))


@pytest.mark.parametrize(
    "kind, data, says",
    [
        (
            "s3",
            {"bucket": "data", "endpoint": "minio:9000"},
            "invalid url of an S3 server 'minio:9000': expected http://",
        ),
        ("s3", {"bucket": "data", "endpoint": "http://[::1"}, r"invalid url of an S3 server 'http://\[::1'"),
        ("azureBlob", {"containerName": "data", "accountName": "a", "dataStore": "nas:99999"}, "'nas:99999'"),
        (
            "azureBlob",
            {"containerName": "data", "accountName": "a", "dataStore": "http://[::1"},
            "invalid server",
        ),
    ],
)
def test_storage_with_an_invalid_address_is_an_error(kind, data, says):
    require("adlfs")
    with pytest.raises(ConfigError, match=f"^storage 'objects' of 'lab': .*{says}"):
        open_storage(StorageSpec("lab", "objects", kind, data))


@pytest.mark.parametrize(
    "setting, value, says",
    [
        ("AWS_ENDPOINT_URL", "nonsense", "^AWS_ENDPOINT_URL: invalid url of an S3 server 'nonsense'"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:99999", "^AWS_ENDPOINT_URL_S3: invalid url"),
        ("AWS_PROFILE", "no-such", "^s3://data: invalid AWS settings: .*no-such"),
    ],
)
def test_invalid_aws_settings_are_an_error(setting, value, says, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(setting, value)
    with pytest.raises(ConfigError, match=says):
        locate("s3://data/x", None)


@over("rclone")
def test_day_old_parts_of_a_killed_copy_are_removed(service, monkeypatch):
    store = service.open().store
    client, key = store._bucket, store._key("/f")

    def uploads():
        found = client.document(S3Call("GET", "", {"uploads": "", "prefix": key}))
        return [one for one in answers.children(found, "Upload") if one["Key"] == key]

    client.document(S3Call("POST", key, {"uploads": ""}))
    monkeypatch.setattr(bucket, "STALE", 3600)
    client.abort_stale(key)
    assert len(uploads()) == 1
    monkeypatch.setattr(bucket, "STALE", -1)
    client.abort_stale(key)
    assert not uploads()
