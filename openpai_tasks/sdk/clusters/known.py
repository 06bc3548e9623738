"""The clusters that the user works with: add, update, select and connect to them."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Ask, Backend, Say, TokenStore
from openpai_tasks.errors import ConfigError, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk import known_names, ssh
from openpai_tasks.sdk.amounts import parse_option
from openpai_tasks.sdk.clusters import embedded, environment, ssh_machines
from openpai_tasks.sdk.clusters.environment import EnvironmentLogin
from openpai_tasks.sdk.clusters.start_options import start_request
from openpai_tasks.sdk.clusters.user_clusters import UserClusters
from openpai_tasks.sdk.clusters.user_clusters import open_registry as open_registry
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings import config, credentials, layers
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import ANY, DEFAULT_KIND, LOCAL, OPTIONS, Cluster, is_embedded
from openpai_tasks.text import durations
from openpai_tasks.text.hints import command

ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LEARNED = ("uri", "prefix", "user", "generation", "info", "virtual_clusters", "storages", "verify")
"""Fields of a record that are learned by signing in; the user chooses the others."""


@dataclass(frozen=True)
class NewCluster:
    """What the user gives for a new cluster."""

    alias: str
    address: str
    user: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    ca: str = ""
    force: bool = False
    kind: str = DEFAULT_KIND
    remote_program: str = ""  # on the login node
    options: tuple[str, ...] = ()  # NAME=VALUE, of those that its kind has


@dataclass(frozen=True)
class ClusterUpdate:
    """New values for a known cluster, all optional."""

    user: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    ca: str = ""
    login: bool = False  # ask for a password although one is kept


@dataclass(frozen=True)
class ClusterRow:
    """A known cluster, without contacting it; the embedded one has no address while it is not running."""

    alias: str
    selected: bool
    uri: str
    user: str
    type: str
    generation: str
    virtual_clusters: tuple[str, ...]

    @property
    def product(self) -> str:
        """The type and the generation as users write them."""
        kind = kinds.KINDS.get(self.type)
        generation = self.generation if kind is None or kind.has_generations else ""
        return f"{kind.label if kind else self.type} {generation}".rstrip()


@dataclass(frozen=True)
class UpdateResult:
    """The result of updating a cluster's record; ``problem`` is why it was not updated."""

    alias: str
    uri: str
    generation: str
    virtual_clusters: tuple[str, ...]
    storages: tuple[str, ...]
    problem: str = ""


def connect(settings: Settings, alias: str | None = None, say: Say = lambda line: None) -> Backend:
    """Return a client of the named or the selected cluster; start the embedded one if needed."""
    client = _client(settings, alias or settings.cluster_alias or LOCAL, say)
    client.patience = durations.parse_seconds(settings.watch_patience, "watch-patience")
    return client


def _client(settings: Settings, alias: str, say: Say) -> Backend:
    if is_embedded(alias):
        return embedded.connect(start_request(settings), say, settings.http_timeout)
    book = open_registry(settings)
    cluster = book.get(alias)
    check_ca(cluster.verify if isinstance(cluster.verify, str) else None)
    kept = book.credentials(cluster.alias)
    env_login = EnvironmentLogin() if kept else environment.for_cluster(settings, cluster)
    login = StoredLogin(book, cluster, kept, settings.http_timeout)
    return kinds.driver(cluster.kind).connect(
        cluster,
        kept or env_login.credentials,
        tokens=TokenStore(login.read_token, login.keep_token),
        timeout=settings.http_timeout,
        learn=login.learn,
        say=say,
        hint=env_login.why_not,
    )


def list_clusters(settings: Settings, say: Say = lambda line: None) -> list[ClusterRow]:
    """Return every known cluster, the embedded one first."""
    book = open_registry(settings)
    for problem in book.problems:
        say(f"warning: {problem}")
    own, others = embedded.running() or book.get(LOCAL), book.clusters()
    known_names.note_clusters(others)
    return [cluster_row(settings, cluster) for cluster in (own, *others)]


def cluster_row(settings: Settings, cluster: Cluster) -> ClusterRow:
    return ClusterRow(
        alias=cluster.alias,
        selected=cluster.alias == (settings.cluster_alias or LOCAL),
        uri=cluster.uri,
        user=cluster.user,
        type=cluster.kind,
        generation=cluster.generation,
        virtual_clusters=cluster.virtual_clusters,
    )


def add(settings: Settings, new: NewCluster, check: bool, ask: Ask, say: Say) -> Cluster:
    """Log in and save the cluster; without ``check``, save it as given."""
    cluster = _prepare(settings, new)
    try:
        return _add(settings, new, cluster, check, ask, say)
    except BaseException:  # nothing is left in the background by a command that failed
        ssh_machines.close_unused(cluster, open_registry(settings))
        raise


def _add(settings: Settings, new: NewCluster, cluster: Cluster, check: bool, ask: Ask, say: Say) -> Cluster:
    typed, addresses = bool(new.credentials), kinds.driver(new.kind).candidates(new.address)
    env_login, matching = (
        (EnvironmentLogin(), addresses) if typed else environment.for_addresses(addresses, new.kind)
    )
    known = new.credentials or env_login.credentials
    if check:
        if len(matching) < len(addresses):  # the environment is for one of the schemes only
            cluster = dataclasses.replace(cluster, uri=matching[0])
        asking = environment.with_reason(ask, env_login.why_not)
        sign_in = kinds.driver(cluster.kind).sign_in
        cluster, known = sign_in(cluster, known, asking, say, settings.http_timeout, typed)
    else:
        user = new.user or str(credentials.token_claims(known.token).get("username") or "")
        cluster = dataclasses.replace(cluster, uri=matching[0], user=user)
    book = open_registry(settings)
    replaced = [one for one in book.clusters() if one.alias == cluster.alias and one.uri != cluster.uri]
    book.put(cluster)
    for one in replaced:
        ssh.forget_cluster(one.unique_name)
        ssh_machines.close_unused(one, book)
    known_names.note_clusters(book.clusters())
    if known:
        where = credentials.save(book.get(cluster.alias).destination, known)
        say(f"the {'password' if known.password else 'token'} is stored in {where}")
    return cluster


def update(settings: Settings, alias: str, new: ClusterUpdate, ask: Ask, say: Say) -> UpdateResult:
    """Update the record of a cluster, with new credentials if they are given."""
    if is_embedded(alias):
        raise ConfigError(f"the embedded cluster {LOCAL!r} is always up to date")
    book = open_registry(settings)
    before = book.get(alias)
    alias = before.alias
    verify = check_ca(new.ca or (before.verify if isinstance(before.verify, str) else None))
    wanted = dataclasses.replace(before, user=new.user or before.user, verify=verify)
    kept, env_login = Credentials(), EnvironmentLogin()
    if not new.credentials and not new.login:
        kept = book.credentials(alias) if wanted.destination == before.destination else kept
        env_login = env_login if kept else environment.for_cluster(settings, wanted)
    known, typed = new.credentials or kept or env_login.credentials, bool(new.credentials)
    asking = environment.with_reason(ask, env_login.why_not)
    sign_in = kinds.driver(wanted.kind).sign_in
    found, fresh_login = sign_in(wanted, known, asking, say, settings.http_timeout, typed)
    fresh: dict[str, Any] = {name: getattr(found, name) for name in LEARNED}
    after = book.change(alias, lambda now: dataclasses.replace(now, **fresh))
    known_names.note_clusters(book.clusters())
    is_from_environment = known and not typed and not kept
    if not is_from_environment and (not kept or may_store(before, kept)):
        credentials.save(after.destination, book.storable(after, fresh_login))
    return _updated(after)


def update_all(settings: Settings, say: Say) -> list[UpdateResult]:
    """Update all clusters in parallel; a record that cannot be updated stays as it was."""

    def refresh(cluster: Cluster) -> UpdateResult:
        try:
            ask = partial(cannot_ask, alias=cluster.alias)
            return update(settings, cluster.alias, ClusterUpdate(), ask, say)
        except PaiError as err:
            return _updated(cluster, str(err))

    def give_up(cluster: Cluster) -> UpdateResult:
        return _updated(cluster, timeout_message(settings))

    return map_parallel(refresh, open_registry(settings).clusters(), time_limit(settings), give_up)


def time_limit(settings: Settings) -> float:
    """Time limit in seconds for each cluster when several are updated at once."""
    return 2 * settings.http_timeout + 5


def timeout_message(settings: Settings) -> str:
    return f"no answer within {time_limit(settings):g} s"


def check_updated(rows: Iterable[UpdateResult]) -> None:
    """Raise if some clusters were not updated, so that scripts notice."""
    failed = [row.alias for row in rows if row.problem]
    if failed:
        raise Unreachable(f"not updated: {', '.join(failed)}")


def delete(settings: Settings, aliases: Iterable[str], stop: bool = False) -> list[Cluster]:
    """Delete clusters with their secrets and data about their jobs; delete none if one is unknown.

    With ``stop``, servers on login nodes are stopped first.
    """
    book, gone = open_registry(settings), []
    known = [book.get(alias) for alias in aliases]
    for cluster in known if stop else ():
        ssh_machines.stop_server(cluster)
    for alias in dict.fromkeys(cluster.alias for cluster in known):
        gone.append(book.remove(alias))
        ssh.forget_cluster(gone[-1].unique_name)
        ssh_machines.close_unused(gone[-1], book)
    known_names.note_clusters(book.clusters())
    return gone


def select(settings: Settings, alias: str, is_global: bool) -> Path:
    """Select the cluster that commands use; return the file that was written."""
    book = open_registry(settings)
    alias = book.get(alias).alias
    known_names.note_clusters(book.clusters())
    path = layers.defaults_path(is_global)
    config.change_defaults(path, {"cluster-alias": alias})
    return path


def _prepare(settings: Settings, new: NewCluster) -> Cluster:
    """Return the record to fill, with the earlier choices of the user for this alias."""
    if not ALIAS.fullmatch(new.alias):
        raise ConfigError(f"the alias {new.alias!r} may have letters, digits, '.', '_' and '-' only")
    if is_embedded(new.alias):
        raise ConfigError(f"the alias {LOCAL!r} belongs to the embedded cluster; choose another")
    if new.alias == ANY:
        raise ConfigError(f"the alias {ANY!r} stands for whichever cluster can start a job; choose another")
    addresses = kinds.driver(new.kind).candidates(new.address)
    known = {cluster.alias: cluster for cluster in open_registry(settings).clusters()}
    fresh = Cluster(new.alias, addresses[0], kind=new.kind)
    base = known.get(new.alias) or fresh
    if base.uri not in addresses:
        if not new.force:
            raise ConfigError(f"{new.alias!r} is already the cluster at {base.uri}; --force replaces it")
        base = fresh
    base = base if base.kind == new.kind else fresh
    known_ca = base.verify if base.is_own else True  # a project's CA counts only if the user names it
    verify = check_ca(new.ca) if new.ca else known_ca
    extra = {**base.extra, **ssh_machines.extra_fields(new.kind, new.remote_program), **_options(new)}
    return dataclasses.replace(base, uri=new.address, user=new.user, verify=verify, extra=extra)


def _options(new: NewCluster) -> dict[str, dict[str, str]]:
    """Return the field of the record with the options that only the kind of the cluster knows."""
    known, owner = kinds.KINDS[new.kind].options, f"clusters of type {new.kind!r}"
    instead = "it is asked for, or read from --password-file or --token-file"
    for name in (text.partition("=")[0] for text in new.options):
        others = [type for type, kind in kinds.KINDS.items() if name in kind.options]
        if others and name not in known:
            raise ConfigError(
                f"the option {name!r} is for --type {' or '.join(others)}, not for {new.kind!r}"
            )
    found = dict(parse_option(text, known, owner, instead) for text in new.options)
    if check := getattr(kinds.driver(new.kind), "check_options", None):
        check(found)
    return {OPTIONS: found} if found else {}


def check_ca(ca: str | None) -> bool | str:
    """Return what verifies certificates: the CAs of the system, or those in a file."""
    if not ca:
        return True
    import ssl

    path = Path(ca).expanduser().resolve()
    try:
        ssl.create_default_context(cafile=str(path))
    except FileNotFoundError as err:
        raise ConfigError(f"no CA file at {path}") from err
    except OSError as err:
        raise ConfigError(f"{path} is not a CA file in PEM form") from err
    return str(path)


def cannot_ask(prompt: str, alias: str = "ALIAS") -> str:
    """Prompt for non-interactive runs; always raises."""
    raise ConfigError(
        f"no password or token is stored; `{command('cluster.update', alias, '--login')}` asks for one"
    )


def _updated(cluster: Cluster, problem: str = "") -> UpdateResult:
    alias, uri, parts = cluster.alias, cluster.uri, cluster.virtual_clusters
    return UpdateResult(alias, uri, cluster.generation, parts, storage_names(cluster), problem)


def storage_names(cluster: Cluster) -> tuple[str, ...]:
    return tuple(str(entry.get("name") or entry.get("storage_alias") or "?") for entry in cluster.storages)


def may_store(cluster: Cluster, kept: Credentials) -> bool:
    """Whether new tokens may be stored: never for a login that only a project's file contains."""
    return cluster.is_own or kept == credentials.load(cluster.destination)


class StoredLogin:
    """Stores new tokens, and what a cluster first reports about itself, for the next command."""

    def __init__(self, book: UserClusters, cluster: Cluster, kept: Credentials, seconds: float) -> None:
        self._book, self._cluster, self._kept, self._seconds = book, cluster, kept, seconds
        self._may_store = bool(kept) and may_store(cluster, kept)

    def read_token(self) -> str:
        """Return the token that is stored now, maybe by another command."""
        return credentials.load(self._cluster.destination).token if self._may_store else ""

    def keep_token(self, token: str) -> None:
        if self._may_store:
            self._save(self._cluster, dataclasses.replace(self._kept, token=token))

    def learn(self, cluster: Cluster) -> Cluster:
        """Complete the record of a cluster that was added without a check; its login moves along."""
        found = kinds.driver(cluster.kind).learn(cluster, self._seconds)
        learned: dict[str, Any] = {"prefix": found.prefix, "generation": found.generation, "info": found.info}
        self._book.change(cluster.alias, lambda now: dataclasses.replace(now, **learned))
        if self._may_store and found.destination != cluster.destination:
            self._save(found, self._kept)
        self._cluster = found
        return found

    def _save(self, cluster: Cluster, known: Credentials) -> None:
        credentials.save(cluster.destination, self._book.storable(cluster, known))


# What a cluster says about itself, and access for other clients and users


@dataclass(frozen=True)
class Description:
    """A cluster as it describes itself now."""

    alias: str
    uri: str
    user: str
    generation: str
    version: str
    launcher: str
    login: str
    virtual_clusters: tuple[str, ...]
    storages: tuple[str, ...]


@dataclass(frozen=True)
class Access:
    """What another client needs to use the cluster as this user, secrets included."""

    alias: str
    uri: str
    rest_server_uri: str
    user: str
    token: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


def describe(settings: Settings, alias: str | None, say: Say) -> Description:
    """Ask the cluster for its version, the account of the user, and what the user may use."""
    return describe_client(connect(settings, alias, say), settings.http_timeout, say)


def describe_client(client: Backend, timeout: float, say: Say) -> Description:
    """Describe the cluster that a client is connected to."""
    known = Credentials(token=client.authenticate())
    driver = kinds.driver(client.cluster.kind)
    cluster, _ = driver.sign_in(client.cluster, known, cannot_ask, say, timeout)
    described = driver.connect(cluster, known).describe()
    return Description(
        alias=cluster.alias,
        uri=cluster.uri,
        user=cluster.user,
        generation=cluster.generation,
        version=described.version,
        launcher=described.launcher,
        login=described.login,
        virtual_clusters=cluster.virtual_clusters,
        storages=storage_names(cluster),
    )


def access_info(settings: Settings, alias: str | None, say: Say) -> Access:
    """Return the address, the user and a valid token; the password only for the embedded cluster."""
    client = connect(settings, alias, say)
    cluster = client.cluster
    is_local = cluster.is_embedded
    known = embedded.login() if is_local else open_registry(settings).credentials(cluster.alias)
    token = client.token()
    end = credentials.token_claims(token).get("exp")
    if known.password and isinstance(end, (int, float)) and end < time.time():
        token = client.renew(token)
    password = known.password if is_local else None
    return Access(cluster.alias, cluster.uri, cluster.rest, cluster.user, token, password)


def connect_unsaved(new: NewCluster, timeout: float, say: Say) -> Backend:
    """Log in to a cluster with the given credentials, or those of the environment for its address."""
    addresses = kinds.driver(new.kind).candidates(new.address)
    alias = new.alias or str(urlsplit(addresses[0]).hostname)
    login, matching = environment.for_addresses(addresses, new.kind)
    known = new.credentials or login.credentials
    address = new.address if new.credentials or len(matching) == len(addresses) else matching[0]
    cluster = Cluster(alias, address, user=new.user, kind=new.kind, verify=check_ca(new.ca))
    problem = f"no password or token is given for {addresses[0]}{login.why_not and '; '}{login.why_not}"
    return _sign_in(cluster, known, problem, timeout, say, typed=bool(new.credentials))


def log_in(settings: Settings, alias: str, user: str, password: str, say: Say = lambda line: None) -> Backend:
    """Log in to a known cluster as another user; nothing of it is saved.

    Storages that this machine's user has added, and other choices for the cluster, are not theirs.
    """
    if not user or not password:
        raise ConfigError("enter a user name and a password")
    if is_embedded(alias):
        cluster = embedded.ensure_running(start_request(settings), say)
    else:
        cluster = open_registry(settings).get(alias)
    theirs = dataclasses.replace(cluster, user=user, own_storages=(), storage="", workspace="")
    problem = f"cluster {alias!r} asks for more than a password; use its own portal"
    return _sign_in(theirs, Credentials(password=password), problem, settings.http_timeout, say, typed=True)


def _sign_in(
    cluster: Cluster, known: Credentials, problem: str, timeout: float, say: Say, typed: bool
) -> Backend:
    """Log in and return a client; ``problem`` is the error if the user would have to be asked."""

    def no_answer(prompt: str) -> str:
        raise ConfigError(problem)

    driver = kinds.driver(cluster.kind)
    found, credentials = driver.sign_in(cluster, known, no_answer, say, timeout, typed)
    return driver.connect(found, credentials, timeout=timeout, say=say)
