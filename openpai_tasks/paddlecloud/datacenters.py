"""Which datacenter a command uses, and the connection to it."""

from __future__ import annotations

from collections.abc import Iterable

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Say
from openpai_tasks.backends.paddlecloud import config_file
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.backends.paddlecloud.config_file import (
    CURRENT,
    KIND,
    Datacenter,
    PaddleConfig,
    datacenter_of,
    datacenter_record,
)
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.routes import PADDLECLOUD_PREFIX
from openpai_tasks.sdk.clusters import embedded, known
from openpai_tasks.sdk.clusters.start_options import start_request
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, is_embedded

ROOT = "/pfs/"
TOKEN_FILE = "paddlecloud-token"


def connect(settings: Settings, alias: str | None, say: Say, paths: Iterable[str] = ()) -> PaddleBackend:
    """Connect to the named datacenter, else to that of the paths on PFS, else to the current one."""
    name = alias or _of_paths(settings, paths) or choose(settings)
    if is_embedded(name):
        return connect_embedded(settings, say)
    client = known.connect(settings, name, say)
    if not isinstance(client, PaddleBackend):
        raise ConfigError(f"cluster {name!r} is {client.product}, not PaddleCloud: name a datacenter")
    return client


def choose(settings: Settings) -> str:
    """Return the alias of the current datacenter of ~/.paddle/config, or of the selected cluster.

    A selected cluster that is not PaddleCloud does not count: the embedded one is used instead.
    """
    config, clusters = config_file.load(), known.open_registry(settings).clusters()
    if config.datacenters or config.problems:
        current = _current(config)
        return next(one.alias for one in clusters if one.kind == KIND and datacenter_of(one) == current.name)
    selected = [one for one in clusters if one.alias == settings.cluster_alias]
    return next((one.alias for one in selected if one.kind == KIND), LOCAL)


def _of_paths(settings: Settings, paths: Iterable[str]) -> str:
    """Return the alias of the only datacenter that the first path on PFS can mean; "" if there is none."""
    path = next((one for one in paths if one.startswith(ROOT)), "")
    name = path.removeprefix(ROOT).partition("/")[0]
    clusters = [one for one in known.open_registry(settings).clusters() if one.kind == KIND] if name else []
    found = [one.alias for one in clusters if name in (one.alias, datacenter_of(one))]
    return found[0] if len(found) == 1 else LOCAL if is_embedded(name) and not found else ""


def _current(config: PaddleConfig) -> Datacenter:
    """Return the datacenter that the file names, or its only one."""
    named = [one for one in config.datacenters if one.name == config.current or not config.current]
    if len(named) == 1:
        return named[0]
    names = ", ".join(one.name for one in config.datacenters) or "none"
    problem = config.problems[0] if config.problems else f"{config_file.path()} has no {CURRENT}"
    raise ConfigError(f"{problem} (usable datacenters: {names}; -datacenter NAME uses one)")


def connect_embedded(settings: Settings, say: Say) -> PaddleBackend:
    """Connect to the PaddleCloud API of the embedded cluster; start it if it is not running."""
    running = embedded.ensure_running(start_request(settings), say)
    here = Datacenter(LOCAL, running.uri + PADDLECLOUD_PREFIX, running.user)
    cluster = datacenter_record(LOCAL, here)
    tokens = embedded.token_store(TOKEN_FILE)
    login = Credentials(password=embedded.login().password, token=tokens.read())
    client = kinds.driver(KIND).connect(cluster, login, tokens=tokens, timeout=settings.http_timeout, say=say)
    assert isinstance(client, PaddleBackend)
    return client


def config_text(settings: Settings, alias: str | None, say: Say) -> str:
    """Return a ``~/.paddle/config`` for the embedded cluster; passwords of other clusters are not shown."""
    if not is_embedded(alias or settings.cluster_alias):
        raise ConfigError(f"only the cluster {LOCAL!r} can be shown as {KIND}")
    cluster = embedded.ensure_running(start_request(settings), say)
    endpoint = cluster.uri + PADDLECLOUD_PREFIX
    return config_file.write([Datacenter(LOCAL, endpoint, cluster.user, embedded.login().password)], LOCAL)
