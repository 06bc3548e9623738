"""Templates in commands, such as ``<% $parameters.lr %>``, rendered like on the real server.

The syntax is Mustache with other brackets, but only names are filled in: comments, sections, partials and
unescaped tags are removed, and names without a value are left for a later renderer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.yaml.values import SPACE, text_of, trim

OPEN, CLOSE = "<%", "%>"
LONGEST = 1_500_000  # characters; a real cluster cannot store longer commands

# Compiled on first use, as few commands render templates.
_INDEX = r"\[([0-9]+)\]"
_NUMBER = r"0|[1-9][0-9]*"
_LINE = r"[^\n]*\n|[^\n]+"
_WORD = f"([{SPACE}]+)|([^{SPACE}]+)"
_SPACES = f"[{SPACE}]*"
_MISSING = object()


class _Token(NamedTuple):
    kind: str  # text, name, or the sign after the opening bracket
    value: str


def render(template: str, names: Mapping[str, Any], in_container: bool = False) -> str:
    """Fill in the names of a template and trim it; ProtocolError if it is broken.

    The runtime in a container renders commands from the server once more: it escapes values as for HTML, and
    removes names without a value.
    """
    if OPEN not in template:
        return trim(template)
    depth, parts, length = 0, list[str](), 0
    for token in _Scanner(template).tokens():
        if token.kind in ("#", "^"):
            depth += 1
        elif token.kind == "/":
            depth -= 1
        elif depth == 0 and token.kind == "text":
            parts.append(token.value)
        elif depth == 0 and token.kind == "name":
            parts.append(_fill(token.value, names, in_container))
            length += len(parts[-1])
            if length > LONGEST:
                raise ProtocolError(f"the rendered text is longer than {LONGEST} characters")
    return trim("".join(parts))


def escape_brackets(text: str, parameter: str) -> str:
    """Escape a text so that it renders to itself if ``$parameters.<parameter>`` is the opening bracket."""
    return text.replace(OPEN, f"{OPEN} $parameters.{parameter} {CLOSE}")


def _fill(name: str, names: Mapping[str, Any], in_container: bool) -> str:
    name = re.sub(_INDEX, r".\1", name)
    value = "[object Object]" if name == "." and not in_container else _lookup(name, names)
    if value is _MISSING or value is None:
        return "" if in_container else f"{OPEN} {name} {CLOSE}"
    if not in_container:
        return text_of(value)
    import html  # not at the top, as it loads all entities' names

    return html.escape(text_of(value), quote=True)


def _lookup(name: str, names: Mapping[str, Any]) -> Any:
    """Look up a dotted path; names that begin with a dot are not split."""
    value: Any = names
    for part in name.split(".") if name.find(".") > 0 else [name]:
        value = _member(value, part)
        if value is _MISSING:
            break
    return value


def _member(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, _MISSING)
    if isinstance(value, (str, list)):
        if part == "length":
            return len(value.encode("utf-16-le")) // 2 if isinstance(value, str) else len(value)
        if re.fullmatch(_NUMBER, part) and len(part) < 10 and int(part) < len(value):
            return value[int(part)]
    return _MISSING


class _Scanner:
    """Splits a template into tokens; lines with only tags and spaces are removed."""

    def __init__(self, template: str) -> None:
        self._text = template
        self._position = 0
        self._tokens: list[_Token] = []
        self._sections: list[str] = []
        self._line = 0  # the first token of the current line
        self._sign = self._ink = False  # whether this line has a tag, and anything visible
        self._opening, self._closing = OPEN, CLOSE

    def tokens(self) -> list[_Token]:
        while self._position < len(self._text):
            self._plain(self._until(self._opening))
            if not self._take(self._opening):
                break
            self._tag()
        self._end_of_line()
        if self._sections:
            raise ProtocolError(f"template section {self._sections[-1]!r} is not closed")
        return self._tokens

    def _plain(self, text: str) -> None:
        for line in re.findall(_LINE, text):
            for blank, ink in re.findall(_WORD, line):
                self._ink = self._ink or bool(ink)
                self._tokens.append(_Token("text", blank or ink))
            if line.endswith("\n"):
                self._end_of_line()

    def _end_of_line(self) -> None:
        if self._sign and not self._ink:
            rest = self._tokens[self._line :]
            self._tokens[self._line :] = [token for token in rest if token.kind != "text"]
        self._line, self._sign, self._ink = len(self._tokens), False, False

    def _tag(self) -> None:
        start = self._position
        self._spaces()
        kind = self._text[self._position : self._position + 1]
        kind = kind if kind and kind in "#^/>{&=!" else "name"
        self._position += kind != "name"
        self._spaces()
        value = self._value(kind)
        self._spaces()
        if not self._take(self._closing):
            raise ProtocolError(f"template tag is not closed: {OPEN}{self._text[start:][:40]!r}")
        self._sign = True
        self._ink = self._ink or kind in ("name", "{", "&")
        self._tokens.append(_Token(kind, value))
        self._apply(kind, value)

    def _value(self, kind: str) -> str:
        if kind not in ("=", "{"):
            return self._until_space(self._closing)
        value = self._until_space("=" if kind == "=" else "}" + self._closing)
        self._spaces()
        self._take("=" if kind == "=" else "}")
        self._until_space(self._closing)
        return value

    def _apply(self, kind: str, value: str) -> None:
        """Apply a tag's effect on later ones: open or close a section, change the brackets."""
        if kind in ("#", "^"):
            self._sections.append(value)
        elif kind == "/":
            if not self._sections:
                raise ProtocolError(f"template section {value!r} is closed but was never opened")
            if self._sections.pop() != value:
                raise ProtocolError(f"template section {value!r} is closed before a section inside it")
        elif kind == "=":
            brackets = re.split(f"[{SPACE}]+", value)[:2]
            if len(brackets) != 2:
                raise ProtocolError(f"template tag {OPEN}= needs two brackets, got {value!r}")
            self._opening, self._closing = brackets

    def _until(self, mark: str) -> str:
        found = self._text.find(mark, self._position)
        start, self._position = self._position, found if found >= 0 else len(self._text)
        return self._text[start : self._position]

    def _until_space(self, mark: str) -> str:
        """Return the text up to the mark, without white space at its end."""
        start = self._position
        text = self._until(mark)
        if self._position < len(self._text):
            text = text.rstrip(SPACE)
            self._position = start + len(text)
        return text

    def _take(self, mark: str) -> bool:
        found = self._text.startswith(mark, self._position)
        self._position += len(mark) if found else 0
        return found

    def _spaces(self) -> None:
        match = re.compile(_SPACES).match(self._text, self._position)
        self._position = match.end() if match else self._position
