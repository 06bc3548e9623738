"""Drafts of jobs: what a program has described so far, and the submission that it becomes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.api.connection import say, settings_here
from openpai_tasks.api.options import Options, plain_value, secret_reader
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.jobs.placement import Demand
    from openpai_tasks.sdk.jobs.submission import Submission
    from openpai_tasks.sdk.notebooks.notebook_file import Notebook
    from openpai_tasks.sdk.notebooks.running import RunOptions
    from openpai_tasks.sdk.notebooks.serving import ServeOptions
    from openpai_tasks.settings.config import Settings

Connect = Callable[[], "Backend"]

INTERACTIVE, SILENT, SCRIPT = "interactive", "silent", "script"
MODES = (INTERACTIVE, SILENT, SCRIPT)

_PARAMETER = re.compile(r"<%\s*\$parameters\.(\w+)\s*%>")


@dataclass(frozen=True)
class JobDraft:
    """The options, parameters and secrets of a job, by name."""

    options: Options = field(default_factory=Options)
    params: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def make_request(self) -> tuple[JobRequest, Settings]:
        """Return the request of the job, and the settings that are in it."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if no valid job can be made of it; no cluster is asked."""
        sdk.jobs.check_request(self.make_request()[0], Path.cwd())

    def build(self, connect: Connect) -> Submission:
        """Pack the files and build the document for a cluster; nothing is sent.

        ``connect`` is called once the options are read: a mistake in them must not start a cluster.
        """
        request, given = self.make_request()
        return sdk.jobs.prepare(connect(), request, Path.cwd(), sdk.files.mounts(given))

    def demand(self) -> Demand:
        """Return what the job needs of a cluster."""
        request, given = self.make_request()
        return sdk.jobs.demand_of(request, sdk.files.mounts(given))

    def finish(self, backend: Backend, job: JobInfo) -> None:
        """Do what follows the submission."""

    def _settings(self) -> Settings:
        return settings_here(**sdk.jobs.setting_overrides(self.options))

    def _with_secrets(self) -> Options:
        """Return the options with the names of all secrets."""
        return dataclasses.replace(self.options, secret=(*self.options.secret, *self.secrets))


@dataclass(frozen=True)
class CommandDraft(JobDraft):
    """A command, or a template with its parameters."""

    def make_request(self) -> tuple[JobRequest, Settings]:
        given, options = self._settings(), self._with_secrets()
        if options.template:
            params = {name: plain_value(value, name) for name, value in self.params.items()}
            options = dataclasses.replace(options, parameter={**options.parameter, **params})
        else:
            command = fill_parameters(options.command, self.params)
            options = dataclasses.replace(options, command=command)
        return sdk.templates.build_request(options, given, secret_reader(self.secrets), Path.cwd()), given


@dataclass(frozen=True)
class RequestDraft(JobDraft):
    """A request; what it leaves open comes from the settings."""

    request: JobRequest = field(default_factory=JobRequest)

    def make_request(self) -> tuple[JobRequest, Settings]:
        given, read = self._settings(), secret_reader(self.secrets)
        request, options = self.request, self._with_secrets()
        policy = sdk.jobs.build_policy(options)
        names = ("image", "cpu", "gpu", "memory_mb", "workspace", "sources", "outputs", "pip_installs")
        missing = {name: getattr(given, name) for name in names if getattr(request, name) in (None, "", ())}
        if request.memory_mb is None:
            missing["is_memory_asked"] = sdk.jobs.is_memory_asked(given)
        completed = dataclasses.replace(
            request,
            **missing,
            command=fill_parameters(request.command, self.params),
            name=options.job_name or request.name,
            virtual_cluster=options.virtual_cluster or request.virtual_cluster or given.virtual_cluster,
            secrets={**request.secrets, **{name: read(name) for name in options.secret}},
            tags=(*request.tags, *options.tag),
            updates=(*request.updates, *options.update),
            policy=dataclasses.replace(request.policy, after=(*request.policy.after, *policy.after)),
            hooks=(*request.hooks, *sdk.jobs.request_hooks(options, given)),
        )
        return completed, given


@dataclass(frozen=True)
class FileDraft(JobDraft):
    """A job file, v2 YAML or v1 JSON."""

    path: Path = field(default_factory=Path)

    def check(self) -> None:
        sdk.jobs.read_job_file(self.path, self._changes(), takes_v1=True)

    def demand(self) -> Demand:
        return sdk.jobs.Demand(sdk.jobs.read_job_file(self.path, self._changes()).text)

    def build(self, connect: Connect) -> Submission:
        changes = self._changes()
        read = sdk.jobs.read_job_file(self.path, changes, connect().capabilities.v1_documents)
        if read.converted:
            say(f"{self.path} is a v1 job; submitting it as v2")
        for change in read.renamed:
            say(f"renamed for protocol v2: {change}")
        return read

    def _changes(self) -> JobRequest:
        """Return the request with which the file is completed."""
        options, read = self._with_secrets(), secret_reader(self.secrets)
        _, is_v1 = sdk.jobs.load_document(self.path)
        secrets = {name: read(name) for name in options.secret}
        return JobRequest(
            secrets=secrets,
            tags=options.tag,
            updates=(*self._updates(is_v1, secrets), *options.update),
            policy=sdk.jobs.build_policy(options),
            hooks=sdk.jobs.request_hooks(options, self._settings()),
        )

    def _updates(self, is_v1: bool, secrets: Mapping[str, str]) -> tuple[tuple[str, Any], ...]:
        if is_v1 and (self.params or secrets):
            raise ConfigError(f"{self.path} is a v1 job, which has no parameters and secrets")
        changes: dict[str, Any] = {
            f"parameters:{name}": plain_value(value, name) for name, value in self.params.items()
        }
        changes |= {f"secrets:{name}": value for name, value in secrets.items()}
        if self.options.job_name:
            changes["jobName" if is_v1 else "name"] = sdk.jobs.new_name(self.options.job_name, "")
        if self.options.virtual_cluster:
            path = "virtualCluster" if is_v1 else "defaults.virtualCluster"
            changes[path] = self.options.virtual_cluster
        return tuple(changes.items())


@dataclass(frozen=True)
class NotebookDraft(JobDraft):
    """A notebook, run from its first cell to its last or served by Jupyter."""

    file: str = ""
    mode: str = SILENT
    serve: ServeOptions | None = None

    def check(self) -> None:
        request, _ = self.make_request()
        if self.file or self.serve is None:
            self._options(self._notebook())
        sdk.jobs.check_request(dataclasses.replace(request, command="notebook"), Path.cwd())

    def demand(self) -> Demand:
        request, given = self.make_request()
        request = dataclasses.replace(request, command="notebook")
        has_server = self.serve is not None
        return sdk.jobs.demand_of(request, sdk.files.mounts(given), has_files=True, ssh=has_server)

    def build(self, connect: Connect) -> Submission:
        request, given = self.make_request()
        here, mounted = Path.cwd(), sdk.files.mounts(given)
        if self.serve is None:
            notebook = self._notebook()
            options = self._options(notebook)
            return sdk.notebooks.plan_run(connect(), notebook, options, request, here, mounted)
        key = sdk.ssh.public_key(given)
        return sdk.notebooks.plan_server(connect(), self._served(), self.serve, request, key, here, mounted)

    def finish(self, backend: Backend, job: JobInfo) -> None:
        """Keep the token of a Jupyter server, so that it can be opened later."""
        if self.serve is not None:
            notebook = self._served()
            origins = sdk.notebooks.source_origins(notebook, self._settings().sources, Path.cwd())
            own = (notebook.name, str(notebook.path)) if notebook else ("", "")
            saved = sdk.notebooks.SavedSession(self.serve.token, *own, origins)
            sdk.notebooks.save_session(backend, job, saved)

    def make_request(self) -> tuple[JobRequest, Settings]:
        given = self._settings()
        return sdk.jobs.build_request(self._with_secrets(), given, secret_reader(self.secrets)), given

    def _notebook(self) -> Notebook:
        return sdk.notebooks.read_notebook(self.file, Path.cwd())

    def _served(self) -> Notebook | None:
        """Return the notebook; None for a server without one."""
        return self._notebook() if self.file else None

    def _options(self, notebook: Notebook) -> RunOptions:
        values = sdk.notebooks.check_parameters(self.params)
        options = sdk.notebooks.run_options(values, (SCRIPT,) if self.mode == SCRIPT else ())
        for remark in sdk.notebooks.remarks(notebook, options):
            say(sdk.notebooks.as_line(remark))
        return options


def fill_parameters(command: str, params: Mapping[str, Any]) -> str:
    """Put values of parameters for ``<% $parameters.NAME %>``; other such references are refused."""
    if not params:
        return command

    def value(match: re.Match[str]) -> str:
        if match[1] not in params:
            raise ConfigError(f"the command refers to the parameter {match[1]!r}, which has no value")
        return str(params[match[1]])

    return _PARAMETER.sub(value, command)
