"""The filter for all text that is displayed."""

import itertools
import unicodedata

import pytest
from hypothesis import given, strategies

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.text import plain
from tests.attacks import ALL, ATTACKS, forbidden, is_forbidden, texts, without_colours

EVERY = "".join(map(chr, range(0x110000)))


def test_no_control_or_hidden_character_is_left():
    assert not forbidden(plain.plain(EVERY))
    alone = [character for character in EVERY if is_forbidden(character)]
    assert not [one for one in alone if plain.plain(one) == one or plain.escape_json(one) == one]
    assert not [one for one in alone if plain.one_line(one) == one]


def test_all_other_characters_are_kept():
    known = (character for character in EVERY if unicodedata.category(character) != "Cn")
    kept = "".join(character for character in known if not is_forbidden(character))
    assert plain.plain(kept) == kept
    assert plain.is_plain("Grüße, 漢字, émoji ❤\ufe0f, \U0001f680, عربى\n\tx")


@given(texts)
def test_filter_is_idempotent_and_one_line_has_no_line_breaks(text):
    shown = plain.plain(text)
    assert not forbidden(shown) and plain.plain(shown) == shown
    line = plain.one_line(text)
    assert not forbidden(line) and "\n" not in line and "\t" not in line


@given(texts)
def test_keep_colours_lets_only_colours_through(text):
    shown = plain.keep_colours(f"\x1b[31m{text}\x1b[0m")
    assert shown.startswith("\x1b[31m") and shown.endswith("\x1b[0m")
    assert not forbidden(without_colours(shown))


NO_COLOURS = ("\x1b[2J", "\x1b[8m", "\x1b[1;8m", "\x1b[08;1m", "\x1b]0;x\x07", "\x1bc")


@pytest.mark.parametrize("sequence", NO_COLOURS)
def test_keep_colours_rejects_other_escape_sequences(sequence):
    assert not forbidden(plain.keep_colours(f"a{sequence}b"))


@pytest.mark.parametrize("sequence", ["\x1b[0m", "\x1b[m", "\x1b[1;31m", "\x1b[38;5;28m", "\x1b[48;5;18m"])
def test_colours_are_kept(sequence):
    assert plain.keep_colours(f"a{sequence}b") == f"a{sequence}b"


def test_different_names_look_different():
    names = ["train", *(f"train{attack}" for attack in ATTACKS.values())]
    assert len({plain.one_line(name) for name in names}) == len(names)
    assert plain.one_line("a\x1b\u202e\U000e0041\udcff\n") == r"a\x1b\u202e\U000e0041\udcff\n"


@given(texts)
def test_drawn_keeps_only_colours_and_line_redraws(text):
    for steps in ("\r\x1b[2K\x1b[1A\x1b[2K", "\x1b[31m"):
        assert plain.keep_redraws(f"{steps}a") == f"{steps}a"
    shown = plain.keep_redraws(text.replace("\x1b[", "\x1b ["))
    assert not forbidden(shown)


@pytest.mark.parametrize(
    "sequence", ["\x1b[2J", "\x1b[5A", "\x1b[H", "\x1b]0;x\x07", "\x1b[?25l", "a\rb", "\x1b[8m"]
)
def test_drawn_can_neither_clear_the_screen_nor_hide_text(sequence):
    assert not forbidden(plain.keep_redraws(f"a{sequence}b"))


@pytest.mark.parametrize("kind", [NotFound, PathError])
def test_error_message_is_one_plain_line(kind):
    assert not forbidden(str(kind(f"no job {ALL}"))) and "\n" not in str(kind(ALL))
    assert str(kind("no job 'ü'")) == "no job 'ü'"


# Bytes in chunks


def piecewise(data, cuts):
    """Return the filter's output for the data, cut at these positions."""
    one, places = plain.PlainBytes(), [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    return b"".join([*map(one.feed, pieces), one.feed(b"", final=True)])


@given(texts, strategies.data())
def test_filtered_output_does_not_depend_on_chunk_boundaries(text, data):
    written = text.encode("utf-8", "surrogatepass") + b"\xff\xe4\xbd"
    cuts = data.draw(strategies.lists(strategies.integers(0, len(written))))
    shown = piecewise(written, cuts)
    assert not forbidden(shown.decode())
    assert shown == piecewise(written, ())


def test_character_split_across_chunks_is_kept():
    data = "grün 漢字 \U0001f680".encode()
    assert piecewise(data, range(len(data))) == data


def test_split_colours_are_removed_and_carriage_returns_end_lines():
    data = b"\x1b[1;31mred\x1b[0m\r\n10%\r20%\r\n\x1b[2K\x1b]0;t\x07"
    expected = b"red\n10%\n20%\n\\x1b]0;t\\x07"
    assert piecewise(data, ()) == piecewise(data, range(len(data))) == expected


def test_unterminated_sequence_holds_back_no_output():
    one = plain.PlainBytes()
    assert b"1" * 100 in one.feed(b"\x1b[" + b"1" * 200)
    assert one.feed(b"done\x1b") == b"done" and one.feed(b"", final=True) == b"\\x1b"


def test_common_output_is_not_copied():
    one, line = plain.PlainBytes(), b"a line\twith a tab\n"
    assert one.feed(line) is line
    assert one.feed("half of ü".encode()[:-1]) == b"half of "
    assert one.feed(line) == b"\\xc3" + line and one.feed(line) is line
    assert one.feed(b"10%\r") == b"10%" and one.feed(b"\n" + line) == b"\n" + line
