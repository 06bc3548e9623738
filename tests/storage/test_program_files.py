"""Files with JSON lines that a job's program wrote are read from every kind of store."""

from openpai_tasks.sdk.logs.json_lines import FileLines, LineOrigin, list_files
from tests.storage.trees import plant

LINES = [b'{"number": %d}' % number for number in range(1000)]
TEXT = b"\n".join(LINES) + b"\n"


def test_files_of_a_kind_are_found_and_read_in_parts(there):
    tree = {
        ".pai/logs/worker-3-1.jsonl": TEXT + b"unfinished",
        ".pai/logs/my-role-0-0.jsonl": b"",
        ".pai/logs/notes.txt": b"x",
        ".pai/logs/folder-0-0.jsonl/": None,
        ".pai/metrics/worker-3-1.jsonl": b"x",
        "worker-0-0.jsonl": b"x",
    }
    plant(there, tree)
    sources = [FileLines(there.store, entry) for entry in list_files(there, "logs")]
    found = {source.origin: [*source.new(1000, is_last=False)] for source in sources}
    assert found == {LineOrigin(1, "worker", 3): LINES, LineOrigin(0, "my-role", 0): []}
    assert [line for source in sources for line in source.new(1000, is_last=True)] == [b"unfinished"]
    assert not [line for source in sources for line in source.new(1000, is_last=True)]


def test_a_job_that_wrote_nothing_has_no_files(there):
    assert not list(list_files(there, "logs"))
    plant(there, {".pai/logs": b"a file"})
    assert not list(list_files(there, "logs"))


def test_a_file_that_was_removed_ends_its_lines(there):
    plant(there, {".pai/logs/main-0-0.jsonl": TEXT})
    [source] = [FileLines(there.store, entry) for entry in list_files(there, "logs")]
    lines = source.new(1000, is_last=True)
    assert next(lines) == LINES[0]
    there.store.remove(f"{there.path.rstrip('/')}/.pai/logs/main-0-0.jsonl")
    assert b"\n".join([LINES[0], *lines]) == TEXT[:1000]
