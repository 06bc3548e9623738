"""Calls, the jobs that run them, and the archives in which they travel."""

from __future__ import annotations

import dataclasses
import math
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.api.futures.call_request import CallTarget
from openpai_tasks.api.futures.executor_record import ExecutorRecord, RecordedBundle
from openpai_tasks.api.futures.pai_future import OnCancel, PaiFuture
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.files.job_folders import Home
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.sdk.payloads import call_runner, call_start
from openpai_tasks.storage.job_files.archive import Archive
from openpai_tasks.storage.job_files.sources import SourceFile

MARK = "openpaiCalls"
"""Key in a job's extras with its executor."""
MOST_BYTES = 4 << 20
"""Size of the calls that travel in one archive, unless a single job has more; each job fetches all of it."""
START, RUNNER = "pai_call_start.py", "pai_call_runner.py"  # names that hide no module of the user
PYTHON = "{}.{}".format(*sys.version_info)


@dataclass(frozen=True)
class Call:
    """A pickled call and its future."""

    number: int
    data: bytes = field(repr=False)
    future: PaiFuture[Any]


@dataclass
class CallJob:
    """A job and its calls that have no result yet."""

    name: str
    numbers: tuple[int, ...]
    waiting: dict[int, PaiFuture[Any]]
    bundle: Bundle | None = None  # until it is submitted
    state: str = ""
    ended: float | None = None  # when that was noticed
    missing: float | None = None  # since when the cluster does not list it

    @property
    def has_ended(self) -> bool:
        return self.state in FINAL


@dataclass
class Bundle:
    """The calls of some jobs: an archive, and the document of the jobs, with placeholders.

    The document is written once, as writing YAML takes longer than submitting it.
    """

    document: str = field(repr=False)
    placeholder: str
    home: Home
    sha256: str
    archive: Archive | None = None
    is_sent: bool = False

    def submission(self, job: CallJob) -> Submission:
        """Build the document of a job for its calls that nobody cancelled."""
        name, numbers = f"{self.placeholder}name", ",".join(map(str, job.waiting))
        text = self.document.replace(f"name: {name}\n", f'name: "{job.name}"\n', 1)
        text = text.replace(name, job.name).replace(f"{self.placeholder}calls", numbers)
        self.archive = self.archive or self.home.files.read(self.sha256)
        return Submission(job.name, text, self.archive, self.home)


def make_jobs(name: str, first: int, calls: Sequence[Call], batch: int) -> list[tuple[CallJob, list[Call]]]:
    """Divide the calls among jobs."""
    jobs = []
    for number, start in enumerate(range(0, len(calls), batch), first):
        part = list(calls[start : start + batch])
        waiting = {call.number: call.future for call in part}
        jobs.append((CallJob(f"{name}-{number}", tuple(waiting), waiting), part))
    return jobs


def group_jobs(jobs: Iterable[tuple[CallJob, list[Call]]]) -> Iterator[list[tuple[CallJob, list[Call]]]]:
    """Group jobs whose calls are small enough to travel together."""
    group: list[tuple[CallJob, list[Call]]] = []
    size = 0
    for job, calls in jobs:
        own = sum(len(call.data) for call in calls)
        if group and size + own > MOST_BYTES:
            yield group
            group, size = [], 0
        group.append((job, calls))
        size += own
    if group:
        yield group


def pack_calls(target: CallTarget, record: ExecutorRecord, calls: Sequence[Call]) -> Bundle:
    """Pack calls with the program that runs them, cloudpickle and the user's sources; send nothing."""
    known = {**target.request.secrets, call_runner.KEY: record.facts.key}
    request = dataclasses.replace(target.request, name=record.name, command="true", secrets=known)
    extra = [*_programs(), *_library(), *_call_files(calls)]
    packed, files = submission.pack_files(target.client, request, target.here, target.mounts, extra)
    assert files.archive is not None and files.home is not None
    placeholder = f"pai{secrets.token_hex(8)}"
    command = f"{target.python} {call_runner.FOLDER}/{START} {PYTHON} {placeholder}calls"
    packed = dataclasses.replace(
        packed, name=f"{placeholder}name", command=command, extras={MARK: mark_of(record)}
    )
    document = protocol.dump(submission.build_document(packed, files))
    bundle = Bundle(document, placeholder, files.home, files.archive.sha256, files.archive)
    _check_name(bundle, record.name)
    return bundle


def record_jobs(record: ExecutorRecord, bundle: Bundle, jobs: Iterable[CallJob], has_secrets: bool) -> None:
    """Record jobs, and what another program needs to submit them; secrets of the user are not recorded."""
    listed = {job.name: list(job.numbers) for job in jobs}
    document = "" if has_secrets else bundle.document
    record.add(RecordedBundle(listed, document, bundle.placeholder, bundle.sha256))


def recorded_jobs(record: ExecutorRecord, home: Home, on_cancel: OnCancel) -> list[CallJob]:
    """Return the jobs in a record, with new futures for their calls."""
    jobs = []
    for made in record.bundles:
        bundle = Bundle(made.document, made.placeholder, home, made.archive) if made.document else None
        for name, numbers in made.jobs.items():
            waiting: dict[int, PaiFuture[Any]] = {number: PaiFuture(number, on_cancel) for number in numbers}
            own = None if name in record.submitted else bundle
            jobs.append(CallJob(name, tuple(numbers), waiting, own, missing=-math.inf))
    return jobs


def _check_name(bundle: Bundle, executor: str) -> None:
    """Check the document, with one job for all: each gets its own name, and the rest is alike."""
    sample = bundle.submission(CallJob(f"{executor}-1", (1,), {}))
    if protocol.validate(sample.text).name != sample.name:
        raise ConfigError("each job of an executor gets its own name: use name=, not update=['name=...']")


def _programs() -> Iterator[SourceFile]:
    for path, name in ((call_start.__file__, START), (call_runner.__file__, RUNNER)):
        yield _source(Path(path), name)


def _library() -> Iterator[SourceFile]:
    """Yield cloudpickle and its version: a job need not have it, and must use the same version."""
    import cloudpickle

    package = Path(cloudpickle.__file__).parent
    for path in sorted(package.glob("*.py")):
        yield _source(path, f"{call_runner.LIBRARY}/cloudpickle/{path.name}")
    yield _generated(cloudpickle.__version__.encode(), f"{call_runner.LIBRARY}/{call_runner.VERSION_FILE}")


def _call_files(calls: Sequence[Call]) -> Iterator[SourceFile]:
    """Yield one file with all calls, as many small ones take long to unpack, and its index."""
    lines, at = [], 0
    for call in calls:
        lines.append(f"{call.number} {at} {len(call.data)}\n")
        at += len(call.data)
    yield _generated(b"".join(call.data for call in calls), call_runner.CALLS)
    yield _generated("".join(lines).encode(), call_runner.INDEX)


def _generated(content: bytes, name: str) -> SourceFile:
    return SourceFile.from_bytes(content, f"{call_runner.FOLDER}/{name}")


def _source(path: Path, name: str) -> SourceFile:
    return SourceFile(path, f"{call_runner.FOLDER}/{name}", path.stat().st_size)


def mark_of(record: ExecutorRecord) -> dict[str, str]:
    """Return the mark of an executor's jobs, which tells them from those of another one of that name."""
    return {"executor": record.name, "id": sha256(record.facts.key.encode()).hexdigest()[:16]}


def read_mark(document: Any) -> dict[str, Any]:
    """Read the executor from a job's document; empty if it has none."""
    return mapping(mapping(mapping(document).get("extras")).get(MARK))
