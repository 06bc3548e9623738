"""The options of a submission, checked before anything is sent."""

from __future__ import annotations

import re
from dataclasses import Field, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass

DEFAULT_NAME = "paddle-cluster-job"
DEFAULT_ENTRY = "paddle train"
LONGEST_NAME = 55  # a label of Kubernetes has 63 characters, and `-trainer` is added to the name

_NAME = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_QUANTITY = (
    r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[mkMGTPE]|[eE][+-]?[0-9]{1,2})?"  # of Kubernetes
)
_IMAGE = r"[!-~]*"


class InvalidArgument(ConfigError):
    """Raised for an invalid value on the command line, before anything is sent."""


def _option(
    default: Any, about: str, short: str = "", shown: str | None = None, least: int | None = None
) -> Any:
    """Declare an option of `submit`; ``shown`` is its default in words, and ``least`` its smallest number."""
    words = shown if shown is not None else "" if default is False else str(default)
    return field(default=default, metadata={"about": about, "short": short, "shown": words, "least": least})


@dataclass(frozen=True)
class PaddleRequest:
    """The options of `submit`; amounts are for each trainer or parameter server."""

    package: str
    jobname: str = _option("", "name of the job", shown=f"{DEFAULT_NAME}, with a number if that is taken")
    parallelism: int = _option(1, "number of trainers", "p", least=1)
    cpu: int = _option(1, "cores of a trainer", "c", least=1)
    gpu: int = _option(0, "GPUs of a trainer", least=0)
    memory: str = _option("1Gi", "memory of a trainer, such as 512Mi or 10Gi", "m")
    pservers: int | None = _option(None, "number of parameter servers", shown="as many as trainers", least=0)
    pscpu: int = _option(1, "cores of a parameter server", least=1)
    psmemory: str = _option("1Gi", "memory of a parameter server")
    entry: str = _option(
        "", "command that each trainer runs in the package", "e", f"{DEFAULT_ENTRY}, without -topology"
    )
    topology: str = _option("", "Python file of the package that each trainer runs", "t")
    passes: int = _option(1, "number of passes over the data", least=1)
    image: str = _option("", "Docker image of the job", shown="the datacenter's")
    registry: str = _option("", "name of the registry's secret, for a private image")
    faulttolerant: bool = _option(False, "continue the job without trainers that failed")
    min_instance: int = _option(1, "smallest number of trainers of a fault-tolerant job", least=1)
    max_instance: int = _option(1, "largest number of trainers of a fault-tolerant job", least=1)


class Option(NamedTuple):
    """An option of a command, from which the task and the program take theirs."""

    name: str
    kind: type
    about: str
    short: str = ""
    shown: str = ""  # its default in words
    default: Any = None
    least: int | None = None

    def help(self, known: Any = None) -> str:
        """Return what it means, with its default unless ``known`` says the same."""
        is_shown = self.shown not in ("", str(known))
        return f"{self.about} (default: {self.shown})" if is_shown else self.about


_KINDS = {"str": str, "int": int, "int | None": int, "bool": bool}
OPTIONS = tuple(  # without fields(), which would generate the methods
    Option(name, _KINDS[kind], default=one.default, **one.metadata)
    for name, kind in PaddleRequest.__annotations__.items()
    if isinstance(one := vars(PaddleRequest).get(name), Field)
)


def check_request(request: PaddleRequest) -> None:
    """Raise InvalidArgument for the first value that the cluster would refuse."""
    if request.jobname:
        check_job_name(request.jobname)
    for option in OPTIONS:
        if option.least is not None:
            _check_number(option.name, getattr(request, option.name), option.least)
    for name, value in {"memory": request.memory, "psmemory": request.psmemory}.items():
        if not re.fullmatch(_QUANTITY, value) or not re.search("[1-9]", re.split("[eE]", value)[0]):
            raise InvalidArgument(
                f"-{name} needs a quantity of Kubernetes such as 512Mi or 10Gi, got {value!r}"
            )
    if request.min_instance > request.max_instance:
        raise InvalidArgument(
            f"-min_instance {request.min_instance} is more than -max_instance {request.max_instance}"
        )
    for name in ("image", "registry"):
        if not re.fullmatch(_IMAGE, getattr(request, name)):
            raise InvalidArgument(f"-{name} cannot contain spaces, got {getattr(request, name)!r}")
    _check_start(request)


def check_job_name(name: str) -> None:
    """Raise unless Kubernetes takes the name as a label, with `-trainer` behind it."""
    if not re.fullmatch(_NAME, name) or len(name) > LONGEST_NAME:
        rule = f"lower-case letters, digits and '-' inside, at most {LONGEST_NAME} characters"
        near = re.sub(r"[^a-z0-9]+", "-", name.lower(), flags=re.ASCII).strip("-")[:LONGEST_NAME].strip("-")
        hint = f", such as {near}" if near else ""
        raise InvalidArgument(f"invalid job name {name!r}: use {rule}{hint}")


def _check_number(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"-{name} needs a whole number, got {value!r}")
    if not least <= value < 1 << 31:
        raise InvalidArgument(f"-{name} must be at least {least} and less than 2147483648, got {value}")


def _check_start(request: PaddleRequest) -> None:
    for name in ("entry", "topology"):
        if (value := getattr(request, name)) and not value.strip():
            raise InvalidArgument(f"-{name} is blank: leave it out, or name what the trainers run")
    for name in ("entry", "topology"):
        if "\0" in getattr(request, name):
            raise InvalidArgument(f"-{name} cannot contain NUL")
    path = PurePosixPath(request.topology)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidArgument(f"-topology names a file inside the package, got {request.topology!r}")
