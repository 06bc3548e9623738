"""Convert v1 job configurations to v2 documents, for servers without v1."""

from __future__ import annotations

import re
import shlex
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document.build import BRACKET
from openpai_tasks.protocol.document.scripts import variable
from openpai_tasks.protocol.document.template import OPEN, escape_brackets
from openpai_tasks.protocol.legacy.v1 import validate_v1
from openpai_tasks.protocol.yaml.values import text_of

Data = dict[str, Any]

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_ROLES = re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_]")

NAME = "default"
FOREVER = 2**31 - 1
"""Negative counts in v1 mean retries without end; v2 only has large numbers."""

EXPORT_CODE = 'export PAI_CODE_DIR="<% $script.uri %>"'
"""The step that marks a job whose ``codeDir`` a server may download, as OpenPAI 0.14 does."""
CODE_LINK = "/pai/code"
"""Where tasks find the ``codeDir`` besides their working folder, below the root of the mounts."""
_FOLDERS = {
    "data": ("dataDir", 'export PAI_DATA_DIR="<% $data.uri[0] %>"'),
    "output": ("outputDir", 'export PAI_OUTPUT_DIR="<% $output.uri %>"'),
    "script": ("codeDir", EXPORT_CODE),
}


def to_v2(config: Data) -> Data:
    """Convert a configuration without ``authFile``, whose content would be needed."""
    job = validate_v1(config)
    if job["authFile"]:
        raise ProtocolError(f"authFile: the content of {job['authFile']} is needed to convert the job")
    image = {"name": NAME, "type": "dockerimage", "uri": job["image"]}
    result: Data = {
        "protocolVersion": 2,
        "name": job["jobName"],
        "type": "job",
        "jobRetryCount": job["retryCount"] if job["retryCount"] >= 0 else FOREVER,
        "prerequisites": [image, *_folders(job)],
    }
    parameters = dict(job.get("jobEnvs", {}))
    if any(OPEN in role["command"] for role in job["taskRoles"]) or OPEN in str(parameters):
        parameters[BRACKET] = OPEN
    if parameters:
        result["parameters"] = parameters
    result["taskRoles"] = {role["name"]: _role(job, role) for role in job["taskRoles"]}
    return {**result, **_surroundings(job)}


def fit_names(config: Data) -> tuple[Data, tuple[str, ...]]:
    """Replace characters that v2 does not allow in names, such as dots and tildes; return job and changes."""
    changes: list[str] = []

    def fit(place: str, name: str, odd: re.Pattern[str]) -> str:
        fitting = odd.sub("_", name)
        if fitting != name:
            changes.append(f"{place} {name!r} becomes {fitting!r}")
        return fitting

    roles = []
    for number, role in enumerate(config["taskRoles"]):
        place = f"taskRoles[{number}]"
        ports = [
            {**port, "label": fit(f"{place}.portList label", port["label"], _NOT_IN_ROLES)}
            for port in role["portList"]
        ]
        name = fit(f"{place}.name", role["name"], _NOT_IN_ROLES)
        roles.append({**role, "name": name, "portList": ports})
    if len({role["name"] for role in roles}) < len(roles):
        raise ProtocolError("taskRoles: two role names are the same in protocol v2; rename one of them")
    name = fit("jobName", config["jobName"], _NOT_IN_NAMES)
    return {**config, "jobName": name, "taskRoles": roles}, tuple(changes)


def _folders(job: Data) -> list[Data]:
    name = job["jobName"]  # $PAI_JOB_NAME contains the user, too
    given = [
        (type_, job[key].replace("$PAI_JOB_NAME", name)) for type_, (key, _) in _FOLDERS.items() if job[key]
    ]
    return [{"name": NAME, "type": type_, "uri": [uri] if type_ == "data" else uri} for type_, uri in given]


def _role(job: Data, role: Data) -> Data:
    resources: Data = {"cpu": role["cpuNumber"], "memoryMB": role["memoryMB"], "gpu": role["gpuNumber"]}
    if role["portList"]:
        resources["ports"] = {port["label"]: port["portNumber"] for port in role["portList"]}
    return {
        "instances": role["taskNumber"],
        "completion": {
            "minFailedInstances": role["minFailedTaskCount"],
            "minSucceededInstances": role["minSucceededTaskCount"],
        },
        "dockerImage": NAME,
        **{type_: NAME for type_, (key, _) in _FOLDERS.items() if job[key]},
        "extraContainerOptions": {"shmMB": role["shmMB"]},
        "resourcePerInstance": resources,
        "commands": [escape_brackets(role["command"], BRACKET)],
    }


def _surroundings(job: Data) -> Data:
    """Return the exports before the commands, the virtual cluster, and the extras."""
    steps = [step for key, step in _FOLDERS.values() if job[key]]
    steps += [
        f"export {variable(name)}={shlex.quote(escape_brackets(text_of(value), BRACKET))}"
        for name, value in job.get("jobEnvs", {}).items()
    ]
    result: Data = {"defaults": {"virtualCluster": job["virtualCluster"] or "default"}}
    if steps:
        roles = {role["name"]: {"preCommands": steps} for role in job["taskRoles"]}
        result = {"deployments": [{"name": NAME, "taskRoles": roles}], **result}
        result["defaults"]["deployment"] = NAME
    return {**result, "extras": job["extras"]} if "extras" in job else result
