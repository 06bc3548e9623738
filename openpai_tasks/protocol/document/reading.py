"""Read a job document back into the request that it was built from."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import job_storage, kept_files, scripts
from openpai_tasks.protocol.document.build import BRACKET, IMAGE, build_document
from openpai_tasks.protocol.document.folding import own_commands
from openpai_tasks.protocol.document.policy import KEY as POLICY
from openpai_tasks.protocol.document.policy import read_policy, read_priority, without_priority
from openpai_tasks.protocol.document.ports import MARK as PORTS
from openpai_tasks.protocol.document.ports import listening_ports
from openpai_tasks.protocol.document.request import JobRequest
from openpai_tasks.protocol.document.roles import DEFAULTS
from openpai_tasks.protocol.document.template import OPEN, escape_brackets
from openpai_tasks.protocol.fields import count, mapping, rows, text, texts, whole

_EXPORT = re.compile(r"export ([A-Za-z_]\w*)=(.*) \|\| exit 1", re.DOTALL)
_SECRET = re.compile(r"<% \$secrets\.([A-Za-z_]\w*) %>")
_INSTALL = ["-m", "pip", "install"]

Document = dict[str, Any]


def read_request(document: Document) -> tuple[JobRequest, list[str]]:
    """Return the request for a document of one role, and the parts that a request cannot express."""
    roles = mapping(document.get("taskRoles"))
    if len(roles) != 1:
        return JobRequest(), ["several task roles"]
    [(name, role)] = roles.items()
    request = _from_role(document, str(name), mapping(role))
    steps, others = read_steps(document, str(name))
    try:
        built = build_document(dataclasses.replace(request, name="job"))
    except ProtocolError as err:
        return request, [str(err)]
    left = [*_differences(_comparable(document), _comparable(built)), *others]
    return dataclasses.replace(request, **steps), list(dict.fromkeys(left))


def _from_role(document: Document, name: str, role: Mapping[str, Any]) -> JobRequest:
    asked, extras = mapping(role.get("resourcePerInstance")), mapping(document.get("extras"))
    images = {one.get("name"): text(one.get("uri")) for one in rows(document.get("prerequisites"))}
    counts = {str(label): count(number) for label, number in mapping(asked.get("ports")).items()}
    own = (DEFAULTS, PORTS, POLICY)
    return JobRequest(
        command=own_commands(document)[name],
        role=name,
        image=images.get(text(role.get("dockerImage")), ""),
        cpu=whole(asked.get("cpu")),
        gpu=whole(asked.get("gpu")),
        memory_mb=whole(asked.get("memoryMB")),
        is_memory_asked=DEFAULTS not in extras,
        shm_mb=whole(mapping(role.get("extraContainerOptions")).get("shmMB")),
        instances=count(role.get("instances", 1)),
        ports=counts | listening_ports(document, name),
        virtual_cluster=text(mapping(document.get("defaults")).get("virtualCluster")),
        retries=count(document.get("jobRetryCount")),
        max_seconds=read_time_limit(role),
        policy=read_policy(extras),
        extras={key: value for key, value in without_priority(extras).items() if key not in own},
        priority=read_priority(extras) or "",
    )


def read_time_limit(role: Mapping[str, Any]) -> int | None:
    """Return the seconds after which a role's commands are ended, if they are limited."""
    first = next(iter(job_storage.unwrap(texts(role.get("commands")))), "")
    return scripts.time_limit(first) if scripts.unlimited(first) != first else None


def read_steps(document: Document, role: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of the request that become steps before the command, and other steps."""
    found: dict[str, Any] = {"environment": {}, "secrets": {}}
    others = []
    for step in _steps(document, role):
        step = step.replace(escape_brackets(OPEN, BRACKET), OPEN)
        if secret := _read_secret(step):
            found["secrets"][secret] = ""
        elif export := _read_export(step):
            found["environment"] |= export
        elif install := _read_install(step):
            found["python"], found["pip_installs"] = install
        elif job_storage.is_output(step):
            found["outputs"] = kept_files.read_mark(step)
        elif not step.startswith(scripts.MARK):
            others.append("deployments")
    return found, others


def _steps(document: Document, role: str) -> Iterator[str]:
    chosen = mapping(document.get("defaults")).get("deployment")
    for one in rows(document.get("deployments")):
        around = mapping(mapping(one.get("taskRoles")).get(role))
        if one.get("name") == chosen:
            yield from texts(around.get("preCommands"))
        yield from texts(around.get("postCommands"))


def _read_export(step: str) -> dict[str, str]:
    match = _EXPORT.fullmatch(step)
    try:
        [value] = shlex.split(match[2]) or [""] if match else [None]
    except ValueError:
        return {}
    if match is None or value is None or scripts.step(scripts.export(match[1], value)) != step:
        return {}
    return {match[1]: value}


def _read_secret(step: str) -> str:
    """Return the name of the secret that a step exports; plain values are exported in another way."""
    match = _SECRET.search(step)
    ways = {scripts.step(scripts.export_secret(match[1], value)) for value in ("plain", "&")} if match else ()
    return match[1] if match and step in ways else ""


def _read_install(step: str) -> tuple[str, tuple[str, ...]] | None:
    title = step.partition("\n")[0].removeprefix(scripts.MARK)
    try:
        python, *words = shlex.split(title)
    except ValueError:
        return None
    packages = tuple(words[3:])
    is_exact = words[:3] == _INSTALL and step == scripts.install(python, packages)
    return (python, packages) if is_exact else None


def _comparable(document: Document) -> Document:
    """Return what is left of a document without names, generated steps, and what a request passes on."""
    [(name, role)] = mapping(document.get("taskRoles")).items()
    images = rows(document.get("prerequisites"))
    image = next((one for one in images if one.get("name") == mapping(role).get("dockerImage")), {})
    others = [one for one in images if one is not image]
    kept = {key: value for key, value in image.items() if key in ("uri", "auth")}
    parameters = {key: one for key, one in mapping(document.get("parameters")).items() if key != BRACKET}
    defaults = {key: one for key, one in mapping(document.get("defaults")).items() if key != "deployment"}
    known = {
        **document,
        "jobRetryCount": document.get("jobRetryCount") or 0,
        "prerequisites": [kept, *others],
        "parameters": parameters,
        "defaults": defaults,
        "taskRoles": {
            name: {
                **mapping(role),
                "instances": mapping(role).get("instances", 1),
                "dockerImage": IMAGE,
                "commands": "\n".join(
                    map(scripts.unlimited, job_storage.unwrap(texts(role.get("commands"))))
                ),
            }
        },
    }
    left_out = ("protocolVersion", "name", "type", "secrets", "deployments", "extras")
    return {key: value for key, value in known.items() if key not in left_out and value not in ({}, None)}


def _differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        inner = (
            _differences(one.get(key), other.get(key), f"{path}.{key}" if path else str(key)) for key in keys
        )
        return [found for part in inner for found in part]
    return [] if one == other else [path]
