"""A pytest plugin with the fixture ``pai_cluster``: an embedded cluster for the tests of a project.

pytest loads it in every run of an environment with this package, so it imports nothing before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from openpai_tasks.api.cluster import Cluster

PREFIXES = ("OPENPAI_", "INVOKE_OPENPAI_")


@pytest.fixture(scope="session")
def _pai_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home folder of an embedded cluster, which runs as long as the tests."""
    from openpai_tasks.sdk.clusters import embedded
    from openpai_tasks.sdk.clusters.start_options import LocalOptions, StartRequest

    home = tmp_path_factory.mktemp("openpai")
    with pytest.MonkeyPatch.context() as patch:
        _use_home(patch, home)
        embedded.start_embedded(StartRequest(LocalOptions()), say=lambda line: None)
    yield home
    with pytest.MonkeyPatch.context() as patch:
        _use_home(patch, home)
        embedded.stop_embedded(keep_jobs=False, say=lambda line: None)


@pytest.fixture
def pai_cluster(_pai_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An embedded cluster, selected for the test; jobs that are unfinished after the test are stopped.

    It runs once for all tests, in a temporary folder: the user's clusters, jobs and settings are not used.
    """
    from openpai_tasks.api.cluster import Cluster
    from openpai_tasks.protocol.states import UNFINISHED

    _use_home(monkeypatch, _pai_home)
    cluster = Cluster("local")
    yield cluster
    for job in cluster.jobs(state=UNFINISHED):
        cluster.job(job.name).stop()


def _use_home(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Let commands and the API use this home folder and its cluster, whatever else is configured."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        patch.delenv(name)
    patch.setenv("OPENPAI_HOME", str(home))
    patch.setenv("INVOKE_OPENPAI_CLUSTER_ALIAS", "local")
