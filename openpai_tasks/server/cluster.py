"""The embedded cluster put together from its parts, and taken apart again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.accounts import users as accounts
from openpai_tasks.server.accounts.groups import DEFAULT_GROUP, Groups
from openpai_tasks.server.accounts.owner import Owner
from openpai_tasks.server.accounts.tokens import Tokens
from openpai_tasks.server.accounts.users import Accounts
from openpai_tasks.server.api import bodies, originals
from openpai_tasks.server.api.context import Context, Storage
from openpai_tasks.server.api.limits import rates as limits
from openpai_tasks.server.api.limits.guesses import Guesses
from openpai_tasks.server.api.limits.rates import Rate
from openpai_tasks.server.api.originals import Originals
from openpai_tasks.server.api.shapes.profiles import PROFILES, UNION
from openpai_tasks.server.engines import Engine
from openpai_tasks.server.engines.containers import DockerEngine, PodmanEngine
from openpai_tasks.server.engines.machine import Machine, Resources
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.scheduling.scheduler import Scheduler
from openpai_tasks.server.ssh import services
from openpai_tasks.server.ssh.keys import listed_keys
from openpai_tasks.server.ssh.logins import Logins
from openpai_tasks.server.state import state
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import State
from openpai_tasks.settings import home

ENGINES: dict[str, Callable[[Path, Machine, Mapping[str, Path]], Engine]] = {
    "process": ProcessEngine,
    "docker": DockerEngine,
    "podman": PodmanEngine,
}


@dataclass(frozen=True)
class Options:
    """How the cluster is to be; a virtual cluster's resources are a part of the machine's."""

    home: Path
    engine: str = "process"
    enforce: bool = False
    virtual_clusters: dict[str, Resources] = field(default_factory=dict)
    profile: str = UNION
    rates: Mapping[str, Rate | None] = field(default_factory=dict)  # other than the profile's own
    ssh: str = services.AUTO  # what serves ssh to the tasks that want it
    body_limit: int = bodies.LIMIT  # bytes that a request may carry


class Cluster:
    """Opened parts that belong together."""

    def __init__(self, options: Options) -> None:
        machine, profile = Machine.detect(), PROFILES[options.profile]
        schema = state.SCHEMA + accounts.SCHEMA + originals.SCHEMA
        self._database = Database(options.home / "cluster.db", schema)
        jobs = home.make_private(options.home / "jobs")
        self._state = State(self._database, jobs, profile.joint)
        storages = {"home": Storage("home", home.make_private(options.home / "storage" / "home"))}
        shares = virtual_clusters(machine.resources, options.virtual_clusters)
        tasks = engine(options.engine, jobs, machine, storages)
        users = Accounts(self._database, Groups(self._database, tuple(shares), tuple(storages)))
        served = services.IMAGE if tasks.uses_images and options.ssh != services.OFF else options.ssh
        logins = Logins(jobs, served, profile.is_yarn, lambda name: _ssh_keys(users, name))
        self._scheduler = Scheduler(self._state, tasks, machine, shares, options.enforce, logins)
        self.context = Context(
            profile=profile,
            rates=limits.merged(profile.rates, options.rates),
            accounts=users,
            tokens=Tokens(self._database, users),
            owner=Owner(options.home, users),
            state=self._state,
            engine=tasks,
            machine=machine,
            virtual_clusters=shares,
            storages=storages,
            originals=Originals(self._database),
            guesses=Guesses(),
            body_limit=options.body_limit,
        )

    def start(self) -> None:
        self._scheduler.start()

    def close(self) -> None:
        """End what runs inside this process; tasks go on outside of it."""
        self._scheduler.close()
        self._database.close()


def _ssh_keys(users: Accounts, name: str) -> tuple[str, ...]:
    """The public keys that a user has put into the profile."""
    user = users.user(name)
    return tuple(listed_keys(user.extension.get("sshKeys"))) if user else ()


def engine(name: str, jobs: Path, machine: Machine, storages: dict[str, Storage]) -> Engine:
    if name not in ENGINES:
        raise ConfigError(f"no engine named {name!r} (known: {', '.join(ENGINES)})")
    return ENGINES[name](jobs, machine, {one.name: one.path for one in storages.values()})


def virtual_clusters(machine: Resources, named: dict[str, Resources]) -> dict[str, Resources]:
    """Those that were named, and ``default`` with what they leave of the machine."""
    rest = machine - sum(named.values(), Resources())
    left = Resources(max(rest.cpu, 0), max(rest.memory_mb, 0), max(rest.gpu, 0))
    return {DEFAULT_GROUP: left, **named}


def parse_virtual_cluster(text: str) -> tuple[str, Resources]:
    """``NAME=CPU,MEMORYMB,GPU`` as a name and resources."""
    match = re.fullmatch(r"(\w{1,100})=(\d{1,9}),(\d{1,9}),(\d{1,9})", text, re.ASCII)
    if not match:
        raise ConfigError(f"a virtual cluster is NAME=CPU,MEMORYMB,GPU, got {text!r}")
    name, *amounts = match.groups()
    return name, Resources(*map(int, amounts))
