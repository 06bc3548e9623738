"""Searching the whole output of a job."""

import random

from openpai_tasks.sdk.logs import search
from openpai_tasks.sdk.logs.output import Chunk
from openpai_tasks.sdk.logs.search import search_lines


def find(words, *chunks):
    steps = search_lines([Chunk("", one) if isinstance(one, bytes) else one for one in chunks], words)
    return [(line.task, line.number, line.text) for step in steps for line in step.found]


def test_capitals_matter_only_if_the_words_have_some():
    log = b"an Error\nfine\nERROR error\n"
    assert find("error", log) == [("", 1, "an Error"), ("", 3, "ERROR error")]
    assert find("Error", log) == [("", 1, "an Error")]
    assert find("größe", "GRÖSSE\nGRÖẞE Größe\nx\nİ größe".encode()) == [
        ("", 2, "GRÖẞE Größe"),
        ("", 4, "İ größe"),
    ]


def test_all_lines_are_found_however_the_output_is_cut(monkeypatch):
    pick = random.Random(3)
    lines = [
        f"{n} " + pick.choice(["needle", "nee", "dle", ""]) * pick.choice([1, 1, 900]) for n in range(3000)
    ]
    data = "\n".join(lines).encode()
    wanted = [number for number, line in enumerate(lines, 1) if "needle" in line]
    for block in (1, 100, 1 << 20):
        monkeypatch.setattr(search, "BLOCK", block)
        chunks, at = [], 0
        while at < len(data):
            size = pick.randrange(1, 5000)
            chunks.append(data[at : at + size])
            at += size
        assert [number for _, number, _ in find("needle", *chunks)] == wanted


def test_each_task_has_its_own_numbers():
    chunks = [Chunk("a-0", b"x\nhit"), Chunk("b-0", b"hit\n"), Chunk("b-0", b"hit")]
    assert find("hit", *chunks) == [("a-0", 2, "hit"), ("b-0", 1, "hit"), ("b-0", 2, "hit")]


def test_what_is_shown_of_a_line_has_the_match_and_no_escapes():
    long = b"a" * 1_000_000 + b"\x1b[31m Needle\x1b[0m " + b"b" * 1_000_000
    ((_, number, text),) = find("needle", b"first\n" + long + b"\n")
    assert number == 2 and "Needle" in text and "\x1b" not in text and len(text) <= search.SHOWN + 1


def test_a_search_reports_how_far_it_is():
    steps = list(search_lines([Chunk("", b"line\n" * (1 << 18))] * 3, "none"))
    assert steps[-1].searched == 15 << 18 and len(steps) > 3 and not any(step.found for step in steps)
