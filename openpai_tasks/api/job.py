"""Jobs in Python: described step by step, submitted, and followed to their end."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from openpai_tasks import protocol, sdk
from openpai_tasks.api.argument_names import with_python_names
from openpai_tasks.api.connection import Where, say, settings_here
from openpai_tasks.api.drafts import (
    INTERACTIVE,
    MODES,
    CommandDraft,
    FileDraft,
    JobDraft,
    NotebookDraft,
    RequestDraft,
)
from openpai_tasks.api.handle import JobHandle
from openpai_tasks.api.options import OF_DOCUMENTS, Words, read_options, secret_values, words
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from openpai_tasks.api.options import CommonOptions, JobOptions
    from openpai_tasks.protocol import JobRequest
    from openpai_tasks.sdk.jobs.submission import Submission
    from openpai_tasks.sdk.notebooks.link import Link
    from openpai_tasks.sdk.notebooks.results import DownloadedFile

DraftT = TypeVar("DraftT", bound=JobDraft)
RESOURCES = {"cpu": "cpu", "gpu": "gpu", "memoryMB": "memoryMB", "mem": "memoryMB", "ports": "ports"}


@with_python_names
class Job(JobHandle):
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

    def __init__(
        self,
        name: str | None = None,
        cluster: Where | Mapping[str, Any] = None,
        *,
        cluster_alias: str | None = None,
    ) -> None:
        super().__init__(name)
        self._draft: JobDraft | None = None
        self._made: Submission | None = None
        self._link: Link | None = None
        self._use_cluster(cluster, cluster_alias)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_made": None, "_link": None}

    def _shown(self) -> dict[str, str]:
        return {**super()._shown(), **({"state": "not submitted"} if self._draft else {})}

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
        return self._describe(CommandDraft, more, where, resources, command=command)

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
        nb_file: str | os.PathLike[str],
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

        ``param`` sets parameters of the notebook. ``connect_jupyter`` opens a server.
        """
        if mode not in MODES:
            raise ConfigError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        serve = None
        if mode == INTERACTIVE:
            serve = sdk.notebooks.serve_options(token, sdk.notebooks.IDLE, "", direct=False)
        more = {"image": image, "sources": sources, "pip_installs": pip_installs, **options}
        where = one_of(cluster=cluster, cluster_alias=cluster_alias)
        self._describe(NotebookDraft, more, where, resources)
        return self._change(file=os.fspath(nb_file), mode=mode, serve=serve)

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
        **flags: Any,
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
        return self._start(kind({**read_options(given), **flags}), given)

    def _start(self, draft: JobDraft, options: Mapping[str, Any]) -> Self:
        flags = {**draft.flags}
        flags.setdefault("job_name", self._name)
        self._name = flags["job_name"]
        values = secret_values(options)
        names = tuple(name for name in flags.get("secret", ()) if name not in values)
        self._draft = dataclasses.replace(draft, flags={**flags, "secret": names}, secrets=values)
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
        flags = self.draft.flags
        return self._change(flags={**flags, "tag": (*flags.get("tag", ()), *words(names))})

    set_param, set_secret, add_tag = param, secret, tag

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
        self,
        cluster: Where = None,
        virtual_cluster: str | None = None,
        *,
        cluster_alias: str | None = None,
    ) -> Self:
        """Submit the job, once, and return it."""
        self._use_cluster(cluster, cluster_alias)
        if virtual_cluster:
            self._change(flags={**self.draft.flags, "virtual_cluster": virtual_cluster})
        draft, made = self.draft, self._build()
        job = sdk.jobs.submit_when_ready(self.backend, made, say)
        draft.finish(self.backend, job)
        self._name, self._draft, self._made, self._seen = job.name, None, None, job
        return self

    def _build(self) -> Submission:
        self._made = self._made or self.draft.build(lambda: self.backend)
        return self._made

    # Notebooks, and old names

    def fetch(self, to: str | os.PathLike[str] | None = None) -> list[DownloadedFile]:
        """Download the executed notebook and its pages, to the notebook's folder or another one."""
        found = sdk.notebooks.find_results(self.backend, self.name, sdk.files.mounts(settings_here()))
        alias = self.backend.cluster.alias
        folder = Path(to) if to is not None else sdk.notebooks.results_folder(Path.cwd(), alias, found)
        downloaded = sdk.notebooks.download_results(found, folder)
        sdk.files.check_copied(downloaded.copied)
        return downloaded.files

    def get_status(self) -> protocol.models.JobInfo:
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
