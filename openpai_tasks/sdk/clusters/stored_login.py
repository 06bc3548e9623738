"""The login to a known cluster, as far as it may be stored for the next command."""

from __future__ import annotations

import dataclasses
from typing import Any

from openpai_tasks.backends import kinds
from openpai_tasks.sdk.clusters.user_clusters import UserClusters
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster


def is_stored(cluster: Cluster, kept: Credentials) -> bool:
    """Whether new tokens may be stored: never for a login that only a project's file contains."""
    return cluster.is_own or kept == credentials.load(cluster.destination)


class StoredLogin:
    """Stores new tokens, and what a cluster first reports about itself, for the next command."""

    def __init__(self, book: UserClusters, cluster: Cluster, kept: Credentials, seconds: float) -> None:
        self._book, self._cluster, self._kept, self._seconds = book, cluster, kept, seconds
        self._is_stored = bool(kept) and is_stored(cluster, kept)

    def read_token(self) -> str:
        """Return the token that is stored now, maybe by another command."""
        return credentials.load(self._cluster.destination).token if self._is_stored else ""

    def keep_token(self, token: str) -> None:
        if self._is_stored:
            self._save(self._cluster, dataclasses.replace(self._kept, token=token))

    def learn(self, cluster: Cluster) -> Cluster:
        """Complete the record of a cluster that was added without a check; its login moves along."""
        found = kinds.driver(cluster.kind).learn(cluster, self._seconds)
        learned: dict[str, Any] = {"prefix": found.prefix, "generation": found.generation, "info": found.info}
        self._book.change(cluster.alias, lambda now: dataclasses.replace(now, **learned))
        if self._is_stored and found.destination != cluster.destination:
            self._save(found, self._kept)
        self._cluster = found
        return found

    def _save(self, cluster: Cluster, known: Credentials) -> None:
        credentials.save(cluster.destination, self._book.storable(cluster, known))
