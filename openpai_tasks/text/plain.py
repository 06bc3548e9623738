"""Make text safe for a terminal: the filter for everything that is shown.

Characters that a terminal obeys, reorders or hides are replaced by their Python escapes (``\\x1b``,
``\\u202e``), so that different names look different: control characters, bidirectional controls, zero-width
and other invisible characters, line separators, tags and lone surrogates. Joiners (U+200C, U+200D) are
replaced, as they can hide between any two letters; variation selectors are not, as they hide nothing.
"""

from __future__ import annotations

import codecs
import functools
import io
import re

UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # invisible, in several scripts
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, separators, bidi, annotations
    r"\ud800-\udfff"  # surrogates, which stand for bytes that could not be decoded
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # formats, tags
)
_HIDDEN = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # unsafe, though printable for Python
_COMMON = bytes(range(0x20, 0x7F)) + b"\n\t"
_SEQUENCE = r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
_LONGEST = 2 + 64 + 8  # characters of an unfinished sequence
_COLOUR = r"\x1b\[(?!(?:[0-9;]*;)?0*8[;m])[0-9;]*m"  # except "conceal"
_REDRAW = r"\r?\x1b\[(?:2K|1A)"


def plain(text: str) -> str:
    """Escape unsafe characters; keep newlines and tabs."""
    return text if _is_printable(text) else _pattern(f"[{UNSAFE}]").sub(_escape, text)


def one_line(text: str) -> str:
    """Escape unsafe characters, newlines and tabs."""
    is_safe = text.isascii() and text.isprintable()
    return text if is_safe else _pattern(rf"[\t\n{UNSAFE}]").sub(_escape, text)


def last_line(text: str) -> str:
    """Return the last line that is not blank, which is where programs say why they failed; may be empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""


def is_plain(text: str) -> bool:
    """Whether the text has no unsafe characters."""
    return plain(text) == text


def keep_colours(text: str) -> str:
    """Escape unsafe characters; keep newlines, tabs and colours."""
    parts = _pattern(f"({_COLOUR})").split(text)
    return "".join(part if number % 2 else plain(part) for number, part in enumerate(parts))


def keep_redraws(text: str) -> str:
    """Escape unsafe characters; keep newlines, tabs, colours, and what rich needs to redraw lines."""
    parts = _pattern(f"({_COLOUR}|{_REDRAW})").split(text)
    return "".join(part if number % 2 else plain(part) for number, part in enumerate(parts))


def escape_json(text: str) -> str:
    """Escape unsafe characters in a JSON document, without changing its meaning."""
    return text if _is_printable(text) else _pattern(f"[{UNSAFE}]").sub(_json_escape, text)


class PlainBytes:
    """Incremental filter for output; drops colours and other sequences, ends lines at carriage returns."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._idle = self._decoder.getstate()
        self._held = ""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """Return what can be shown now; keep incomplete characters and sequences for the next call."""
        if not data.translate(None, _COMMON) and not self._held and self._decoder.getstate() == self._idle:
            return data
        text = self._held + self._decoder.decode(data, final)
        if "\x1b" not in text:
            self._held = ""
            return plain(text).encode()
        last = _pattern(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8})?\Z")
        unfinished = None if final else last.search(text, max(0, len(text) - _LONGEST))
        at = unfinished.start() if unfinished else len(text)
        text, self._held = text[:at], text[at:]
        return plain(_pattern(_SEQUENCE).sub("", text)).encode()


def _is_printable(text: str) -> bool:
    """Quick check for common text, much faster than a pattern."""
    if not text.replace("\n", "").replace("\t", "").isprintable():
        return False
    return text.isascii() or not any(letter in text for letter in _HIDDEN)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern on first use: most text needs none."""
    return re.compile(text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
