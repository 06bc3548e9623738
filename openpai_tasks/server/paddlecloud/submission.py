"""A submission: the values of its JSON body, checked before anything happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from openpai_tasks.errors import ApiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.paddlecloud import places
from openpai_tasks.settings.engines import DEFAULT_PADDLE_IMAGE

DEFAULT_NAME = "paddle-cluster-job"
DEFAULT_MEMORY_MB = 1024  # of all clients, too
LONGEST_NAME = 55  # with ``-trainer``, a label of Kubernetes
LONGEST_TEXT = 64 * 1024
MOST = 10**9

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_IMAGE = re.compile(r"\w[\w./:@+-]{0,254}", re.ASCII)
_QUANTITY = re.compile(
    r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,2}))?", re.ASCII
)
_BINARY = {f"{sign}i": 1024 ** (power + 1) for power, sign in enumerate("KMGTPE")}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL = {sign: Fraction(10) ** power for sign, power in _POWERS.items()}


@dataclass(frozen=True)
class PaddleSubmission:
    name: str
    datacenter: str
    entry: str
    topology: str
    image: str
    trainers: int
    cpu: int
    gpu: int
    memory_mb: int
    pservers: int
    pserver_cpu: int
    pserver_memory_mb: int
    passes: int
    fault_tolerant: bool
    package: str = ""
    """The path of the package on PFS; "" for the folder of the job."""
    folder: str = ""
    """The name of the folder that was uploaded, as the client's user knows it."""
    is_designed: bool = False
    """Whether the body is that of the design document, whose answer differs from the released server's."""


def read_submission(body: Any) -> PaddleSubmission:
    """Check a body; raise with one line that names the first problem."""
    if not isinstance(body, dict):
        raise _invalid("the body is not a JSON object")
    entry, topology = _text(body, "entry"), _text(body, "topology")
    if not entry.strip() and not topology.strip():
        raise _invalid("no topology or entry specified")
    package, typed = _text(body, "job_package"), _text(body, "jobPackage")
    datacenter = _text(body, "datacenter") or places.datacenter_of(package)
    if not datacenter:
        raise _invalid("no datacenter specified")
    if package and places.datacenter_of(package) != datacenter:
        raise _invalid(
            f"invalid job_package {package[:80]!r}: expected /pfs/{datacenter[:80]}/home/USER/PATH"
        )
    if _text(body, "registry"):
        raise _invalid("this cluster keeps no credentials of registries: submit without registry")
    return PaddleSubmission(
        name=check_name(_text(body, "name") or DEFAULT_NAME),
        datacenter=places.check_datacenter(datacenter),
        entry=entry if entry.strip() else "",
        topology=topology,
        image=_image(_text(body, "image") or DEFAULT_PADDLE_IMAGE),
        trainers=_count(body, "parallelism", 1, least=1),
        cpu=_count(body, "cpu", 1),
        gpu=_count(body, "gpu", 0),
        memory_mb=_memory(body, "memory"),
        pservers=_count(body, "pservers", 1),
        pserver_cpu=_count(body, "pscpu", 1),
        pserver_memory_mb=_memory(body, "psmemory"),
        passes=_count(body, "passes", 1),
        fault_tolerant=body.get("faulttolerant") in (True, "true"),
        package=package,
        folder=re.split(r"[/\\]", typed.rstrip("/\\"))[-1][:255],
        is_designed=bool(package) and "jobPackage" not in body,
    )


def check_name(name: str) -> str:
    """Return the name of a job; raise unless it is a DNS label."""
    if len(name) > LONGEST_NAME or not _LABEL.fullmatch(name):
        rule = f"lower case letters, digits and '-', at most {LONGEST_NAME}, not '-' at an end"
        raise _invalid(f"invalid job name {name[:80]!r}: expected {rule}")
    return name


def parse_memory(text: str) -> int:
    """Return the megabytes of a Kubernetes quantity such as ``10Gi``, rounded up."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise _invalid(f"invalid memory {text[:80]!r}: expected a quantity such as 10Gi or 512Mi")
    number, binary, decimal, exponent = match.groups()
    factor = Fraction(_BINARY[binary]) if binary else _DECIMAL[decimal] if decimal else Fraction(1)
    if exponent:
        factor = Fraction(10) ** int(exponent)
    megabytes = -(-Fraction(number.rstrip(".") if number[0] != "." else f"0{number}") * factor // 2**20)
    return min(int(megabytes), MOST)


def memory_text(megabytes: int) -> str:
    """Return an amount of memory as a Kubernetes quantity."""
    return f"{megabytes}Mi" if megabytes % 1024 else f"{megabytes // 1024}Gi" if megabytes else "0"


def _invalid(message: str) -> ApiError:
    return ApiError(message, 400)


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or "\0" in value:
        raise _invalid(f"invalid {key}: expected text of at most {LONGEST_TEXT} characters")
    return value


def _image(name: str) -> str:
    if not _IMAGE.fullmatch(name):
        raise _invalid(f"invalid image name {name[:80]!r}")
    return name


def _memory(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"invalid {key}: expected a quantity such as 10Gi or 512Mi")
    return parse_memory(value) if value else DEFAULT_MEMORY_MB


def _count(body: Mapping[str, Any], key: str, default: int, least: int = 0) -> int:
    value = body.get(key, default)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,12}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise _invalid(f"invalid {key} {str(value)[:80]!r}: expected a whole number of at least {least}")
    return value
