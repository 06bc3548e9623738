"""What a submission will do, for people: the plan that previews show."""

from __future__ import annotations

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.policy import Dependency, priority_word
from openpai_tasks.protocol.document.reading import read_steps, read_time_limit
from openpai_tasks.protocol.document.scripts import default_grace
from openpai_tasks.protocol.document.ssh_plugin import has_ssh
from openpai_tasks.sdk.clusters.embedded import engine_notes
from openpai_tasks.sdk.clusters.inactive_python import describe_inactive
from openpai_tasks.sdk.jobs.documents import RoleSummary, describe_roles
from openpai_tasks.sdk.jobs.submission import Submission, check_job, describe_shortage


@dataclass(frozen=True)
class PlannedFiles:
    """The files to upload, and the largest of them."""

    count: int
    size: int
    archive_size: int
    largest: str
    largest_size: int


@dataclass(frozen=True)
class Plan:
    """What a submission will do: nothing in it is secret, and nothing is sent."""

    name: str
    roles: tuple[RoleSummary, ...]
    cluster: str
    virtual_cluster: str
    url: str
    files: PlannedFiles | None = None
    workspace: str = ""  # the folder of its files and outputs, as a URL
    variables: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # names
    mounts: tuple[str, ...] = ()  # storages with their paths
    packages: tuple[str, ...] = ()  # to install with pip
    outputs: tuple[str, ...] = ()  # patterns of files to keep
    has_ssh: bool = False
    has_runtime: bool = False
    retries: int = 0
    max_seconds: int | None = None
    keep_failed: int = 0  # seconds
    tags: tuple[str, ...] = ()
    after: tuple[Dependency, ...] = ()
    warnings: tuple[str, ...] = ()  # what will not be as the job asks for
    sweep: str = ""
    jobs: int = 1  # of the sweep
    priority: str = ""
    requeues: int = 0  # of a task that reaches its time limit
    grace: int = 0  # seconds before that limit
    idle_stop: int = 0  # seconds
    hooks: tuple[str, ...] = ()  # who is notified, without secrets


def make_plan(client: Backend, made: Submission, sweep: str = "", jobs: int = 1) -> Plan:
    """Describe what submitting would do; ``sweep`` has so many ``jobs`` like this one."""
    text = protocol.dump(protocol.to_v2(protocol.fit_names(made.v1)[0])) if made.v1 else made.text
    document = protocol.validate(text)
    data, home = document.source.value, made.home
    steps = [read_steps(data, role.name)[0] for role in document.roles]
    limits = [read_time_limit(role) for role in data["taskRoles"].values()]
    mounts = document.storages
    return Plan(
        name=made.name,
        roles=tuple(describe_roles(data)),
        cluster=client.cluster.alias,
        virtual_cluster=document.virtual_cluster,
        url=client.submit_url(made.v1 or made.text),
        files=_files(made),
        workspace=home.url if home else "",
        variables=_merged(steps, "environment"),
        secrets=tuple(document.secrets),
        mounts=("your default storages",)
        if mounts == ()
        else tuple(f"{mount.name} at {mount.path}" for mount in mounts or ()),
        packages=_merged(steps, "pip_installs"),
        outputs=_merged(steps, "outputs"),
        has_ssh=any(has_ssh(data, role.name) for role in document.roles),
        has_runtime=made.archive is not None,
        retries=document.retries,
        max_seconds=next(iter(limits), None),
        keep_failed=document.policy.keep_failed,
        tags=made.tags,
        after=made.after or document.policy.after,
        warnings=_warnings(client, made, document),
        sweep=sweep,
        jobs=jobs,
        priority=priority_word(document.priority),
        requeues=document.policy.requeues,
        grace=document.policy.grace or default_grace(next(iter(limits), None) or 0),
        idle_stop=document.policy.idle_stop,
        hooks=tuple(map(str, made.hooks.hooks)),
    )


def _merged(steps: list[dict[str, object]], name: str) -> tuple[str, ...]:
    """Return the values, or the keys of the mappings, that the steps of all roles have, each once."""
    return tuple(dict.fromkeys(value for found in steps for value in found.get(name, ())))  # type: ignore[attr-defined]


def _files(made: Submission) -> PlannedFiles | None:
    if not made.archive or not made.archive.members:
        return None
    archive = made.archive
    largest = max(archive.members, key=lambda member: member.size)
    return PlannedFiles(len(archive.members), archive.unpacked, archive.size, largest.name, largest.size)


def _warnings(client: Backend, made: Submission, document: protocol.JobDocument) -> tuple[str, ...]:
    """Return what the cluster lacks, and what else the user should know before submitting."""
    found = [*made.notes, made.home.note if made.home else "", *engine_notes(client)]
    try:
        found += check_job(client, made.v1 or made.text)
        is_memory_asked = all(role.is_memory_asked for role in document.roles)
        found.append(describe_shortage(client, document.virtual_cluster, document.roles, is_memory_asked))
    except PaiError as err:
        found.append(str(err))
    if made.origin:
        found.append(describe_inactive(client, made.origin.command or made.text, made.origin.folder))
    return tuple(line.removeprefix("warning: ") for line in found if line)
