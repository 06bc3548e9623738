"""Jobs in Python: described step by step, submitted, and followed to their end."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from openpai_tasks import protocol, sdk
from openpai_tasks.api.connection import Where, name_of, open_backend, say, settings_here
from openpai_tasks.api.drafts import (
    INTERACTIVE,
    MODES,
    CommandDraft,
    FileDraft,
    JobDraft,
    NotebookDraft,
    RequestDraft,
)
from openpai_tasks.api.options import (
    OF_DOCUMENTS,
    HasName,
    Words,
    document_secret,
    read_options,
    secret_reader,
    secret_values,
    words,
)
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.settings.registry import ANY
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from openpai_tasks.api.options import CommonOptions, JobOptions
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol import JobRequest
    from openpai_tasks.sdk.containers.forwarding import Forward
    from openpai_tasks.sdk.diagnosis.explain import Explanation
    from openpai_tasks.sdk.jobs.metrics import Metric
    from openpai_tasks.sdk.jobs.outputs import Output, SavedCheckpoint
    from openpai_tasks.sdk.jobs.sources import Source
    from openpai_tasks.sdk.jobs.submission import Submission
    from openpai_tasks.sdk.logs.output import LogChoice
    from openpai_tasks.sdk.logs.structured import StructuredLine
    from openpai_tasks.sdk.notebooks.link import Link
    from openpai_tasks.sdk.notebooks.results import DownloadedFile
    from openpai_tasks.sdk.tensorboard import TensorBoard

DraftT = TypeVar("DraftT", bound=JobDraft)
RESOURCES = {"cpu": "cpu", "gpu": "gpu", "memoryMB": "memoryMB", "mem": "memoryMB", "ports": "ports"}


class Job:
    """A job: describe and submit a new one, or work with an existing one by its name.

    >>> from openpai_tasks import Job
    >>> job = Job("greeting-$").one_liner("echo hello, $WHO", env={"WHO": "world"}).submit()
    >>> job.wait().state
    'SUCCEEDED'
    >>> list(job.logs())
    ['hello, world']

    A handle of a job that was submitted earlier, here or elsewhere:

    >>> Job(job.name).status.exit_code
    0
    """

    resumes_from: SavedCheckpoint | None = None
    """The checkpoint of another job at which this one continues, if ``resubmit`` returned it."""

    def __init__(
        self,
        name: str | None = None,
        cluster: Where | Mapping[str, Any] = None,
        *,
        cluster_alias: str | None = None,
    ) -> None:
        self._name = name
        self._cluster: Where = None
        self._draft: JobDraft | None = None
        self._made: Submission | None = None
        self._seen: JobInfo | None = None
        self._link: Link | None = None
        self._use_cluster(cluster, cluster_alias)

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._shown().items() if name != "name"}
        words = [repr(self._name), *(f"{name}={value!r}" for name, value in shown.items())]
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_html_(self) -> str:
        from openpai_tasks.render import html

        return html.table([self._shown()], ("name", "cluster", "state"))

    def _shown(self) -> dict[str, str]:
        """What is known about the job since it was last asked for; nothing is asked."""
        state = "not submitted" if self._draft else self._seen.state if self._seen else ""
        found = {"name": self._name, "cluster": name_of(self), "state": state}
        return {name: value for name, value in found.items() if value}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a job without its connections, which another process opens again."""
        kept = {name: value for name, value in self.__dict__.items() if name != "backend"}
        return {**kept, "_made": None, "_link": None}

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

    # Describe it

    def one_liner(
        self,
        commands: str | Iterable[str],
        image: str | None = None,
        cluster: Where | Mapping[str, Any] = None,
        resources: Mapping[str, Any] | None = None,
        sources: Words | None = None,
        pip_installs: Words | None = None,
        *,
        cluster_alias: str | None = None,
        **options: Unpack[CommonOptions],
    ) -> Self:
        """Run a command, or several that must all succeed; the options are those of `job.sub`."""
        command = commands if isinstance(commands, str) else " && ".join(commands)
        more = {"image": image, "sources": sources, "pip_installs": pip_installs, **options}
        where = one_of(cluster=cluster, cluster_alias=cluster_alias)
        return self._describe(CommandDraft, more, where, resources, command)

    def from_command(self, command: str, **options: Unpack[JobOptions]) -> Self:
        """Run a command; the options are the flags of `job.sub`."""
        return self._describe(CommandDraft, options, command=command)

    def from_template(
        self, name: str, parameters: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> Self:
        """Run a job template, as `job.templates` lists them."""
        return self._describe(CommandDraft, {"parameter": parameters, **options, "template": name})

    def from_file(self, path: str | os.PathLike[str], **options: Unpack[JobOptions]) -> Self:
        """Run a job file, v2 YAML or v1 JSON."""
        return self._start(FileDraft(read_options(options, OF_DOCUMENTS), path=Path(path)), options)

    def from_request(self, request: JobRequest, **options: Unpack[JobOptions]) -> Self:
        """Run a request; what it leaves open comes from the settings."""
        return self._start(RequestDraft(read_options(options, OF_DOCUMENTS), request=request), options)

    def from_notebook(
        self,
        nb_file: str | os.PathLike[str] | None = None,
        mode: str = INTERACTIVE,
        token: str = "",
        image: str | None = None,
        cluster: Where | Mapping[str, Any] = None,
        resources: Mapping[str, Any] | None = None,
        sources: Words | None = None,
        pip_installs: Words | None = None,
        *,
        cluster_alias: str | None = None,
        **options: Unpack[CommonOptions],
    ) -> Self:
        """Serve a notebook with Jupyter (``interactive``), or run all its cells (``silent``, ``script``).

        ``param`` sets parameters of the notebook. ``connect_jupyter`` opens a server; it needs no notebook.
        """
        if mode not in MODES:
            raise ConfigError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if not nb_file and mode != INTERACTIVE:
            raise ConfigError(f"the mode {mode!r} needs a notebook")
        serve = None
        if mode == INTERACTIVE:
            serve = sdk.notebooks.serve_options(token, sdk.amounts.IDLE, "", direct=False)
        more = {"image": image, "sources": sources, "pip_installs": pip_installs, **options}
        where = one_of(cluster=cluster, cluster_alias=cluster_alias)
        self._describe(NotebookDraft, more, where, resources)
        return self._change(file=os.fspath(nb_file or ""), mode=mode, serve=serve)

    def load(
        self,
        fname: str | os.PathLike[str] | None = None,
        job_name: str = "",
        cluster_alias: str = "",
        *,
        name: str = "",
        cluster: Where = None,
    ) -> Self:
        """Take a job from a file, or by its name on a cluster."""
        self._use_cluster(cluster, cluster_alias)
        self._name = one_of(job_name=job_name, name=name) or self._name
        return self.from_file(fname) if fname is not None else self

    def _describe(
        self,
        kind: type[DraftT],
        options: Mapping[str, Any],
        cluster: Where | Mapping[str, Any] = None,
        resources: Mapping[str, Any] | None = None,
        command: str = "",
    ) -> Self:
        """Begin a draft; ``cluster`` and ``resources`` may be mappings, as in programs for the old SDK."""
        given = dict(options)
        if isinstance(cluster, Mapping):
            given |= {name: cluster[name] for name in ("virtual_cluster", "workspace") if cluster.get(name)}
        for name, value in (resources or {}).items():
            if name not in RESOURCES:
                raise ConfigError(f"resources: unknown key {name!r} (known: {', '.join(RESOURCES)})")
            given |= {RESOURCES[name]: value} if value is not None else {}
        self._use_cluster(cluster)
        return self._start(kind(dataclasses.replace(read_options(given), command=command)), given)

    def _start(self, draft: JobDraft, given: Mapping[str, Any]) -> Self:
        self._name = draft.options.job_name or self._name
        values = secret_values(given)
        names = tuple(name for name in draft.options.secret if name not in values)
        options = dataclasses.replace(draft.options, job_name=self._name or "", secret=names)
        self._draft = dataclasses.replace(draft, options=options, secrets=values)
        self._made = None
        return self

    def _use_cluster(self, cluster: Where | Mapping[str, Any], cluster_alias: str | None = None) -> None:
        cluster = one_of(cluster=cluster, cluster_alias=cluster_alias)
        where = str(cluster.get("cluster_alias") or "") if isinstance(cluster, Mapping) else cluster
        if where:
            self._cluster = where
            self.__dict__.pop("backend", None)  # connected to another one
            self._made = None

    # Complete it

    def param(self, name: str, value: Any) -> Self:
        """Set a parameter: ``<% $parameters.NAME %>`` in a command or a document, or one of a notebook."""
        return self._change(params={**self.draft.params, name: value})

    def secret(self, name: str, value: str) -> Self:
        """Set a secret; the command has it as a variable, and nobody sees its value in the document."""
        return self._change(secrets={**self.draft.secrets, name: value})

    def tag(self, *names: str) -> Self:
        """Add tags, on clusters that have them."""
        return self._set(tag=(*self.draft.options.tag, *words(names, "tag")))

    set_param, set_secret, add_tag = param, secret, tag

    def _set(self, **options: Any) -> Self:
        return self._change(options=dataclasses.replace(self.draft.options, **options))

    def _change(self, **changes: Any) -> Self:
        self._draft, self._made = dataclasses.replace(self.draft, **changes), None
        return self

    @property
    def draft(self) -> JobDraft:
        """The description of a job that is not submitted yet."""
        if self._draft is None:
            hint = "describe it first, with one_liner(), from_file(), from_template() or from_notebook()"
            raise ConfigError(f"there is nothing to submit as job {self._name!r}: {hint}")
        return self._draft

    # Submit it

    def validate(self) -> Self:
        """Raise if the job is not valid; no cluster is asked."""
        self.draft.check()
        return self

    def preview(self) -> str:
        """Return exactly what would be sent, secrets masked."""
        return self._build().shown

    def get_config(self) -> dict[str, Any]:
        """Return the job's document, secrets masked: what would be sent, or what was submitted."""
        if self._draft is None:
            return self.document()
        found: dict[str, Any] = protocol.read(self.preview()).value
        return found

    def submit(
        self, cluster: Where = None, virtual_cluster: str | None = None, *, cluster_alias: str | None = None
    ) -> Self:
        """Submit the job, once, and return it."""
        self._use_cluster(cluster, cluster_alias)
        if virtual_cluster:
            self._set(virtual_cluster=virtual_cluster)
        draft, made = self.draft, self._build()
        sdk.jobs.hooks_to_notify(self.backend, made.hooks, False, bool(draft.options.notify))
        job = sdk.jobs.submit_when_ready(self.backend, made, say)
        draft.finish(self.backend, job)
        self._name, self._draft, self._made, self._seen = job.name, None, None, job
        return self

    def choose_cluster(self) -> None:
        """Replace the cluster "any" by the one that can start the job first."""
        if self._cluster == ANY:
            demand = self.draft.demand()
            self._use_cluster(sdk.jobs.choose_cluster(settings_here(), lambda alias: demand, say))

    def _build(self) -> Submission:
        self.choose_cluster()
        self._made = self._made or self.draft.build(lambda: self.backend)
        return self._made

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
        return self.backend.job_page(self.status)

    def document(self) -> dict[str, Any]:
        """Return the document that the job was submitted with, secrets masked."""
        return sdk.jobs.submitted_document(self.backend, self.name)

    def why(self) -> Explanation:
        """Explain why the job waits or has failed, and what to do."""
        return sdk.diagnosis.why(self.backend, self.name, sdk.files.mounts(settings_here()))

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

    def move(self, *, first: bool = False) -> JobInfo:
        """Put the waiting job before your other waiting ones, with ``first=True``; return its status."""
        self._seen = sdk.jobs.move(self.backend, self.name, first)
        return self._seen

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
        timestamps: bool = False,
    ) -> Iterator[str]:
        """Yield the lines of the job's output, so far or, with ``follow``, until it ends.

        Lines of several tasks begin with the task: ``[worker-0] ...``. The options are those of `job.logs`.
        """
        which = _choice(role, index, stdout, stderr, attempt, timestamps)
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
        timestamps: bool = False,
    ) -> AsyncIterator[str]:
        """Yield the lines of the job's output, like ``logs``, by default until the job ends."""
        from openpai_tasks.api import asynchronous

        which = _choice(role, index, stdout, stderr, attempt, timestamps)
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

    def outputs(self, to: str | os.PathLike[str] | None = None, all: bool = False) -> list[Output]:
        """List the files that the job wrote to $PAI_OUTPUT_DIR; with ``to``, copy them to that folder.

        ``all`` includes checkpoints, metrics and log records of the runtime, in ``.pai``.
        """
        found = sdk.jobs.find_outputs(self.backend, self.name, sdk.files.mounts(settings_here()))
        if found.left_out:
            say(f"warning: left out, not the job's own files: {', '.join(found.left_out)}")
        found = found if all else found.without_runtime_files
        if to is not None:
            sdk.files.check_copied(sdk.jobs.download_outputs(found, Path(to)))
        return found.rows

    @overload
    def sources(
        self, to: str | os.PathLike[str] | None = None, diff: Literal[False] = False
    ) -> list[Source]: ...

    @overload
    def sources(self, to: str | os.PathLike[str] | None = None, *, diff: Literal[True]) -> str: ...

    def sources(self, to: str | os.PathLike[str] | None = None, diff: bool = False) -> list[Source] | str:
        """List the files that the job was sent with; with ``to``, write them to that new or empty folder.

        With ``diff``, return a unified diff instead: how they differ from the commit that they were made
        from, in the repository of the current folder.
        """
        found = sdk.jobs.find_sources(self.backend, self.name, sdk.files.mounts(settings_here()))
        if to is not None:
            sdk.jobs.write_sources(found, Path(to))
        return "\n".join(sdk.jobs.compare_with_commit(found, Path.cwd()).lines) if diff else found.rows

    def diff(self, other: Job, code: bool = False) -> str:
        """Return how the document of another job differs from that of this one, as a unified diff.

        With ``code``, compare the files that they were sent with.
        """
        pair = self.backend, self.name, other.backend, other.name
        if code:
            return "\n".join(sdk.jobs.compare_sources(*pair, sdk.files.mounts(settings_here())).lines)
        return "\n".join(sdk.jobs.compare_jobs(*pair).lines)

    def tensorboard(self, port: int = 0) -> TensorBoard:
        """Start TensorBoard for the job's event files; it has a ``url``, and ``close`` ends it."""
        mounts = sdk.files.mounts(settings_here())
        return sdk.tensorboard.TensorBoard(self.backend, self.name, mounts, port, say)

    def forward(
        self,
        *ports: int | str,
        reverse: int | Words = (),
        role: str | None = None,
        index: int | None = None,
    ) -> Forward:
        """Forward ports of the job's container to this machine, and those of ``reverse`` back.

        Ports are those of `container.forward`: ``8888``, ``"8888:9999"``, ``reverse="9000:localhost:9000"``.
        ``ports`` of the result has the numbers on both sides; forwarding ends with its ``close``, a
        ``with`` block, or the job.
        """
        back = sdk.containers.parse_reverse_ports(_port_texts(reverse, "reverse"))
        wanted = [sdk.containers.parse_port(text) for text in _port_texts(ports, "ports")]
        if not (wanted or back):
            raise ConfigError("no port given; for example forward(8888) or forward(reverse=9000)")
        settings = settings_here()
        found = sdk.containers.reach(self.backend, self.name, settings)
        container = sdk.containers.first_running(found, role, index)
        forward = sdk.containers.forward_ports(self.backend, found, container, settings, wanted, back, say)
        try:
            forward.start().serve_in_background()
        except BaseException:
            forward.close()
            raise
        return forward

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
        with_dependents: bool = False,
        after: HasName | Words | None = None,
        after_any: HasName | Words | None = None,
        after_failed: HasName | Words | None = None,
        priority: str | None = None,
        max_time: int | str | None = None,
        requeue_on_timeout: int | None = None,
        grace: int | str | None = None,
        idle_stop: int | str | None = None,
        keep_failed: int | str | None = None,
        notify: Any = None,
    ) -> Self:
        """Submit the job again under a new name, with changes or exactly as it was; return the new job.

        It continues at the last checkpoint of the job, ``resumes_from``, unless ``fresh`` or ``exact`` is
        given; ``resume`` makes sure that it does. ``to`` is the cluster to run it on. ``secret`` are
        secrets of the job: values by name, or names to read from the environment; those that were chosen in
        this way when it was submitted are read again. ``with_dependents`` also submits the jobs again that
        were stopped because of how this one ended; they wait for the new job. ``after``, ``after_any`` and
        ``after_failed`` replace what the job waited for. The other options change what it had.
        """
        start = sdk.jobs.choose_start(fresh, resume)
        new_name = one_of(name=name, job_name=job_name)
        given = {"job_name": new_name, "update": update, "gpu": gpu, "secret": secret, "priority": priority}
        given |= {"after": after, "after_any": after_any, "after_failed": after_failed, "notify": notify}
        given |= {"max_time": max_time, "requeue_on_timeout": requeue_on_timeout, "grace": grace}
        given |= {"idle_stop": idle_stop, "keep_failed": keep_failed}
        options, settings = read_options(given), settings_here()
        target = open_backend(to) if to is not None else self.backend
        read = secret_reader(secret_values({"secret": secret}))
        submission = sdk.jobs.repeat(
            self.backend,
            target,
            self.name,
            sdk.templates.build_changes(options, settings, read),
            Path.cwd(),
            exact,
            document_secret,
            say,
            sdk.files.mounts(settings),
            resume=start,
            with_dependents=with_dependents,
        )
        sdk.jobs.hooks_to_notify(target, submission.hooks, False, bool(options.notify))
        job = sdk.jobs.submit_when_ready(target, submission, say)
        again = type(self)(job.name, self._cluster if to is None else to)
        again.resumes_from, again._seen = submission.resumes_from, job
        return again

    # Notebooks, and old names

    def fetch(self, to: str | os.PathLike[str] | None = None) -> list[DownloadedFile]:
        """Download the executed notebook and its pages, to the notebook's folder or another one."""
        found = sdk.notebooks.find_results(self.backend, self.name, sdk.files.mounts(settings_here()))
        alias = self.backend.cluster.alias
        folder = Path(to) if to is not None else sdk.notebooks.results_folder(Path.cwd(), alias, found)
        downloaded = sdk.notebooks.download_results(found, folder)
        sdk.files.check_copied(downloaded.copied)
        return downloaded.files

    def get_status(self) -> JobInfo:
        """Return the status of the job."""
        return self.status

    def connect_jupyter(self, timeout: float = 1800) -> dict[str, str]:
        """Wait for the Jupyter server of the job; return its state and its address, with the token.

        The address leads through a tunnel that lasts until the program ends.
        """
        if self._link is not None:
            self._link.close()
        found, document = sdk.jobs.job_document(self.backend, self.name)
        mark = sdk.notebooks.check_reconnect(found, document, direct=False)
        token = sdk.notebooks.token_of(self.backend, found)
        way = sdk.notebooks.LinkOptions(mark.direct)
        link = sdk.notebooks.open_link(self.backend, found.key, way, token, settings_here(), timeout, say)
        self._link = link
        return {"state": self.state, "notebook": link.address(token, mark.file)}


def _port_texts(given: int | Words, name: str) -> tuple[str, ...]:
    return (str(given),) if isinstance(given, int) else words(given, name)


def _choice(
    role: str | None,
    index: int | None,
    stdout: bool,
    stderr: bool,
    attempt: int | None,
    timestamps: bool = False,
) -> LogChoice:
    return sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt, timestamps)
