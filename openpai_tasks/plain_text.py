"""Text that cannot steer a terminal: the one filter of everything that is shown.

What a terminal obeys, reorders or hides is replaced by the escape that Python writes for it (``\\x1b``,
``\\u202e``), so that two names that differ look different: control characters, bidirectional controls,
zero-width and other invisible characters, line separators, tags and lone surrogates. Joiners (U+200C, U+200D)
are among them, for they hide between any two letters; variation selectors are not, as they hide nothing.
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
    r"\ud800-\udfff"  # what stands for bytes that are no text
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # formats, tags
)
_SEQUENCE = r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
_COLOUR = r"\x1b\[(?!(?:[0-9;]*;)?0*8[;m])[0-9;]*m"  # but none that conceals
_REDRAW = r"\r?\x1b\[(?:2K|1A)"


def plain(text: str) -> str:
    """Text of several lines; newlines and tabs stay."""
    return text if _is_printable(text) else _pattern(f"[{UNSAFE}]").sub(_escape, text)


def one_line(text: str) -> str:
    """Text on one line."""
    is_safe = text.isascii() and text.isprintable()
    return text if is_safe else _pattern(rf"[\t\n{UNSAFE}]").sub(_escape, text)


def is_plain(text: str) -> bool:
    """Whether nothing in the text would be replaced."""
    return plain(text) == text


def coloured(text: str) -> str:
    """Text of several lines, with its colours and nothing else that a terminal obeys."""
    parts = _pattern(f"({_COLOUR})").split(text)
    return "".join(part if number % 2 else plain(part) for number, part in enumerate(parts))


def drawn(text: str) -> str:
    """Text with its colours and what rich needs to redraw lines, and nothing else that a terminal obeys."""
    parts = _pattern(f"({_COLOUR}|{_REDRAW})").split(text)
    return "".join(part if number % 2 else plain(part) for number, part in enumerate(parts))


def in_json(text: str) -> str:
    """A JSON document that says the same, with escapes in its strings."""
    return text if _is_printable(text) else _pattern(f"[{UNSAFE}]").sub(_json_escape, text)


class PlainBytes:
    """The filter for output that comes in pieces.

    Escape sequences such as colours are left out, and a carriage return ends a line.
    """

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._held = ""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """What can be shown now; the beginning of a character or of a sequence waits for the rest."""
        text = self._held + self._decoder.decode(data, final)
        unfinished = None if final else _pattern(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8})?\Z").search(text)
        at = unfinished.start() if unfinished else len(text)
        text, self._held = text[:at], text[at:]
        return plain(_pattern(_SEQUENCE).sub("", text)).encode()


def _is_printable(text: str) -> bool:
    """Whether that is seen at once, much faster than by a pattern; blanks of other scripts are printable."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled when it is first needed: most text needs none."""
    return re.compile(text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
