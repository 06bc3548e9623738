"""Run deep-learning jobs on OpenPAI clusters from your own project folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openpai_tasks.api.cluster import Cluster as Cluster
    from openpai_tasks.api.cluster import OpenPAIClient as OpenPAIClient
    from openpai_tasks.api.cluster_list import ClusterList as ClusterList
    from openpai_tasks.api.futures.executor import PaiExecutor as PaiExecutor
    from openpai_tasks.api.futures.remote import remote as remote
    from openpai_tasks.api.job import Job as Job
    from openpai_tasks.api.submit import submit as submit
    from openpai_tasks.backends.openpai import Client as Client
    from openpai_tasks.errors import PaiError as PaiError
    from openpai_tasks.magics import submit_this_notebook as submit_this_notebook
    from openpai_tasks.protocol import JobRequest as JobRequest
    from openpai_tasks.protocol import validate as validate
    from openpai_tasks.sdk.files.dataset import PackedDataset as PackedDataset
    from openpai_tasks.tasks import namespace as namespace

__version__ = "0.2.0"

__all__ = [  # for ``import *``
    "Client",
    "Cluster",
    "ClusterList",
    "Job",
    "JobRequest",
    "OpenPAIClient",
    "PackedDataset",
    "PaiError",
    "PaiExecutor",
    "namespace",
    "remote",
    "submit",
    "submit_this_notebook",
    "validate",
]

_MODULES = {
    "Client": "openpai_tasks.backends.openpai",
    "Cluster": "openpai_tasks.api.cluster",
    "ClusterList": "openpai_tasks.api.cluster_list",
    "Job": "openpai_tasks.api.job",
    "JobRequest": "openpai_tasks.protocol",
    "OpenPAIClient": "openpai_tasks.api.cluster",
    "PackedDataset": "openpai_tasks.sdk.files.dataset",
    "PaiError": "openpai_tasks.errors",
    "PaiExecutor": "openpai_tasks.api.futures.executor",
    "namespace": "openpai_tasks.tasks",
    "submit": "openpai_tasks.api.submit",
    "remote": "openpai_tasks.api.futures.remote",
    "submit_this_notebook": "openpai_tasks.magics",
    "validate": "openpai_tasks.protocol",
}


if not TYPE_CHECKING:  # which would accept any name otherwise

    def __getattr__(name: str) -> Any:
        """Load a public name with its module on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])


def load_ipython_extension(shell: Any) -> None:
    """Load the magics, for ``%load_ext openpai_tasks``."""
    from openpai_tasks.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the magics, for ``%unload_ext openpai_tasks``."""
    from openpai_tasks.magics import unload

    unload(shell)
