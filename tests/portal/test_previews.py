"""What pages show of files, which may be anything."""

import base64
import json

import pytest

from openpai_tasks.errors import NotFound
from openpai_tasks.portal import previews
from tests.attacks import ATTACKS, forbidden

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EVIL = "<script>alert(1)</script>"


def show(name, data):
    return previews.preview(name, len(data), lambda limit: data[:limit])


def send(name, data):
    return previews.serve(name, len(data), lambda limit: data[:limit])


def notebook(*cells):
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def code(source, *outputs):
    return {"cell_type": "code", "source": source, "execution_count": 1, "outputs": list(outputs)}


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.txt", b"hello\n", "text"),
        ("a.py", "print('é')".encode(), "text"),
        ("empty", b"", "text"),
        ("utf16.txt", "hello".encode("utf-16"), "text"),
        ("model.bin", bytes(range(256)) * 10, "facts"),
        ("a.png", PNG, "image"),
        ("a.JPG", b"\xff\xd8\xff\xe0" + b"x" * 100, "image"),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image"),
        ("not-really.png", b"just text", "text"),
        ("a.csv", b"x,y\n1,2\n", "table"),
        ("a.tsv", b"x\ty\n1\t2\n", "table"),
        ("one-column.csv", b"x\n1\n", "text"),
        ("a.ipynb", notebook(code("1+1")), "frame"),
        ("broken.ipynb", b"{", "text"),
        ("deep.ipynb", b"[" * 100_000, "text"),
        ("list.ipynb", b"[]", "text"),
        ("a.html", b"<p>x", "frame"),
    ],
)
def test_content_decides_what_is_shown(name, data, kind):
    assert show(name, data).kind == kind


def test_only_the_beginning_of_a_large_text_is_read_and_shown():
    asked = []

    def read(limit):
        asked.append(limit)
        return b"x" * min(limit, 1 << 30)

    shown = previews.preview("big.log", 1 << 40, read)
    assert shown.is_cut and len(shown.text) == previews.TEXT_BYTES and max(asked) == previews.TEXT_BYTES


def test_large_pictures_and_notebooks_are_not_loaded():
    def read(limit):
        assert limit <= previews.TEXT_BYTES
        return b"\0"

    assert {previews.preview(name, 1 << 40, read).kind for name in ("a.png", "a.ipynb", "a.html")} == {
        "facts"
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_hidden_characters_of_texts_are_shown(attack):
    data = f"x{ATTACKS[attack]}y\n".encode("utf-8", "surrogatepass")
    assert not forbidden(show("a.log", data).text)


def test_tables_have_a_header_and_even_rows_and_limits():
    shown = show("a.csv", b'name;value\n"a;b";1\nc\n')
    assert shown.header == ("name", "value") and shown.rows == (("a;b", "1"), ("c", ""))
    long = show("long.csv", b"a,b\n" + b"1,2\n" * 5000)
    assert len(long.rows) == previews.ROWS and long.is_cut
    wide = show("wide.csv", b"a," * 5000 + b"\n" + b"z" * 10_000 + b",1\n")
    assert len(wide.header) == previews.COLUMNS and wide.is_cut
    assert len(wide.rows[0][0]) == previews.CELL + 1


def test_a_table_that_is_cut_has_no_half_row():
    data = b"name,value\n" + b"".join(b"row-%07d,%09d\n" % (n, n) for n in range(50_000))
    assert all(len(row[1]) == 9 for row in show("a.csv", data).rows)


def test_notebooks_become_pages():
    png = base64.b64encode(PNG).decode()
    page = send(
        "a.ipynb",
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", f"text {EVIL} [x](javascript:alert(1))"]},
            code("1 < 2", {"output_type": "stream", "text": f"\x1b[31mred\x1b[0m {EVIL}"}),
            code("plot()", {"output_type": "display_data", "data": {"image/png": png}}),
            code(
                "bad",
                {"output_type": "display_data", "data": {"image/png": '"><script>', "text/plain": "txt"}},
            ),
            code(
                "df",
                {
                    "output_type": "execute_result",
                    "data": {"text/html": "<table><tr><td>1</td></tr></table>"},
                },
            ),
            code("1/0", {"output_type": "error", "traceback": ["Trace", "ZeroDivisionError"]}),
        ),
    )
    text = bytes(page.body).decode()
    assert (
        "<h1>Title</h1>" in text
        and "1 &lt; 2" in text
        and "red &lt;script" in text
        and "ZeroDivisionError" in text
    )
    assert f"data:image/png;base64,{png}" in text and "<td>1</td>" in text and ">txt<" in text
    assert EVIL not in text and 'href="javascript' not in text and "\x1b" not in text


@pytest.mark.parametrize(
    "cells", [["x"], [{}], [{"cell_type": 1, "source": {}, "outputs": [{"data": [], "text": 5}, 7]}], [None]]
)
def test_malformed_notebooks_are_shown_as_far_as_possible(cells):
    assert "<html" in bytes(send("a.ipynb", notebook(*cells)).body).decode()


@pytest.mark.parametrize("name", ["a.html", "a.ipynb", "a.svg"])
def test_foreign_contents_are_closed_in(name):
    data = notebook() if name == "a.ipynb" else b"<svg><script>alert(1)</script></svg>"
    policy = send(name, data).headers["content-security-policy"]
    assert {"sandbox", "default-src 'none'", "frame-ancestors 'self'"} <= set(policy.split("; "))
    assert "allow-" not in policy and "script-src" not in policy


def test_only_pictures_and_pages_are_served():
    for name, data in (("a.txt", b"x"), ("a.bin", b"\0"), ("a.js", b"alert(1)"), ("fake.png", b"<script>")):
        with pytest.raises(NotFound):
            send(name, data)


@pytest.mark.parametrize(
    "name",
    ["a.txt", "Bericht für K.csv", 'a"b\\c/../d', "x\r\nset-cookie: a=b", "\u202egnp.exe", "", "\udcff"],
)
def test_downloads_have_a_safe_name(name):
    header = previews.download(name, None, [b"x"]).headers["content-disposition"]
    assert header.isascii() and header.isprintable() and header.startswith("attachment; filename=")
    quoted = header.partition('filename="')[2].partition('"')[0]
    assert quoted and "/" not in quoted and "\\" not in quoted
    assert header.count('"') == 2
