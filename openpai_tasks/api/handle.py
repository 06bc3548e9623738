"""A handle of a submitted job: wait for it, read its output, fetch its files, stop it, submit it again."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.api.argument_names import with_python_names
from openpai_tasks.api.connection import Where, name_of, open_backend, say, settings_here
from openpai_tasks.api.options import Words, document_secret, read_options, secret_reader, secret_values
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self

    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.diagnosis.explain import Explanation
    from openpai_tasks.sdk.jobs.metrics import Metric
    from openpai_tasks.sdk.jobs.outputs import Output, SavedCheckpoint
    from openpai_tasks.sdk.logs.output import LogChoice
    from openpai_tasks.sdk.logs.structured import StructuredLine


@with_python_names
class JobHandle:
    """A job on a cluster, by its name; every property and method asks the cluster anew."""

    resumes_from: SavedCheckpoint | None = None
    """The checkpoint of another job at which this one continues, if ``resubmit`` returned it."""

    def __init__(
        self, name: str | None = None, cluster: Where = None, *, cluster_alias: str | None = None
    ) -> None:
        self._name, self._cluster = name, one_of(cluster=cluster, cluster_alias=cluster_alias)
        self._seen: JobInfo | None = None

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._shown().items() if name != "name"}
        words = [repr(self._name), *(f"{name}={value!r}" for name, value in shown.items())]
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_html_(self) -> str:
        from openpai_tasks.render import html

        return html.table([self._shown()], ("name", "cluster", "state"))

    def _shown(self) -> dict[str, str]:
        """What is known about the job since it was last asked for; nothing is asked."""
        state = self._seen.state if self._seen else ""
        found = {"name": self._name, "cluster": name_of(self), "state": state}
        return {name: value for name, value in found.items() if value}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a job without its connection, which another process opens anew."""
        return {name: value for name, value in self.__dict__.items() if name != "backend"}

    @property
    def name(self) -> str:
        """The job's name."""
        if not self._name:
            raise ConfigError("the job has no name yet: name it, or submit it first")
        return self._name

    @functools.cached_property
    def backend(self) -> Backend:
        """The connection to the job's cluster."""
        return open_backend(self._cluster)

    # What it is doing

    @property
    def status(self) -> JobInfo:
        """The job as the cluster reports it now: state, times, exit code, tasks."""
        self._seen = sdk.jobs.find(self.backend, self.name)
        return self._seen

    @property
    def state(self) -> str:
        """WAITING, RUNNING, STOPPING, SUCCEEDED, FAILED or STOPPED."""
        return self.status.state

    @property
    def url(self) -> str:
        """The address of the job's page in the cluster's web portal."""
        return sdk.clusters.job_page(self.backend, self.status)

    def document(self) -> dict[str, Any]:
        """Return the document that the job was submitted with, secrets masked."""
        return sdk.jobs.submitted_document(self.backend, self.name)

    def why(self) -> Explanation:
        """Explain why the job waits or has failed, and what to do."""
        return sdk.diagnosis.why(self.backend, self.name)

    def connect(self, timeout: float | None = None) -> Iterator[JobInfo]:
        """Yield the job's status whenever it changes, until the job ends."""
        return sdk.jobs.watch(self.backend, self.name, timeout)

    # Its end

    def wait(self, timeout: float | None = None) -> JobInfo:
        """Wait for the job to end and return its status; raise TimedOut after so many seconds."""
        self._seen = sdk.jobs.wait(self.backend, self.name, timeout)
        return self._seen

    async def wait_async(self, timeout: float | None = None) -> JobInfo:
        """Wait for the job to end, like ``wait``; cancelling it leaves the job alone."""
        from openpai_tasks.api import asynchronous

        return await asynchronous.wait(lambda: self.backend, self.name, timeout)

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the job and return its result; raise JobFailed if it did not succeed.

        The result is the last JSON object that the job printed, or its result.json; empty without either.
        """
        sdk.jobs.check_succeeded(self.wait(timeout))
        mounted = sdk.files.mounts(settings_here())
        (found,) = sdk.sweeps.gather_results(self.backend, [self.name], Path.cwd(), mounted)
        return found.result

    def stop(self) -> JobInfo:
        """Ask the cluster to stop the job, and return its status."""
        (self._seen,) = sdk.jobs.stop(self.backend, [self.name])
        return self._seen

    # What it writes

    def logs(
        self,
        follow: bool = False,
        *,
        role: str | None = None,
        index: int | None = None,
        stdout: bool = False,
        stderr: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        plain: bool = False,
    ) -> Iterator[str]:
        """Yield the lines of the job's output, so far or, with ``follow``, until it ends.

        Lines of several tasks begin with the task: ``[worker-0] ...``. The options are those of `job.logs`.
        """
        which = _choice(role, index, stdout, stderr, attempt)
        return sdk.logs.read_lines(self.backend, self.name, which, follow, lines, plain)

    def logs_async(
        self,
        follow: bool = True,
        *,
        role: str | None = None,
        index: int | None = None,
        stdout: bool = False,
        stderr: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        plain: bool = False,
    ) -> AsyncIterator[str]:
        """Yield the lines of the job's output, like ``logs``, by default until the job ends."""
        from openpai_tasks.api import asynchronous

        which = _choice(role, index, stdout, stderr, attempt)
        return asynchronous.read_lines(lambda: self.backend, self.name, which, follow, lines, plain)

    def records(
        self,
        follow: bool = False,
        *,
        level: str | None = None,
        since: str | None = None,
        grep: str | None = None,
        role: str | None = None,
        index: int | None = None,
        lines: int | None = None,
        attempt: int | None = None,
    ) -> Iterator[StructuredLine]:
        """Yield the log records of the program, of all tasks and by time, like `job.logs --structured`."""
        which = _choice(role, index, stdout=False, stderr=False, attempt=attempt)
        chosen = sdk.logs.parse_filter(level, since, grep)
        mounts = sdk.files.mounts(settings_here())
        return sdk.logs.read_structured(
            self.backend, self.name, which, follow, lines, None, chosen, mounts, is_strict=True
        )

    def metrics(self) -> list[Metric]:
        """Return the metrics that the program has recorded so far, by name and task."""
        return sdk.jobs.read_metrics(self.backend, self.name, sdk.files.mounts(settings_here()))

    def outputs(self, to: str | PathLike[str] | None = None, all: bool = False) -> list[Output]:
        """List the files that the job wrote to $PAI_OUTPUT_DIR; with ``to``, copy them to that folder.

        ``all`` includes checkpoints, metrics and log records of the runtime, in ``.pai``.
        """
        found = sdk.jobs.find_outputs(self.backend, self.name, sdk.files.mounts(settings_here()))
        if found.left_out:
            say(f"warning: left out, not the job's own files: {', '.join(found.left_out)}")
        found = found if all else found.of_program
        if to is not None:
            sdk.files.check_copied(sdk.jobs.download_outputs(found, Path(to)))
        return found.rows

    # Again

    def resubmit(
        self,
        *,
        gpu: int | None = None,
        job_name: str | None = None,
        name: str | None = None,
        update: Mapping[str, Any] | Words | None = None,
        to: Where = None,
        exact: bool = False,
        fresh: bool = False,
        resume: bool = False,
        secret: Mapping[str, str] | Words | None = None,
    ) -> Self:
        """Submit the job again under a new name, with changes or exactly as it was; return the new job.

        It continues at the last checkpoint of the job, ``resumes_from``, unless ``fresh`` or ``exact`` is
        given; ``resume`` makes sure that it does. ``to`` is the cluster to run it on. ``secret`` are
        secrets of the job: values by name, or names to read from the environment; those that were chosen in
        this way when it was submitted are read again.
        """
        start = sdk.jobs.choose_start(fresh, resume)
        new_name = one_of(name=name, job_name=job_name)
        flags = read_options({"job_name": new_name, "update": update, "gpu": gpu, "secret": secret})
        target = open_backend(to) if to is not None else self.backend
        read = secret_reader(secret_values({"secret": secret}))
        submission = sdk.jobs.repeat(
            self.backend,
            target,
            self.name,
            sdk.jobs.build_changes(flags, read),
            Path.cwd(),
            exact,
            document_secret,
            say,
            sdk.files.mounts(settings_here()),
            resume=start,
        )
        for note in submission.notes:
            say(note)
        job = sdk.jobs.submit_when_ready(target, submission, say)
        again = type(self)(job.name, self._cluster if to is None else to)
        again.resumes_from, again._seen = submission.resumes_from, job
        return again


def _choice(
    role: str | None, index: int | None, stdout: bool, stderr: bool, attempt: int | None
) -> LogChoice:
    return sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt)
