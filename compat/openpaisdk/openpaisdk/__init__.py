"""The names of OpenPAI's old Python SDK, over openpai-tasks.

Everything is loaded on first use. The package travels with notebooks that it submits, and inside a job only
``in_job_container`` can be used.
"""

import importlib

__version__ = "0.4.00"  # of the SDK whose names these are
__install__ = __container_sdk_branch__ = ""  # what to install in jobs: nothing

_NAMES = {
    "Cluster": "cluster",
    "ClusterList": "cluster",
    "Job": "job",
    "JobStatusParser": "job",
    "get_defaults": "defaults",
    "get_install_uri": "defaults",
    "update_default": "defaults",
    "in_job_container": "core",
    "to_screen": "io_utils",
}


def __getattr__(name):
    if name == "__cluster_config_file__":
        from openpai_tasks.api.connection import settings_here
        from openpai_tasks.settings.registry import registry_path

        return str(registry_path(settings_here().clusters_in_local))
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
