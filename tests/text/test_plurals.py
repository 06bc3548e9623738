"""Numbers with their nouns."""

from openpai_tasks.text.plurals import counted


def test_one_thing_is_not_counted_as_several():
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
