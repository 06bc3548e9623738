"""The list of known clusters in Python."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks import sdk
from openpai_tasks.api.cluster import Cluster
from openpai_tasks.api.connection import say, settings_here, without_login
from openpai_tasks.errors import ConfigError, PaiError, PathError
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, parse
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from openpai_tasks.sdk.clusters.resources import Resources
    from openpai_tasks.settings.registry import Cluster as KnownCluster

LOGIN = ("user", "password", "token", "ca")


class ClusterList:
    """The clusters in your clusters.yaml, and the embedded one; changes are saved at once.

    ``ClusterList(records)`` is a list of these clusters only, until ``load`` or ``save`` is called. A record
    without a password and token stands for your cluster of that alias and address, with its stored login.

    >>> from openpai_tasks import ClusterList
    >>> clusters = ClusterList().load()
    >>> clusters.aliases
    ['local']
    >>> clusters.get_client("local").submit("true").wait().state
    'SUCCEEDED'
    """

    client_class = Cluster

    def __init__(self, clusters: Iterable[Mapping[str, Any]] | None = None) -> None:
        self._is_whole = clusters is None
        self._more = {_named(record)["cluster_alias"]: _named(record) for record in clusters or ()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[row['cluster'] for row in self._rows()]})"

    def _repr_html_(self) -> str:
        from openpai_tasks.render import html

        return html.table(self._rows(), ("cluster", "user", "address"))

    def _rows(self) -> list[dict[str, str]]:
        """The clusters, without the passwords and tokens of the given ones; none of them is asked."""
        known: Sequence[KnownCluster] = ()
        with contextlib.suppress(PaiError):  # a mistake in the file is reported by ``load``
            known = self._known()
        rows = {one.alias: {"user": one.user, "address": without_login(one.uri)} for one in known}
        for alias, given in self._more.items():
            address = without_login(str(given.get("pai_uri") or ""))
            rows[alias] = {"user": str(given.get("user") or ""), "address": address}
        own = [LOCAL] if self._is_whole else []
        return [{"cluster": alias, **rows.get(alias, {})} for alias in dict.fromkeys([*own, *rows])]

    def _known(self) -> Sequence[KnownCluster]:
        """Return the saved clusters that belong to the list."""
        return sdk.clusters.open_registry(settings_here()).clusters() if self._is_whole else ()

    def load(self, fname: str | os.PathLike[str] | None = None) -> Self:
        """Read the list; from another file, its clusters are added to the list only by ``save``."""
        self._is_whole = True
        if fname is None:
            sdk.clusters.open_registry(settings_here()).clusters()  # report mistakes in the file
            return self
        path = Path(fname)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise PathError(
                f"cannot read {str(path)!r}: {getattr(err, 'strerror', '') or 'not text'}"
            ) from err
        for cluster, login in parse(text, path):
            ca = cluster.verify if isinstance(cluster.verify, str) else ""
            self._more[cluster.alias] = {
                **{"cluster_alias": cluster.alias, "pai_uri": cluster.uri, "user": cluster.user},
                **{"password": login.password, "token": login.token, "ca": ca},
            }
        return self

    @property
    def aliases(self) -> list[str]:
        """The names of the clusters, the embedded one first."""
        own = [LOCAL] if self._is_whole else []
        return list(dict.fromkeys([*own, *(cluster.alias for cluster in self._known()), *self._more]))

    def add(
        self, cluster: Mapping[str, Any] | str | None = None, *, force: bool = False, **fields: Any
    ) -> Self:
        """Log in to a cluster and save it: cluster_alias (or cluster), pai_uri, user, and password or token.

        ``force`` replaces another cluster of that alias.
        """
        record = {"cluster": cluster} if isinstance(cluster, str) else cluster or {}
        given = _named({**record, **fields})
        for name in ("cluster_alias", "pai_uri"):
            if not given.get(name):
                raise ConfigError(f"a cluster needs {name!r}")
        user, password, token, ca = (str(given.get(name) or "") for name in LOGIN)
        login = Credentials(password, token)
        new = sdk.clusters.NewCluster(given["cluster_alias"], given["pai_uri"], user, login, ca, force)
        sdk.clusters.add(settings_here(), new, True, _cannot_ask, say)
        return self

    def update(
        self,
        alias: str = "",
        user: str = "",
        password: str = "",
        token: str = "",
        ca: str = "",
        *,
        cluster: str = "",
        cluster_alias: str = "",
    ) -> Self:
        """Refresh what is known about a cluster, or renew the login to it."""
        alias = _required(alias, cluster, cluster_alias)
        new = sdk.clusters.ClusterUpdate(user, Credentials(password, token), ca)
        sdk.clusters.update(settings_here(cluster_alias=alias), alias, new, _cannot_ask, say)
        return self

    def update_all(self) -> Self:
        """Refresh what is known about all clusters; raise if one cannot be reached."""
        sdk.clusters.check_updated(sdk.clusters.update_all(settings_here(), say))
        return self

    def delete(self, alias: str = "", *, cluster: str = "", cluster_alias: str = "") -> Self:
        """Remove a cluster from the list, with its password and token."""
        alias = _required(alias, cluster, cluster_alias)
        if self._more.pop(alias, None) is None:
            sdk.clusters.delete(settings_here(), [alias])
        return self

    def select(self, alias: str = "", *, cluster: str = "", cluster_alias: str = "") -> Cluster:
        """Return a cluster; raise if it is unknown. `cluster.select` sets the default of a folder."""
        alias = _required(alias, cluster, cluster_alias)
        given = self._more.get(alias)
        if given is not None and not self._is_saved(given):
            login = {name: given.get(name) for name in LOGIN}
            return self.client_class().load(alias, given.get("pai_uri"), **login)
        sdk.clusters.open_registry(settings_here()).get(alias)
        return self.client_class().load(alias)

    get_client = select

    def _is_saved(self, given: Mapping[str, Any]) -> bool:
        """Whether a record without a login is a saved cluster; the stored login goes to no other address."""
        if given.get("password") or given.get("token"):
            return False
        saved = sdk.clusters.open_registry(settings_here()).clusters()
        address, user = str(given.get("pai_uri") or "").rstrip("/"), given.get("user")
        return any(
            one.alias == given["cluster_alias"] and one.uri == address and user in (None, "", one.user)
            for one in saved
        )

    def available_resources(self) -> list[Resources]:
        """Return the resources of the clusters; one that does not answer is a row with the ``problem``."""
        connect = {alias: lambda alias=alias: self.select(alias).backend for alias in self.aliases}
        return sdk.clusters.resources_of(settings_here(), connect)

    def save(self) -> Self:
        """Add the clusters that were read from another file, or given, to the list."""
        for given in self._more.values():
            if not self._is_saved(given):
                self.add(given)
        self._is_whole, self._more = True, {}
        return self


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given about a cluster, with its alias as ``cluster_alias``."""
    alias = one_of(cluster=record.get("cluster"), cluster_alias=record.get("cluster_alias"))
    rest = {name: value for name, value in record.items() if name != "cluster"}
    return {**rest, "cluster_alias": "" if alias is None else str(alias)}


def _required(alias: str, cluster: str, cluster_alias: str) -> str:
    found = one_of(alias=alias, cluster=cluster, cluster_alias=cluster_alias)
    if not found:
        raise ConfigError("which cluster? name it: cluster='lab'")
    return str(found)


def _cannot_ask(prompt: str) -> str:
    raise ConfigError("a password or token is needed: give one, or set OPENPAI_TOKEN")
