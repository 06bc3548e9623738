"""Has Fabric read the hosts of jobs, by the ``~/.fabric.py`` that ``container.ssh-config`` makes."""

from __future__ import annotations

from typing import Any

from openpai_tasks.sdk.ssh_config import config_path


def include() -> None:
    """Fabric then reads our file before the user's own, whose ``Include`` its parser passes over."""
    from fabric.config import Config

    read: Any = Config._load_ssh_files
    if getattr(read, "knows_jobs", False):
        return

    def read_both(config: Any) -> None:
        if config._runtime_ssh_path is None and config.load_ssh_configs:
            config._load_ssh_file(str(config_path()))
        read(config)

    read_both.knows_jobs = True  # type: ignore[attr-defined]
    Config._load_ssh_files = read_both
