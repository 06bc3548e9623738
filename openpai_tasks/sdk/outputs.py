"""The files that a job wrote to its output folder on the storage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.sdk import documents
from openpai_tasks.sdk.provenance import stamp_of
from openpai_tasks.storage import workspace as workspaces
from openpai_tasks.storage.downloads import Listing, download, listing

VARIABLE = "PAI_OUTPUT_DIR"
"""What names the folder inside the job (protocol/scripts.py)."""


@dataclass(frozen=True)
class Output:
    """One file, by its name below the output folder."""

    name: str
    size: int
    modified: int  # ms


@dataclass(frozen=True)
class Outputs:
    """What a job has written until now, and where that is."""

    job: str
    storage: str
    folder: str
    found: Listing

    @property
    def rows(self) -> list[Output]:
        files = self.found.files
        return [Output(file.name, file.size, int(file.path.stat().st_mtime * 1000)) for file in files]


def find(client: Client, name: str) -> Outputs:
    """The job's output; the job itself tells where it lies."""
    job, document = documents.of_job(client, name)
    stamp = stamp_of(document)
    if not stamp.storage:
        who = "only jobs of `job.sub` on a cluster with a storage have one"
        raise ConfigError(f"job {job.name!r} has no output folder: {who}")
    folder = workspaces.output_folder(stamp.workspace, job.name)
    try:
        detail = client.storage(stamp.storage)
    except NotFound as err:
        where = f"cluster {client.cluster.alias!r}"
        raise NotFound(f"{where} grants you no storage {stamp.storage!r}, where the output is", 404) from err
    if detail.get("type") != "local":
        kind = f"{stamp.storage!r} ({detail.get('type')})"
        raise ConfigError(f"the output is in {folder} on storage {kind}, which cannot be read from here")
    place = workspaces.inside(workspaces.open_storage(detail, job.user), folder)
    return Outputs(job.name, stamp.storage, folder, listing(place))


def bring(outputs: Outputs, target: Path) -> list[Path]:
    """Copy everything to a folder here."""
    if not outputs.found.files:
        raise NotFound(f"job {outputs.job!r} has written nothing to ${VARIABLE}", 404)
    return download(outputs.found.files, target)
