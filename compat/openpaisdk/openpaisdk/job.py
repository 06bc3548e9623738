"""Jobs, with the answers that old programs expect."""

from pathlib import Path

import openpai_tasks
from openpai_tasks.errors import TimedOut
from openpai_tasks.sdk.notebooks.serving import read_server_mark
from openpai_tasks.storage.job_files.sources import RUNTIME_PACKAGES

RUNTIME_PACKAGES.append(Path(__file__).parent)  # old notebooks import it in their jobs, too


class Job(openpai_tasks.Job):
    """A job, with the answers of the old methods."""

    def submit(self, cluster_alias=None, virtual_cluster=None):
        """Submit the job; return the address of its page and its name."""
        super().submit(cluster_alias, virtual_cluster)
        return {"job_link": self.url, "job_name": self.name}

    def wait(self, t_sleep=10, timeout=3600, silent=False):
        """Wait until a Jupyter server answers, or until any other job ends."""
        if read_server_mark(self.document()):
            return super().connect_jupyter(timeout)
        return super().wait(timeout)

    def connect_jupyter(self, timeout=1.0):
        """Look once: return the state, and the address of Jupyter if it answers."""
        try:
            return super().connect_jupyter(timeout)
        except TimedOut:
            return {"state": self.state, "notebook": None}
