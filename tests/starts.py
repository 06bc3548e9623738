"""Record the arguments and variables of the processes that our commands and servers start."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "TESTS_RECORD_STARTS"
"""Names the file in which a forked command, and all that it forks, record what they start."""


class Start(NamedTuple):
    """A process that was started; its variables as ``NAME=value``."""

    line: str
    variables: list[str]


def record(path: str) -> None:
    """Record every start from now on, before it happens: no process ends too early to be seen."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            _, argv, _, environment = arguments
        elif event in ("os.exec", "os.posix_spawn"):
            _, argv, environment = arguments
        elif event == "os.system":
            argv, environment = arguments[0], None
        else:
            return
        line = _text(argv) if isinstance(argv, (str, bytes, os.PathLike)) else shlex.join(map(_text, argv))
        start = Start(line, _variables(os.environ if environment is None else environment))
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(start) + "\n")

    sys.addaudithook(note)


def recorded(path: Path) -> list[Start]:
    return [Start(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _variables(environment: Mapping[Any, Any]) -> list[str]:
    return [f"{_text(name)}={_text(value)}" for name, value in environment.items()]


def _text(word: Any) -> str:
    return os.fsdecode(word).encode("utf-8", "replace").decode()
