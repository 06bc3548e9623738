"""What our submissions leave in the user's home on a datacenter, which forgets jobs that were killed.

``.pai-jobs`` has two files for each submission: ``NAME~MARK.yaml``, the document with its secrets masked, and
``NAME~MARK~TIME``, written once the cluster has accepted the job. Their names alone list all jobs. The mark
is random, so that two submissions of the same name share no files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping

from openpai_tasks.backends.paddlecloud.client import PaddleClient
from openpai_tasks.backends.paddlecloud.packages import PaddlePackage
from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass

RECORDS = ".pai-jobs"
LARGEST = 4 << 20  # bytes of a document


@dataclass(frozen=True)
class JobRecord:
    """A submission that the cluster accepted; ``submitted`` is in ms."""

    name: str
    mark: str
    submitted: int


class JobRecords:
    """The records of one user; documents never change, so each is read once."""

    def __init__(self, client: PaddleClient) -> None:
        self._client = client
        self._documents: dict[str, str] = {}

    @property
    def _folder(self) -> str:
        return f"{self._client.home}/{RECORDS}"

    def accepted(self) -> dict[str, JobRecord]:
        """Return the newest record of each job, by name."""
        return _newest(self._names(self._folder))

    def names(self) -> set[str]:
        """Return the names of all jobs that were ever submitted this way."""
        return {file.partition("~")[0] for file in self._names(self._folder)}

    def of_listed(self, name: str) -> JobRecord | None:
        """Return the record of a job that the cluster lists.

        If the answer to its submission was lost, it is recorded only now.
        """
        names = self._names(self._folder)
        found = _newest(names).get(name)
        documents = [file for file in names if file.startswith(f"{name}~") and file.endswith(".yaml")]
        if found is None and len(documents) == 1:
            mark = documents[0].removeprefix(f"{name}~").removesuffix(".yaml")
            found = JobRecord(name, mark, self.accept(name, mark))
        return found

    def kept(self) -> set[str]:
        """Return the jobs whose package is still there."""
        return {name.rstrip("/") for name in self._names(f"{self._client.home}/jobs")}

    def document(self, record: JobRecord) -> str:
        """Return the document of a job."""
        if record.mark not in self._documents:
            path = f"{self._folder}/{record.name}~{record.mark}.yaml"
            data = bytearray()
            for piece in self._client.download(path):
                data += piece
                if len(data) > LARGEST:
                    raise NotFound(f"the document of job {record.name!r} is larger than 4 MB", 404)
            self._documents[record.mark] = data.decode("utf-8", "replace")
        return self._documents[record.mark]

    def upload(self, package: PaddlePackage, mark: str) -> None:
        """Upload the package and the document."""
        for path, text in self._files(package, mark).items():
            self._client.upload(path, text.encode())

    def withdraw(self, package: PaddlePackage, mark: str) -> None:
        """Remove the files of a refused submission, if that is possible."""
        mine = [path for path in self._files(package, mark) if mark in path]
        with contextlib.suppress(PaiError):
            self._client.remove_files(*mine)

    def accept(self, name: str, mark: str) -> int:
        """Record that the cluster has accepted a job; return the time (ms)."""
        now = int(time.time() * 1000)
        self._client.upload(f"{self._folder}/{name}~{mark}~{now}", b"\n")
        return now

    def _files(self, package: PaddlePackage, mark: str) -> Mapping[str, str]:
        name = package.request.name
        job = f"{self._client.home}/jobs/{name}"
        files = {f"{job}/{path}": text for path, text in package.files.items()}
        return {f"{self._folder}/{name}~{mark}.yaml": package.masked, **files}

    def _names(self, folder: str) -> tuple[str, ...]:
        try:
            return self._client.files(folder)
        except NotFound:
            return ()


def _newest(names: Iterable[str]) -> dict[str, JobRecord]:
    found = sorted(filter(None, map(_record, names)), key=lambda one: one.submitted)
    return {record.name: record for record in found}


def _record(name: str) -> JobRecord | None:
    job, mark, moment = (*name.split("~"), "", "")[:3]
    is_record = name.count("~") == 2 and moment.isdecimal() and len(moment) < 15
    return JobRecord(job, mark, int(moment)) if is_record else None
