"""Which datacenter a command uses, and the connection to it."""

from __future__ import annotations

from functools import partial

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Say, TokenStore
from openpai_tasks.backends.paddlecloud.client import DATACENTER, PaddleClient
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.clusters import embedded, embedded_token, known
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, Cluster

KIND = "paddlecloud"
PREFIX = "/paddlecloud"  # of the PaddleCloud API of the embedded cluster
TOKEN_FILE = "paddlecloud-token"


def connect(settings: Settings, alias: str | None, say: Say) -> PaddleClient:
    """Connect to a datacenter; to the current one if none is named, else to the embedded cluster."""
    name = alias or choose(settings)
    if name == LOCAL:
        return connect_embedded(settings, say)
    client = known.connect(settings, name, say)
    if not isinstance(client, PaddleClient):
        raise ConfigError(f"cluster {name!r} is {client.product}, not PaddleCloud: name a datacenter")
    return client


def choose(settings: Settings) -> str:
    """Return the current datacenter of ~/.paddle/config, else the selected cluster if it is PaddleCloud."""
    current = ""
    if current:
        return current
    selected = settings.cluster_alias
    clusters = {cluster.alias: cluster for cluster in known.open_registry(settings).clusters()}
    return selected if selected in clusters and clusters[selected].kind == KIND else LOCAL


def connect_embedded(settings: Settings, say: Say) -> PaddleClient:
    """Connect to the PaddleCloud API of the embedded cluster; start it if it is not running."""
    running, folder = embedded.ensure(known.local_options(settings), say), embedded.folder()
    cluster = Cluster(LOCAL, running.uri + PREFIX, running.user, KIND, info={DATACENTER: LOCAL}, prefix="")
    tokens = TokenStore(
        read=partial(embedded_token.read, folder, TOKEN_FILE),
        save=partial(embedded_token.keep, folder, file=TOKEN_FILE),
    )
    login = Credentials(password=embedded.login().password, token=tokens.read())
    client = kinds.driver(KIND).connect(cluster, login, tokens=tokens, timeout=settings.http_timeout, say=say)
    assert isinstance(client, PaddleClient)
    return client
