"""One cluster in Python: its jobs, its resources, its storages."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.api.connection import name_of, open_backend, say, settings_here, without_login
from openpai_tasks.api.job import Job
from openpai_tasks.api.options import HasName, words
from openpai_tasks.api.storage import RemoteStorage
from openpai_tasks.api.submit import What, make_job
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.amounts import at_least, read
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from openpai_tasks.api.options import JobOptions
    from openpai_tasks.backends.base import Backend, UsageReport, VirtualCluster
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.clusters.known import Description
    from openpai_tasks.sdk.clusters.resources import Resources
    from openpai_tasks.sdk.tensorboard import TensorBoard


class Cluster:
    """A known cluster by its alias (by default the selected one), or any cluster by its address.

    >>> from openpai_tasks import Cluster
    >>> cluster = Cluster("local")
    >>> cluster.submit("exit 3", job_name="fails").wait().exit_code
    3
    >>> [job.name for job in cluster.jobs(state="FAILED")]
    ['fails']
    >>> cluster.job("fails").why().why
    'the command of main-0 ended with exit code 3'
    """

    def __init__(
        self, alias: str | None = None, *, cluster: str | None = None, cluster_alias: str | None = None
    ) -> None:
        self._alias = one_of(alias=alias, cluster=cluster, cluster_alias=cluster_alias)
        self._address, self._user, self._ca = "", "", ""
        self._credentials = Credentials()

    def __repr__(self) -> str:
        shown = self._shown()
        name = shown.pop("cluster", "")
        shown = {key: value for key, value in shown.items() if value != name}
        words = [*([repr(name)] if name else ()), *(f"{key}={value!r}" for key, value in shown.items())]
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_html_(self) -> str:
        from openpai_tasks.render import html

        return html.table([self._shown()], ("cluster", "user", "address"))

    def _shown(self) -> dict[str, str]:
        """What is known about the cluster; nothing is asked."""
        known = vars(self).get("backend")
        found = {"cluster": name_of(self), "user": self._user, "address": without_login(self._address)}
        if known is not None:
            found |= {"user": known.user, "address": without_login(known.cluster.uri)}
        return {name: value for name, value in found.items() if value}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a cluster without its connection, which another process opens again."""
        return {name: value for name, value in self.__dict__.items() if name not in ("backend", "storage")}

    def load(
        self,
        cluster_alias: str | None = None,
        pai_uri: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        *,
        cluster: str | None = None,
    ) -> Self:
        """Use a known cluster, or the one at ``pai_uri``, which is not saved."""
        alias = one_of(cluster_alias=cluster_alias, cluster=cluster)
        self.__dict__ = self.__getstate__()  # without the connection to another cluster
        self._alias, self._address = alias, pai_uri or ""
        self._user, self._ca = user or "", ca or ""
        self._credentials = Credentials(password or "", token or "")
        return self

    @functools.cached_property
    def backend(self) -> Backend:
        """The connection, made on first use; the embedded cluster is started if needed."""
        if not self._address:
            return open_backend(self._alias)
        new = sdk.clusters.NewCluster(
            self._alias or "", self._address, self._user, self._credentials, self._ca
        )
        return sdk.clusters.connect_unsaved(new, settings_here().http_timeout, say)

    @property
    def alias(self) -> str:
        """Your name for the cluster."""
        return self.backend.cluster.alias

    @property
    def user(self) -> str:
        """Your name on the cluster."""
        return self.backend.user

    @property
    def pai_uri(self) -> str:
        """The address of the cluster."""
        return self.backend.cluster.uri

    @property
    def info(self) -> Description:
        """The cluster's version, your account there, and what you may use, as it reports them now."""
        return sdk.clusters.describe_client(self.backend, settings_here().http_timeout, say)

    def virtual_clusters(self) -> dict[str, VirtualCluster]:
        """Return the virtual clusters by name."""
        return self.backend.virtual_clusters()

    def available_resources(self) -> list[Resources]:
        """Return the used and usable GPUs, CPUs and memory of each virtual cluster that you may use."""
        return sdk.clusters.cluster_resources(self.backend)

    def report(self, since: str = "30d", by: str = "user", *, user: str | None = None) -> UsageReport:
        """Return what jobs had and used since then, by ``user``, ``tag`` or ``sweep``.

        ``user`` is as in ``jobs``; by default, administrators of an embedded cluster get everyone's.
        """
        return sdk.usage_report.report_usage(self.backend, by, since, user)

    # Jobs

    def job(self, name: str | JobInfo) -> Job:
        """Return a handle of a job, by its name, ``user~name`` or a status that ``jobs`` returned."""
        if not isinstance(name, str):
            name = name.name if name.user == self.user else name.key
        return Job(name, self)

    def jobs(
        self,
        name: str | None = None,
        *,
        user: str | None = None,
        state: str | None = None,
        virtual_cluster: str | None = None,
        keyword: str | None = None,
        limit: int | None = None,
        idle: bool = False,
    ) -> list[JobInfo]:
        """List jobs, newest first: yours, or those of a ``user`` (``all`` for everyone's).

        ``name`` is a job or a pattern such as ``train-*``. The other filters are those of `job.list`.
        """
        if name is not None and not sdk.jobs.is_pattern(name):
            return [sdk.jobs.find(self.backend, name)]
        if limit is not None:
            read("limit", at_least(0), limit)
        states = sdk.jobs.parse_states(state) if state else None
        return sdk.jobs.list_jobs(
            self.backend, user, states, virtual_cluster, keyword, limit, pattern=name or "*", idle=idle
        )

    def submit(self, what: What = "", *, name: str | None = None, **options: Unpack[JobOptions]) -> Job:
        """Submit a command, a job file or a ``JobRequest`` to this cluster; see ``submit``."""
        return make_job(what, self, name, options).submit()

    def rest_api_submit(self, document: str | Mapping[str, Any]) -> Job:
        """Submit a job document as it is, given as text or as a mapping."""
        made = sdk.jobs.read_document(document, self.backend.capabilities.v1_documents)
        return Job(sdk.jobs.submit(self.backend, made, say).name, self)

    def stop(self, *names: str) -> list[JobInfo]:
        """Ask jobs to stop, by name or pattern, and return their status."""
        return sdk.jobs.stop(self.backend, names)

    def tensorboard(self, *jobs: str | HasName, port: int = 0) -> TensorBoard:
        """Start TensorBoard for the event files of jobs: handles, names, patterns or sweeps.

        It has a ``url``, and ``missing`` names the jobs without event files. ``close`` or a ``with`` block
        ends it.
        """
        mounts = sdk.files.mounts(settings_here())
        return sdk.tensorboard.TensorBoard(self.backend, words(jobs, "jobs"), mounts, port, say)

    # Storages

    @functools.cached_property
    def storage(self) -> RemoteStorage:
        """The selected storage, else the default one."""
        return self.get_storage()

    def get_storage(self, name: str = "") -> RemoteStorage:
        """Return a storage by its name."""
        return RemoteStorage(self.backend, name)


class OpenPAIClient(Cluster):
    """A client of a cluster: by its address, by its alias, or inside a job from the environment.

    >>> from openpai_tasks import OpenPAIClient
    >>> OpenPAIClient.from_alias("local").submit("true").wait().state
    'SUCCEEDED'
    """

    def __init__(
        self,
        pai_uri: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca: str | None = None,
    ) -> None:
        super().__init__()
        if pai_uri:
            self.load(None, pai_uri, user, password, token, ca)

    @classmethod
    def from_alias(
        cls, alias: str | None = None, *, cluster: str | None = None, cluster_alias: str | None = None
    ) -> Self:
        """Return a client of a known cluster; by default, of the selected one."""
        return cls().load(one_of(alias=alias, cluster=cluster, cluster_alias=cluster_alias))

    @classmethod
    def from_env(cls) -> Self:
        """Return a client of the cluster that the environment names, for instance inside a job.

        ``OPENPAI_URI`` is its address, ``OPENPAI_TOKEN`` or ``OPENPAI_PASSWORD`` the login, and
        ``OPENPAI_USER`` the user; inside a job the user is the owner of the job.
        """
        names = ("OPENPAI_URI", "PAISDK_PAI_URI")
        address = next(filter(None, map(os.environ.get, names)), None)
        if not address:
            raise ConfigError(f"the environment names no cluster: set {names[0]}")
        users = ("OPENPAI_USER", "PAISDK_USER", "PAI_USER_NAME")
        return cls(address, next(filter(None, map(os.environ.get, users)), ""))
