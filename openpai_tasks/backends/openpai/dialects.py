"""Differences between the generations of OpenPAI's REST server, one row each."""

from __future__ import annotations

from openpai_tasks.backends.base import Capabilities
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import routes

YARN_EXITS: dict[int, tuple[str, ...]] = {
    -7351: ("the job was stopped on request",),
    -7400: ("the task was stopped because its attempt was over",),
    -7252: ("not all tasks of the job got their resources in time", "wait, or ask for less"),
    193: ("the container could not be run", "check the image's name"),
    196: ("the task used more memory than it asked for", "ask for more memory"),
    198: ("the disk of the node was full", "write less to the local disk"),
    255: ("the command failed", "look at the logs for the cause"),
}
"""Exit codes of 0.14 that later generations do not have or use with another meaning: reason and solution."""


@dataclass(frozen=True)
class ApiDialect:
    """The paths of one generation ("" if it lacks one), and how it behaves."""

    generation: str
    jobs: str = routes.JOBS
    job: str = routes.JOB
    attempt: str = ""
    events: str = ""
    tag: str = ""
    task_logs: str = ""
    ssh: str = ""  # newer servers list SSH among the ports of a task
    v1_jobs: str = ""  # where version 1 documents are submitted unchanged
    virtual_clusters: str = routes.VIRTUAL_CLUSTERS
    sku_types: str = ""  # by virtual cluster; 0.18 has only those of the whole cluster
    nodes: str = routes.NODES
    storages: str = routes.STORAGES
    storage: str = routes.STORAGE
    reads_need_token: bool = True
    has_ownerless: bool = False  # has jobs without an owner, addressed by their bare name
    # The server filters, sorts and pages the job list; otherwise it only knows `username`.
    selects: bool = False
    marks_default: bool = True  # the list of storages says which ones are default
    has_yarn: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            tags=bool(self.tag),
            events=bool(self.events),
            attempts=bool(self.attempt),
            job_keys=bool(self.ssh),
            v1_documents=bool(self.v1_jobs),
            ownerless_jobs=self.has_ownerless,
            application_tokens=self.generation != "0.14",
            token_checks=self.generation == "1.8",
            separate_streams=True,
            ssh=True,
            retries=True,
            free_names=True,
            requeues=self.generation != "0.14",  # by an exit code that later ones always retry
            usage_report=True,
        )


NEWEST = ApiDialect(
    "1.8",
    attempt=routes.JOB_ATTEMPT,
    events=routes.JOB_EVENTS,
    tag=routes.JOB_TAG,
    task_logs=routes.TASK_LOGS,
    sku_types=routes.SKU_TYPES,
    selects=True,
)
DIALECTS = {
    dialect.generation: dialect
    for dialect in (
        ApiDialect(
            "0.14",
            jobs=routes.JOBS_V1,
            job=routes.JOB_V1,
            ssh=f"{routes.JOB_V1}/ssh",
            v1_jobs=routes.USER_JOBS_V1,
            virtual_clusters=routes.VIRTUAL_CLUSTERS_V1,
            nodes="",
            storages="",
            storage="",
            reads_need_token=False,
            has_ownerless=True,
            has_yarn=True,
        ),
        ApiDialect("0.18", marks_default=False),
        NEWEST,
    )
}


def dialect_of(generation: str) -> ApiDialect:
    """Return the dialect of a generation; unknown generations count as the newest."""
    return DIALECTS.get(generation, NEWEST)
