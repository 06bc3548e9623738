"""Run deep-learning jobs on OpenPAI clusters from your own project folder."""

from typing import Any

import lazy_loader

__version__ = "0.2.0"

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "api.cluster": ["Cluster", "OpenPAIClient"],
        "api.cluster_list": ["ClusterList"],
        "api.futures.executor": ["PaiExecutor"],
        "api.futures.remote": ["remote"],
        "api.job": ["Job"],
        "api.submit": ["submit"],
        "backends.openpai": ["Client"],
        "errors": ["PaiError"],
        "magics": ["submit_this_notebook"],
        "protocol": ["JobRequest", "validate"],
        "sdk.files.dataset": ["PackedDataset"],
        "tasks": ["namespace"],
    },
)


def load_ipython_extension(shell: Any) -> None:
    """Load the magics, for ``%load_ext openpai_tasks``."""
    from openpai_tasks.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the magics, for ``%unload_ext openpai_tasks``."""
    from openpai_tasks.magics import unload

    unload(shell)
