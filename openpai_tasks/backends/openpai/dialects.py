"""What the generations of OpenPAI's REST server say differently, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from openpai_tasks.protocol import routes


@dataclass(frozen=True)
class Dialect:
    """Where one generation keeps things, "" for what it has not, and how much of the work it does."""

    generation: str
    jobs: str = routes.JOBS
    job: str = routes.JOB
    attempt: str = ""
    events: str = ""
    tag: str = ""
    task_logs: str = ""
    ssh: str = ""  # newer ones tell it by a task's ports
    v1_jobs: str = ""  # where documents of version 1 are handed in as they are
    virtual_clusters: str = routes.VIRTUAL_CLUSTERS
    storages: str = routes.STORAGES
    storage: str = routes.STORAGE
    token_check: str = ""
    application_token: str = routes.TOKEN_APPLICATION
    reads_need_token: bool = True
    has_ownerless: bool = False  # jobs from before they had owners, which go by their bare name
    selects: bool = False  # filters, orders and pages the job list itself; if not, it knows `username` only

    @property
    def config(self) -> str:
        return f"{self.job}/config"

    @property
    def execution(self) -> str:
        return f"{self.job}/executionType"


NEWEST = Dialect(
    "1.8",
    attempt=routes.JOB_ATTEMPT,
    events=routes.JOB_EVENTS,
    tag=routes.JOB_TAG,
    task_logs=routes.TASK_LOGS,
    token_check=routes.TOKEN_CHECK,
    selects=True,
)
DIALECTS = {
    dialect.generation: dialect
    for dialect in (
        Dialect(
            "0.14",
            jobs=routes.JOBS_V1,
            job=routes.JOB_V1,
            ssh=f"{routes.JOB_V1}/ssh",
            v1_jobs=routes.USER_JOBS_V1,
            virtual_clusters=routes.VIRTUAL_CLUSTERS_V1,
            storages="",
            storage="",
            application_token="",
            reads_need_token=False,
            has_ownerless=True,
        ),
        Dialect("0.18"),
        NEWEST,
    )
}


def dialect_of(generation: str) -> Dialect:
    """That generation's; one that is not known is taken for the newest."""
    return DIALECTS.get(generation, NEWEST)
