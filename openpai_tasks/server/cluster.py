"""Build the embedded cluster from its parts, and close it."""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback.guesses import Guesses
from openpai_tasks.protocol import states
from openpai_tasks.server.accounts import users as accounts
from openpai_tasks.server.accounts.groups import DEFAULT_GROUP, Groups
from openpai_tasks.server.accounts.owner import Owner
from openpai_tasks.server.accounts.tokens import Tokens
from openpai_tasks.server.accounts.users import Accounts
from openpai_tasks.server.api import bodies
from openpai_tasks.server.api import rates as limits
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.profiles import PROFILES, UNION
from openpai_tasks.server.api.rates import Rate
from openpai_tasks.server.deliveries import Deliveries, job_link
from openpai_tasks.server.engines.base import Engine, TaskExit
from openpai_tasks.server.paddlecloud import records
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.retention import Housekeeper
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.scheduling.scheduler import Scheduler
from openpai_tasks.server.ssh import services
from openpai_tasks.server.ssh.logins import SshLogins
from openpai_tasks.server.ssh.plugin import listed_keys
from openpai_tasks.server.state import state
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.server.state.schema import add_columns
from openpai_tasks.server.state.state import STOP, State
from openpai_tasks.server.state.usage_history import SCHEMA as HISTORY
from openpai_tasks.server.state.usage_history import UsageHistory
from openpai_tasks.server.storages import Storage
from openpai_tasks.settings import home
from openpai_tasks.settings.engines import DEFAULT, REFUSE_GPUS, REFUSE_LARGER, UNUSABLE, find_engine
from openpai_tasks.settings.keeping import EVERYTHING, parse_keep
from openpai_tasks.text.plurals import counted

_UNFINISHED = "SELECT key, attempt FROM jobs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED')"


@dataclass(frozen=True)
class ClusterOptions:
    """The settings of a cluster; the resources of a virtual cluster are a part of the whole."""

    home: Path
    engine: str = DEFAULT
    enforce: str = REFUSE_GPUS
    virtual_clusters: dict[str, ResourceAmount] = field(default_factory=dict)
    profile: str = UNION
    rates: Mapping[str, Rate | None] = field(default_factory=dict)  # those that differ from the profile's
    ssh: str = services.AUTO  # the SSH service of tasks
    body_limit: int = bodies.LIMIT  # bytes in a request
    keep: str = EVERYTHING  # limits of finished jobs
    engine_options: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)  # shared ones, which are storages too
    give_up_jobs: bool = False  # unfinished ones of another engine


class LivePartitions(Mapping[str, ResourceAmount]):
    """The virtual clusters of an engine that has its own, as they are now."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getitem__(self, name: str) -> ResourceAmount:
        return self._engine.capacity().partitions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.capacity().partitions)

    def __len__(self) -> int:
        return len(self._engine.capacity().partitions)


class EmbeddedCluster:
    """The parts of a running cluster."""

    def __init__(self, options: ClusterOptions) -> None:
        profile = PROFILES[options.profile]
        schema = state.SCHEMA + accounts.SCHEMA + records.SCHEMA + HISTORY
        self._database = Database(options.home / "cluster.db", schema)
        add_columns(self._database, records.ADDED)
        jobs = home.make_private(options.home / "jobs")
        self._state = State(self._database, jobs, profile.joint)
        take_over(self._state, options.engine, options.give_up_jobs)
        storages = {"home": Storage("home", home.make_private(options.home / "storage" / "home"))}
        storages |= {name: Storage(name, path, share=True) for name, path in options.folders.items()}
        engine = open_engine(options.engine, jobs, options.engine_options)
        capacity = engine.capacity()
        shares: Mapping[str, ResourceAmount] = virtual_clusters(capacity.total, options.virtual_clusters)
        if capacity.partitions:
            shares = LivePartitions(engine)
        users = Accounts(self._database, Groups(self._database, shares, tuple(storages)))
        served = options.ssh
        if served != services.OFF and (engine.serves_ssh_in_image or engine.ssh_host):
            served = services.ASYNCSSH if engine.ssh_host else services.IMAGE
        logins = SshLogins(jobs, served, profile.is_yarn, lambda name: _ssh_keys(users, name))
        self._scheduler = Scheduler(
            self._state, engine, shares, options.enforce == REFUSE_LARGER, logins, storages
        )
        removal = JobRemoval(self._state)
        self._housekeeper = Housekeeper(removal, parse_keep(options.keep, "--keep"), options.home)
        self._history = UsageHistory(self._database)
        self._deliveries = Deliveries(self._state, lambda facts: job_link(options.home, facts))
        self.context = Context(
            profile=profile,
            rates=limits.merge_rates(profile.rates, options.rates),
            accounts=users,
            tokens=Tokens(self._database, users),
            owner=Owner(options.home, users),
            state=self._state,
            engine=engine,
            virtual_clusters=shares,
            storages=storages,
            guesses=Guesses(),
            body_limit=options.body_limit,
            enforce=options.enforce,
            removal=removal,
            history=self._history,
            describe=lambda: _describe(profile.name),
        )

    def start(self) -> None:
        self._scheduler.start()
        self._housekeeper.start()
        self._history.start()
        self._deliveries.start()

    def close(self) -> None:
        """Close everything in this process; tasks continue."""
        self._deliveries.close()
        self._history.close()
        self._housekeeper.close()
        self._scheduler.close()
        self._database.close()


def take_over(state: State, engine: str, give_up: bool) -> None:
    """Record the engine of all jobs from now on; raise if another one has unfinished jobs.

    It would not find their tasks. With ``give_up``, unfinished jobs are recorded as stopped instead.
    """
    database = state.database
    row = database.row("SELECT name FROM engine")
    before = row["name"] if row else engine
    if before != engine or give_up:
        unfinished = database.rows(_UNFINISHED)
        if unfinished and not give_up:
            raise ConfigError(
                f"the engine {before} has {counted(len(unfinished), 'unfinished job')} here: "
                f"`pai cluster.start --engine {before}` continues, `pai cluster.stop` stops the jobs"
            )
        for job in unfinished:
            _give_up(state, job["key"], job["attempt"], before)
    if row is None or before != engine:
        with database.transaction():
            database.write("DELETE FROM engine")
            database.write("INSERT INTO engine VALUES (?)", [engine])


def _give_up(state: State, key: str, attempt: int, engine: str) -> None:
    """Record a job as stopped; its tasks may still run wherever the engine has started them."""
    reason = f"was given up, as the engine {engine} could not be used"
    progress = Progress(state)
    with state.database.transaction():
        state.add_event(key, "Warning", "GivenUp", f"the job {reason}")
        state.set_execution(key, STOP)
        progress.settle(key)
        for task in state.tasks(key, attempt):
            if task.state not in states.FINAL:
                progress.finish(task, TaskExit(None, reason, stopped=True))


def _ssh_keys(users: Accounts, name: str) -> tuple[str, ...]:
    """Return the public keys in a user's profile."""
    user = users.user(name)
    return tuple(listed_keys(user.extension.get("sshKeys"))) if user else ()


class UnusableEngine(ConfigError):
    exit_code = UNUSABLE

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the engine {name} cannot be used: {problem}")


def open_engine(name: str, jobs: Path, options: Mapping[str, str]) -> Engine:
    """Return the engine with this name, for the jobs in a folder."""
    kind = find_engine(name)
    known = kind.read_options(options)
    if kind.program and shutil.which(kind.program) is None:
        raise UnusableEngine(name, f"there is no {kind.program} on this machine")
    module, _, factory = kind.factory.partition(":")
    try:
        engine: Engine = getattr(importlib.import_module(module), factory)(jobs, options=known)
    except PaiError as err:
        raise UnusableEngine(name, str(err)) from err
    return engine


def virtual_clusters(whole: ResourceAmount, named: dict[str, ResourceAmount]) -> dict[str, ResourceAmount]:
    """Return the named virtual clusters, and ``default`` with the remaining resources."""
    rest = whole - sum(named.values(), ResourceAmount())
    left = ResourceAmount(max(rest.cpu, 0), max(rest.memory_mb, 0), max(rest.gpu, 0))
    return {DEFAULT_GROUP: left, **named}


def parse_folder(text: str) -> tuple[str, Path]:
    """Parse ``NAME=FOLDER`` into the name and the folder of a storage."""
    match = re.fullmatch(r"(\w[\w.-]{0,99})=([~/].*)", text, re.ASCII)
    if not match:
        raise ConfigError(f"invalid storage {text!r}: expected NAME=FOLDER, with an absolute folder")
    folder = Path(match[2]).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"the storage {match[1]} cannot be used: {folder} is not a folder")
    return match[1], folder


def parse_virtual_cluster(text: str) -> tuple[str, ResourceAmount]:
    """Parse ``NAME=CPU,MEMORYMB,GPU`` into a name and resources."""
    match = re.fullmatch(r"(\w{1,100})=(\d{1,9}),(\d{1,9}),(\d{1,9})", text, re.ASCII)
    if not match:
        raise ConfigError(f"invalid virtual cluster {text!r}: expected NAME=CPU,MEMORYMB,GPU")
    name, *amounts = match.groups()
    return name, ResourceAmount(*map(int, amounts))


def _describe(profile: str) -> dict[str, Any]:
    """Return the OpenAPI description, which is loaded only when it is asked for."""
    from openpai_tasks.server.api.openapi.build import describe

    return describe(profile)
