from __future__ import annotations

import os

import pytest

from tests.storage import hdfs_jars, hdfs_server, samba_server, sharing
from tests.storage.stores import STORES, local


@pytest.fixture(params=STORES.values(), ids=STORES)
def there(request, tmp_path_factory):
    """An empty folder in each kind of store."""
    with request.param(tmp_path_factory.mktemp("there")) as location:
        yield location


@pytest.fixture
def here(tmp_path):
    """An empty folder on this machine."""
    (tmp_path / "here").mkdir()
    with local(tmp_path / "here") as location:
        yield location


@pytest.fixture(scope="session", autouse=True)
def _share_servers(tmp_path_factory):
    """Share HDFS and the object storage servers with the other workers of this run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        sharing.use(tmp_path_factory.getbasetemp().parent)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    """Stop the servers here and not in a fixture: other workers may need them longer than a test may take."""
    sharing.stop_all()


@pytest.fixture(scope="session", autouse=True)
def _stop_shared_samba():
    yield
    samba_server.stop_shared()


@pytest.fixture
def samba():
    """A real Samba, the same for all tests."""
    if reason := samba_server.missing():
        pytest.skip(f"no Samba: {reason}")
    return samba_server.shared()


@pytest.fixture
def hdfs():
    """A real HDFS, the same for all tests."""
    if reason := hdfs_jars.missing():
        pytest.skip(f"no HDFS: {reason}")
    return hdfs_server.shared()
