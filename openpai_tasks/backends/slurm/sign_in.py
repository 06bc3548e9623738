"""Sign in to our server on a login node: its own account there gives us the login."""

from __future__ import annotations

import dataclasses

from openpai_tasks.backends.base import Say
from openpai_tasks.backends.openpai import discovery
from openpai_tasks.backends.openpai.sign_in import complete
from openpai_tasks.backends.slurm.client import SlurmClient
from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.protocol import routes
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.tunnel.tunnel import Tunnel


def sign_in(
    cluster: Cluster, known: Credentials, say: Say, timeout: float, typed: bool
) -> tuple[Cluster, Credentials]:
    """Return the updated cluster and credentials that work: the known ones, or those from over there.

    Credentials that were ``typed`` are never replaced by others: they may be of another user.
    """
    if typed or (known and cluster.user):
        try:
            return _complete(cluster, known, say, timeout)
        except Denied:
            if typed:
                raise
    tunnel = Tunnel(cluster)
    was_open = tunnel.ssh.is_open()
    try:
        found = tunnel.log_in()
        cluster = dataclasses.replace(cluster, user=found.user)
        return _complete(cluster, Credentials(found.password, found.token), say, timeout)
    except BaseException:
        if not was_open:  # nothing is left in the background by a command that failed
            tunnel.remove()
        raise


def learn(cluster: Cluster, seconds: float) -> Cluster:
    """Complete the record of a cluster with the description by its server."""
    client = SlurmClient(cluster, Credentials(), timeout=seconds)
    server = discovery.recognise(client, client.probe(routes.INFO))
    if server is None:
        raise ApiError(f"{cluster.uri} answers, but not as the embedded cluster does")
    return dataclasses.replace(cluster, prefix=server.prefix, generation=server.generation, info=server.info)


def _complete(cluster: Cluster, known: Credentials, say: Say, timeout: float) -> tuple[Cluster, Credentials]:
    return complete(SlurmClient(learn(cluster, timeout), known, timeout=timeout, say=say), known)
