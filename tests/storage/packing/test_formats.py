"""Other programs read our shards, and we read theirs: tar, the tfrecord package, Hadoop itself."""

from __future__ import annotations

import io
import itertools
import os
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.files import packing
from openpai_tasks.storage.copying.copy import Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.packing import example, sequencefile, tar, tfrecord
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.packed_set import open_set
from openpai_tasks.storage.packing.tar import TarEncoder
from tests.needs import require
from tests.storage import hdfs_jars
from tests.storage.hdfs_server import JAVA, SHELL
from tests.storage.trees import at, plant, seen

SAMPLES = {
    "a/0001.cls": b"7",
    "a/0001.jpg": b"\xff\xd8" + bytes(range(256)) * 9,
    "a/0002.cls": b"",
    "a/0002.jpg": b"x" * 5000,
    "b/é 猫\nline.txt": b"odd",
    "b/none/": None,
}
FILES = {name: data for name, data in SAMPLES.items() if data is not None}


@pytest.fixture
def shards(here):
    """Pack the samples and return the paths of the shards."""
    plant(at(here, "tree"), SAMPLES)

    def make(format, **options):
        rules = packing.packing_rules(at(here, "tree"), format, options.pop("shard_size", "1G"), "x")
        packing.pack(at(here, "tree"), at(here, "set"), rules, Watch())
        found = sorted(entry.path for entry in here.store.list(at(here, "set").path))
        return [path for path in found if not path.endswith(".jsonl")]

    return make


def scanned(here, name):
    packing.unpack(at(here, name), at(here, "back"), Rules(), Watch())
    return seen(at(here, "back"))


def test_tar_itself_unpacks_a_shard(shards, tmp_path):
    (shard,) = shards("tar")
    (tmp_path / "out").mkdir()
    done = subprocess.run(["tar", "-xf", shard, "-C", tmp_path / "out"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    there = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert there == FILES and (tmp_path / "out/b/none").is_dir()


def test_samples_are_read_as_webdataset_reads_them(shards):
    """Its rule: the first dot of the file name separates the sample from the field."""
    samples = []
    for shard in shards("tar", shard_size="8K"):
        here = {}
        with tarfile.open(shard) as archive:
            for member in filter(tarfile.TarInfo.isreg, archive):
                folder, _, last = member.name.rpartition("/")
                stem, _, field = last.partition(".")
                here.setdefault(f"{folder}/{stem}", {})[field] = archive.extractfile(member).read()
        samples += here.items()
    assert [name for name, _ in samples] == ["a/0001", "a/0002", "b/é 猫\nline"]
    assert samples[0][1] == {"cls": b"7", "jpg": SAMPLES["a/0001.jpg"]}


HARD_NAMES = (
    "a",
    "a/" * 40 + "x",
    "n" * 100,
    "n" * 101,
    "é",
    "new\nline",
    "\udcff",
    "space here/" * 30 + "x",
)
HARD_SIZES = (0, 1, 512, 0o77777777777, 0o77777777777 + 1, 1 << 43)
HARD_TIMES = (0, 1_700_000_000_123, -5000, 1 << 48)


@pytest.mark.parametrize("name", HARD_NAMES, ids=range(len(HARD_NAMES)))
def test_headers_are_read_by_tarfile(name):
    for size, mtime_ms, is_folder in itertools.product(HARD_SIZES, HARD_TIMES, (False, True)):
        member = PackMember(name, "/x", is_folder, 0 if is_folder else size, mtime_ms, 0o640, name)
        head = TarEncoder([]).before(member, 0)
        assert len(head) % 512 == 0
        with tarfile.open(fileobj=io.BytesIO(head), errors="surrogateescape") as archive:
            found = archive.firstmember
        assert (found.name, found.size, found.mode) == (name, member.size, 0o640)
        assert (int(found.mtime), found.isdir()) == (mtime_ms // 1000, is_folder)
        assert found.uid == found.gid == 0


def test_the_tfrecord_package_reads_a_shard(shards):
    require("tfrecord")
    from tfrecord import reader

    (shard,) = shards("tfrecord")
    rows = list(
        reader.tfrecord_loader(
            shard, None, {"name": "byte", "content": "byte", "mode": "int", "mtime_ms": "int"}
        )
    )
    assert {bytes(row["name"]).decode(): bytes(row["content"]) for row in rows} == FILES
    assert {int(row["mode"][0]) for row in rows} == {0o600}


def test_file_written_by_the_tfrecord_package_is_read(here):
    require("tfrecord")
    from tfrecord import writer

    made = writer.TFRecordWriter(at(here, "theirs.tfrecord").path)
    made.write({"image": (b"pixels", "byte"), "label": (3, "int")})
    made.write({"name": (b"sub/a.bin", "byte"), "content": (b"\0\1\2", "byte")})
    made.close()
    found = scanned(here, "theirs.tfrecord")
    assert found["sub/a.bin"] == b"\0\1\2"
    assert set(example.features(found["theirs-00000000"])) == {"image", "label"}


def test_example_is_read_back_unchanged():
    for size in (0, 1, 127, 128, 20_000):
        facts = {"name": b"x" * size, "mode": 0o644, "mtime_ms": -1, "big": (1 << 63) - 1}
        record = example.head(facts, "content", size) + b"c" * size
        found = example.features(record)
        assert (found["mode"], found["mtime_ms"], found["big"]) == (0o644, -1, (1 << 63) - 1)
        assert record[found["name"].start : found["name"].end] == b"x" * size
        assert record[found["content"].start : found["content"].end] == b"c" * size


@pytest.mark.parametrize("record", [b"\xff" * 20, b"\x0a\x7f", b"\x0a", b"\x07\x01", b"\x00\x00"])
def test_bytes_that_are_not_an_example_are_an_error(record):
    with pytest.raises(ValueError, match=r"not a protobuf|without an end"):
        example.features(record)


def test_masked_crc_equals_that_of_tensorflow():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert crc32c(b"456789", crc32c(b"123")) == 0xE3069283
    assert tfrecord.masked(0) == 0xA282EAD8
    assert (
        tfrecord.masked(0xE3069283)
        == (((0xE3069283 >> 15) | (0xE3069283 << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32
    )


@pytest.mark.parametrize("offset", [0, 5, 9, 20, -2])
def test_damaged_tfrecord_is_an_error(shards, here, offset):
    (shard,) = shards("tfrecord")
    with open(shard, "r+b") as file:
        file.seek(offset, 0 if offset >= 0 else 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 255]))
    with pytest.raises(PathError, match=r"record [04] is damaged"):
        open_set(at(here, f"set/{os.path.basename(shard)}"))


@pytest.mark.parametrize("format", ["tar", "tfrecord", "sequencefile"])
def test_shard_without_an_index_is_read_and_a_truncated_shard_is_an_error(shards, here, format):
    (shard,) = shards(format)
    name = f"set/{os.path.basename(shard)}"
    found = {name: data for name, data in scanned(here, name).items() if data is not None}
    assert found == FILES
    size = os.stat(shard).st_size
    for less in (1024 if format == "tar" else 1, size // 2, size - 3):
        os.truncate(shard, size - less)
        with pytest.raises(PathError, match=r"cut|damaged"):
            open_set(at(here, name))


def test_shards_without_an_index_are_read_by_a_pattern(shards, here):
    assert len(shards("tar", shard_size="8K")) > 1
    os.unlink(at(here, "set/index.jsonl").path)
    assert scanned(here, "set/x-*.tar") == SAMPLES


def test_shards_of_several_formats_are_an_error(here):
    plant(here, {"x/a.tar": b"", "x/b.seq": b"", "x/c.zip": b""})
    with pytest.raises(PathError, match="several formats"):
        open_set(at(here, "x/[ab].*"))
    with pytest.raises(PathError, match="is not a shard: its name must end with"):
        open_set(at(here, "x/c.zip"))


def bad(kind, **facts):
    info = tarfile.TarInfo(facts.pop("name", "evil"))
    info.type = kind
    for name, value in facts.items():
        setattr(info, name, value)
    return info


@pytest.mark.parametrize(
    "info",
    [
        bad(tarfile.SYMTYPE, linkname="/etc"), bad(tarfile.LNKTYPE, linkname="../x"),
        bad(tarfile.CHRTYPE), bad(tarfile.BLKTYPE), bad(tarfile.FIFOTYPE),
        bad(tarfile.REGTYPE, name="../evil"), bad(tarfile.REGTYPE, name="/evil"),
        bad(tarfile.DIRTYPE, name="../evil"), bad(tarfile.REGTYPE, name="a/../../evil"),
    ],
    ids=lambda info: f"{info.type}{info.name}",
)  # fmt: skip
def test_tar_with_links_devices_or_escaping_names_is_refused(here, info):
    with tarfile.open(at(here, "x.tar").path, "w") as archive:
        archive.addfile(bad(tarfile.REGTYPE, name="good"))
        archive.addfile(info)
    with pytest.raises(PathError, match=r"evil.*refused"):
        packing.unpack(at(here, "x.tar"), at(here, "back"), Rules(), Watch())
    assert here.store.stat(at(here, "back").path) is None


def test_escaping_names_in_records_are_refused(here):
    member = PackMember("../evil", "/x", False, 2, 0, 0o644, "../evil")
    for form, name in ((tfrecord.FORMAT, "x.tfrecord"), (sequencefile.FORMAT, "x.seq")):
        made = form.encoder([member])
        head = made.head()
        before = made.before(member, len(head))
        made.update(b"hi")
        plant(here, {name: head + before + b"hi" + made.after(member)})
        with pytest.raises(PathError, match=r"\.\./evil.*refused"):
            open_set(at(here, name))


CORE_SITE = """<configuration><property><name>io.serializations</name>
<value>org.apache.hadoop.io.serializer.WritableSerialization</value></property></configuration>"""


def test_hadoop_itself_reads_a_shard(shards, tmp_path):
    """``hdfs dfs -text`` prints the records of a SequenceFile: the key, and the value in hexadecimal."""
    if reason := hdfs_jars.missing():
        pytest.skip(f"no Hadoop: {reason}")
    (shard,) = shards("sequencefile")
    (tmp_path / "core-site.xml").write_text(CORE_SITE)  # without Avro, which Hadoop would load
    command = [*JAVA, *hdfs_jars.class_path(tmp_path), SHELL, "-text", f"file://{shard}"]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode()
    for name, data in FILES.items():
        assert f"{name}\t{data.hex(' ')}\n" in lines
    assert len(lines) == sum(len(f"{name}\t{data.hex(' ')}\n") for name, data in FILES.items())


def test_sequence_file_has_sync_marks_at_intervals(shards):
    (shard,) = shards("sequencefile")
    content = Path(shard).read_bytes()
    header = sequencefile.SequenceEncoder([]).head()
    sync = content[len(header) - 16 : len(header)]
    marks = [at for at in range(len(content)) if content.startswith(sequencefile.ESCAPE + sync, at)]
    assert content.startswith(
        b"SEQ\x06\x19org.apache.hadoop.io.Text\x22org.apache.hadoop.io.BytesWritable\0\0"
    )
    assert len(marks) == 2  # after the 2306 bytes of 0001.jpg, and after the 5000 of 0002.jpg
    for mark in marks:
        length, key = struct.unpack_from(">ii", content, mark + 20)
        assert 0 < key < length < len(content)


def test_variable_length_integers_are_written_like_hadoop():
    assert sequencefile.vint(0) == b"\0" and sequencefile.vint(127) == b"\x7f"
    assert sequencefile.vint(128) == b"\x8f\x80" and sequencefile.vint(255) == b"\x8f\xff"
    assert sequencefile.vint(256) == b"\x8e\x01\x00" and sequencefile.vint(1 << 16) == b"\x8d\x01\x00\x00"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"SEQ\x06", b"SEQ\x05", "not a SequenceFile of version 6"),
        (b"hadoop.io.Text", b"hadoop.io.Next", "only Text to BytesWritable"),
        (b"BytesWritable\0", b"BytesWritable\1", "compressed"),
        (b"a/0001.cls\0\0\0\x01", b"a/0001.cls\0\0\0\x02", "do not agree"),
    ],
)
def test_invalid_sequence_file_is_an_error(shards, here, old, new, reason):
    (shard,) = shards("sequencefile")
    content = Path(shard).read_bytes()
    assert content.count(old) >= 1
    plant(here, {"y.seq": content.replace(old, new, 1)})
    with pytest.raises(PathError, match=reason):
        open_set(at(here, "y.seq"))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_header_that_claims_to_be_huge_is_refused(tmp_path, kind):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 42
    (tmp_path / "t.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT))
    os.truncate(tmp_path / "t.tar", (1 << 42) + 4096)  # sparse
    with (tmp_path / "t.tar").open("rb") as file, pytest.raises(PathError, match="a header has"):
        tar.FORMAT.scan(file, "t.tar", 0, Index("tar"))


def test_tar_whose_reading_would_go_back_is_refused(here):
    member = bad(tarfile.REGTYPE, name="evil", size=-1024).tobuf(tarfile.GNU_FORMAT)
    folders = [bad(tarfile.DIRTYPE, name=name).tobuf(tarfile.GNU_FORMAT) for name in "abc"]
    plant(here, {"x.tar": b"".join([*folders, member, bytes(1024)])})
    with pytest.raises(
        PathError, match=r"evil.*refused|damaged header"
    ):  # newer Pythons refuse it themselves
        open_set(at(here, "x.tar"))


def long_record(size):
    head = tfrecord.LENGTH.pack(size)
    return head + tfrecord.CRC.pack(tfrecord.masked(crc32c(head))) + bytes(100)


@pytest.mark.parametrize(
    "name, content, reason",
    [
        ("x.seq", sequencefile.MAGIC + b"\x80" + b"\xff" * 16 + bytes(100), "a text has"),
        ("x.seq", sequencefile.MAGIC + b"\x89\0\0\0\x7f\xff\xff\xff" + bytes(100), "a text has"),
        ("x.seq", sequencefile.MAGIC + b"\xff" + bytes(100), "cut at byte"),
        ("x.tfrecord", long_record(1 << 62), "record 0 is cut"),
        ("x.tfrecord", long_record((1 << 64) - 1), "record 0 is cut"),
    ],
)
def test_crafted_set_ends_in_one_line(here, name, content, reason):
    plant(here, {name: content})
    with pytest.raises(PathError, match=reason):
        open_set(at(here, name))


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"what":' * 100_000])
def test_deeply_nested_index_is_refused(line):
    with pytest.raises(PathError, match="is not an index of packed files"):
        indexes.read([line + b"\n"], "x")


def test_index_without_line_ends_is_refused(monkeypatch):
    monkeypatch.setattr(indexes, "LONGEST", 1 << 20)
    with pytest.raises(PathError, match="a line is longer than 1 MB"):
        indexes.read(itertools.repeat(b" " * 1000), "x")
