"""The request of a job's ssh plugin, the public keys in it, and the step that waits for the service."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass

BARRIER_MINUTES = 30.0
BARRIER_FAILED = 249  # OpenPAI's exit code
_KEY_LINE = re.compile(
    r"(?P<type>[a-z][a-z0-9@.-]{2,60})[ \t]+(?P<key>[A-Za-z0-9+/]{20,16000}={0,2})([ \t].*)?", re.ASCII
)


@dataclass(frozen=True)
class SshRequest:
    """The SSH service that one task role asks for."""

    keys: tuple[str, ...] = ()
    job_key: bool = False  # a key pair for the tasks of the job
    must: bool = False  # the task fails without the service
    barrier: float = 0  # minutes to wait for the services of all other tasks; 0: no wait


def read(parameters: dict[str, Any], gang: bool, policy: str) -> SshRequest:
    """Read the plugin's parameters; without gang allocation there is no key for the whole job."""
    given = parameters.get("userssh")
    value = given.get("value") if isinstance(given, dict) and given.get("type") != "none" else None
    job_key = gang and _is_true(parameters.get("jobssh"))
    barrier = _minutes(parameters.get("sshbarrierTimeout")) if _is_true(parameters.get("sshbarrier")) else 0
    return SshRequest(
        keys=tuple(public_keys(value)) if isinstance(value, str) else (),
        job_key=job_key,
        must=policy == "fail" or (job_key and barrier > 0),
        barrier=barrier if job_key else 0,
    )


def public_keys(text: str) -> Iterator[str]:
    """Yield the public keys in a text, one per line; other lines are skipped."""
    for line in text.splitlines():
        match = _KEY_LINE.fullmatch(line.strip())
        if match and _key_type(match["key"]) == match["type"]:
            yield f"{match['type']} {match['key']}"


def listed_keys(items: Any) -> Iterator[str]:
    """Yield the public keys in a list of items, each with its key as ``value``."""
    for item in items if isinstance(items, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, str):
            yield from public_keys(value)


def _key_type(key: str) -> str:
    """Return the type in the key's data."""
    try:
        data = base64.b64decode(key, validate=True)
    except binascii.Error:
        return ""
    length = int.from_bytes(data[:4], "big")
    return data[4 : 4 + length].decode("ascii", "replace")


def script(request: SshRequest) -> str:
    """Return a script that waits until the service answers and, with a barrier, until all others do."""
    if not request.barrier:
        return _WAIT
    return _WAIT + _BARRIER.format(tries=max(1, round(request.barrier * 60)), code=BARRIER_FAILED)


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


def _minutes(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < math.inf else BARRIER_MINUTES


# A file instead of the folder means that the service is not where the task is, and needs no wait.
_WAIT = """\
ssh=${0%/*}/ssh
[ -e "$ssh" ] || { echo "there is no ssh service here" >&2; exit 1; }
tries=0
until [ -f "$ssh" ] || [ -e "$ssh/ready" ]; do
  if [ -e "$ssh/failed" ]; then echo "no ssh service: $(cat "$ssh/failed")" >&2; exit 1; fi
  tries=$((tries + 1))
  if [ "$tries" -gt 600 ]; then echo "no ssh service: it did not begin in time" >&2; exit 1; fi
  sleep 0.05
done
"""
_BARRIER = """\
[ -d "$ssh" ] || {{ echo "ssh barrier: tasks cannot reach each other by ssh here" >&2; exit {code}; }}
command -v ssh >/dev/null ||
  {{ echo "ssh barrier: there is no ssh here (Debian: openssh-client)" >&2; exit {code}; }}
tries=0
for host in $(sed -n 's/^Host //p' "$ssh/config"); do
  until ssh -F "$ssh/config" -o BatchMode=yes -o ConnectTimeout=5 "$host" true </dev/null >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge {tries} ]; then echo "ssh barrier: $host cannot be reached" >&2; exit {code}; fi
    sleep 1
  done
done
"""
