"""Extension of griffe that turns our docstrings into markdown: examples in blocks, commands as links."""

from __future__ import annotations

import functools
import re
from typing import Any

import griffe

from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework.contexts import Contexts

OPTIONS = "openpai_tasks.api.options."
LAZY = "openpai_tasks.lazy_dataclass.dataclass"
COMMANDS = "|".join(map(re.escape, namespace().task_names))
COMMAND = re.compile(rf"(?<!`)`({COMMANDS})((?: [^`]*)?)`(?!`)")


class Docstrings(griffe.Extension):
    """Explains fields by their comments or flags, and reads our dataclasses as the standard ones."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class:
            is_option = attr.parent.path.startswith(OPTIONS)
            found = _flag_helps().get(attr.name, "") if is_option else _comment(attr)
            attr.docstring = griffe.Docstring(_sentence(found), parent=attr) if found else None

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            call = decorator.value
            if isinstance(call, griffe.ExprCall) and call.canonical_path == LAZY:
                call.function = griffe.ExprName("dataclasses.dataclass")

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring with examples in blocks, and with links to the commands that it names."""
    return "\n\n".join(_paragraph(part) for part in text.split("\n\n"))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if "├" in text:
        return f"```text\n{text}\n```"
    return COMMAND.sub(r"[`\1\2`][\1]", text)


def _comment(attr: griffe.Attribute) -> str:
    """Return the comment behind a field."""
    return attr.lines[0].partition("  # ")[2] if attr.lines else ""


@functools.cache
def _flag_helps() -> dict[str, str]:
    """Return the help of the flags of job.sub, which options in Python stand for."""
    arguments = Contexts(namespace())["job.sub"].args.values()
    return {name.replace("-", "_"): item.help or "" for item in arguments for name in item.names}


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + "."
