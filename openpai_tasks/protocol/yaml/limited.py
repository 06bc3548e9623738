"""Read settings files, which a stranger may have written: as PyYAML does, but within limits."""

from __future__ import annotations

from typing import Any

import yaml

DEPTH = 100
TOO_DEEP = f"nested deeper than {DEPTH} levels"
DIGITS = 1000
ALIASED = 100_000  # values and characters that aliases may add to a document


class LimitedFlow:
    """Limits the nesting of brackets while PyYAML looks ahead, whose time grows with its square."""

    def fetch_flow_collection_start(self, kind: Any) -> None:
        loader: Any = self
        if loader.flow_level >= DEPTH:
            raise yaml.MarkedYAMLError(None, None, TOO_DEEP, loader.get_mark())
        super().fetch_flow_collection_start(kind)  # type: ignore[misc]


class _Limits(LimitedFlow):
    """What a loader adds to PyYAML's: an alias counts as much as what it stands for."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)  # type: ignore[call-arg]
        self._depth = self._size = self._aliased = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        loader: Any = super()
        event = loader.peek_event()
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._sizes:
                raise _problem(f"unknown alias *{event.anchor}, or the value contains itself", event)
            self._size += self._sizes[event.anchor]
            self._aliased += self._sizes[event.anchor]
            if self._aliased > ALIASED:
                raise _problem(f"aliases add more than {ALIASED} values and characters", event)
            return loader.compose_node(parent, index)
        self._depth += 1
        if self._depth > DEPTH:
            raise _problem(TOO_DEEP, event)
        before = self._size
        self._size += 1 + len(getattr(event, "value", ""))
        node = loader.compose_node(parent, index)
        self._depth -= 1
        if event.anchor:
            self._sizes[event.anchor] = self._size - before
        return node


def _problem(text: str, place: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(None, None, text, place.start_mark)


class Loader(_Limits, yaml.SafeLoader):
    """PyYAML's safe loader, within limits."""


def _whole_number(loader: Loader, node: Any) -> int:
    if len(node.value) > DIGITS:  # Python refuses to show it
        raise _problem(f"a number of more than {DIGITS} digits", node)
    return int(loader.construct_yaml_int(node))


Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


class TextLoader(_Limits, yaml.BaseLoader):
    """The loader that makes texts only, within limits."""


class InvalidYaml(yaml.MarkedYAMLError, ValueError):
    """Raised for a text that is not YAML, or beyond the limits; ``problem`` says why."""


def load(text: str, loader: type[Any] = Loader) -> Any:
    """Return the value of a YAML document, or raise InvalidYaml."""
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - made from SafeLoader or BaseLoader
    except yaml.MarkedYAMLError as err:
        raise InvalidYaml(err.context, err.context_mark, err.problem, err.problem_mark) from err
    except (yaml.YAMLError, ValueError, RecursionError) as err:  # also a date such as 2026-99-99
        raise InvalidYaml(None, None, str(err).partition("\n")[0], None) from err
    except (LookupError, AttributeError, TypeError, ArithmeticError) as err:  # such as `!!bool maybe`
        raise InvalidYaml(None, None, "a value does not fit its tag", None) from err
