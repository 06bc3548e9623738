"""Validated v2 job documents, with defaults, roles, and rendered commands."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import references, template
from openpai_tasks.protocol.document.masking import mask
from openpai_tasks.protocol.document.policy import JobPolicy, read_policy, read_priority
from openpai_tasks.protocol.document.roles import StorageMount, TaskRole, storages, task_role
from openpai_tasks.protocol.document.rules import Report
from openpai_tasks.protocol.document.schema import JOB
from openpai_tasks.protocol.fields import mapping, text
from openpai_tasks.protocol.problems import refusal
from openpai_tasks.protocol.yaml.reader import Source, read
from openpai_tasks.protocol.yaml.values import text_of, trim

__all__ = ["JobDocument", "StorageMount", "TaskRole", "check", "validate"]

SWEEP = "openpaiSweep"
"""The key in a job's extras for its sweep and the values of its parameters."""


@dataclass(frozen=True)
class JobDocument:
    """A valid document; values that may be secret stay out of its repr."""

    name: str
    virtual_cluster: str
    retries: int
    gang: bool
    priority: str | None
    roles: tuple[TaskRole, ...]
    storages: tuple[StorageMount, ...] | None
    policy: JobPolicy
    data: dict[str, Any] = field(repr=False)
    source: Source = field(repr=False, compare=False)
    joint: str = field(default="\n", compare=False)  # separator of commands; " && " in OpenPAI 0.14

    @property
    def parameters(self) -> dict[str, Any]:
        return mapping(self.data.get("parameters"))

    @property
    def secrets(self) -> dict[str, Any]:
        return mapping(self.data.get("secrets"))

    @property
    def extras(self) -> dict[str, Any]:
        return mapping(self.data.get("extras"))

    @property
    def sweep(self) -> str:
        """The sweep that the job is part of; empty for a single job."""
        return text(mapping(self.extras.get(SWEEP)).get("name"))

    def masked(self) -> str:
        """Return the document as YAML, with its secrets masked."""
        return mask(self.source)

    def entrypoints(self) -> dict[str, str]:
        """Return the rendered commands of every role, with references to secrets left in place."""
        return {name: self.entrypoint(name) for name, _ in references.roles(self.data)}

    def entrypoint(self, role: str) -> str:
        """Return the rendered commands of one role, without secrets."""
        lines = self.joint.join(trim(command) for command in references.commands(self.data, role))
        return template.render(lines, references.names(self.data, role))

    def commands(self, role: str) -> str:
        """Return the commands of a role with the secrets filled in: to run, never to show."""
        rendered = self.entrypoint(role)
        return template.render(rendered, {"$secrets": self.secrets}, True) if self.secrets else rendered


def validate(source: str) -> JobDocument:
    """Parse and check a document; the ProtocolError lists everything that the server would refuse."""
    return check(read(source))


def check(source: Source) -> JobDocument:
    """Check a document that has been read."""
    report = Report(source)
    JOB(source.value, (), report)
    if report.sound:
        references.check(source.value, report)
    if not report.sound:
        raise refusal(report.problems)
    document = _document(source)
    _check_templates(document, report)
    if report.problems:
        raise refusal(report.problems)
    return document


def _document(source: Source) -> JobDocument:
    raw: dict[str, Any] = source.value
    roles = {name: {"instances": 1, "taskRetryCount": 0, **role} for name, role in references.roles(raw)}
    data = {**raw, "jobRetryCount": raw.get("jobRetryCount", 0), "taskRoles": roles}
    extras = mapping(raw.get("extras"))
    cluster = mapping(raw.get("defaults")).get("virtualCluster")
    return JobDocument(
        name=raw["name"],
        virtual_cluster="default" if cluster is None else text_of(cluster),
        retries=references.whole(data["jobRetryCount"]),
        gang=extras.get("gangAllocation") is not False,
        priority=read_priority(extras),
        roles=tuple(task_role(data, name) for name in roles),
        storages=storages(extras),
        policy=read_policy(extras),
        data=data,
        source=source,
    )


def _check_templates(document: JobDocument, report: Report) -> None:
    """Render commands and registry credentials once, to find broken templates."""
    for path, value in references.credentials(document.data):
        try:
            template.render(value, {"$secrets": document.secrets})
        except ProtocolError:
            report.add(path, "contains a broken template")
    is_list = isinstance(document.source.value["taskRoles"], list)
    for name, _ in references.roles(document.data):
        try:
            document.entrypoint(name)
        except ProtocolError as err:
            report.add(("taskRoles", int(name) if is_list else name, "commands"), str(err))
