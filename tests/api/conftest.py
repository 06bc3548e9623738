"""Calls of the Python API in this process, on the embedded cluster of the module."""

import os

import pytest


@pytest.fixture
def here(cluster, monkeypatch):
    """The project folder, with the user's home of the cluster."""
    for name in [name for name in os.environ if name.startswith(("INVOKE_", "OPENPAI_"))]:
        monkeypatch.delenv(name)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cluster.project)
    return cluster.project
