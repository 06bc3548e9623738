"""The help of the program."""

from __future__ import annotations

from openpai_tasks.paddlecloud.go_flags import SWITCH, Option
from openpai_tasks.paddlecloud.verbs import EVERYWHERE, VERBS, Verb


def overview() -> str:
    """Return the list of commands."""
    wide = max(len(verb.name) for verb in VERBS)
    rows = [
        f"  {verb.name:{wide}}  {verb.summary}" + (f" (also: {', '.join(verb.older)})" if verb.older else "")
        for verb in VERBS
    ]
    head = "usage: paddlecloud COMMAND [options] WORDS; options may stand anywhere: -x v, -x=v, --x v"
    tail = "`paddlecloud help COMMAND` shows the options of one, `paddlecloud version` the version."
    return "\n".join([head, "", *rows, "", tail])


def page(verb: Verb) -> str:
    """Return the usage and the options of a command."""
    options = [*verb.options, *EVERYWHERE]
    names = [_spelt(option) for option in options]
    wide = max(map(len, names))
    rows = [
        f"  {name:{wide}}  {option.help}" + (f" (default: {option.default})" if option.default else "")
        for name, option in zip(names, options, strict=True)
    ]
    return "\n".join([verb.summary, "", f"usage: {verb.usage}", *_more(verb), "", *rows])


def _more(verb: Verb) -> list[str]:
    return [f"also:  paddlecloud {name}" for name in verb.older]


def _spelt(option: Option) -> str:
    names = ", ".join(f"-{name}" for name in (option.name, option.short) if name)
    return names if option.kind is SWITCH else f"{names} {'N' if option.kind is int else 'VALUE'}"
