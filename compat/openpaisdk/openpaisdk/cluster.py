"""Clusters, with the answers that old programs expect."""

import logging

import openpai_tasks

LOG = logging.getLogger("openpaisdk")


class Cluster(openpai_tasks.Cluster):
    """A cluster; ``available_resources`` returns what is free, by virtual cluster."""

    def available_resources(self):
        return {row.virtual_cluster: _free(row) for row in super().available_resources()}

    virtual_cluster_available_resources = available_resources

    def job(self, name):
        """Return a handle of a job, by its name."""
        from openpaisdk.job import Job

        return Job(super().job(name).name, self)

    def jobs(self, job_name=None, name_only=False, **filters):
        """List jobs, or only their names."""
        found = super().jobs(job_name, **filters)
        return [job.name for job in found] if name_only else found

    def get_job_link(self, job_name):
        """Return the address of a job's page."""
        return self.job(job_name).url

    def wait(self, jobs, t_sleep=10, timeout=3600):
        """Wait until all jobs have ended, and return their states."""
        from openpai_tasks import sdk

        return [sdk.jobs.wait(self.backend, name, timeout).state for name in jobs]

    def rest_api_job_list(self, user=None):
        """List the jobs of a user; by default, of all users."""
        found = self.jobs(user=user or "all")
        return [{"name": job.name, "username": job.user, "state": job.state} for job in found]

    def rest_api_job_info(self, job_name=None, info=None, user=None):
        """Return the status of a job, or its document (``config``); without a name, list jobs."""
        if job_name is None:
            return self.rest_api_job_list(user)
        job = self.job(f"{user}~{job_name}" if user and user != self.user else job_name)
        return job.document() if info == "config" else job.get_status()

    def rest_api_execute_job(self, job_name, e_type="STOP"):
        """Stop a job."""
        if e_type != "STOP":
            raise ValueError(f"a job cannot be told to {e_type!r}; job.resubmit() runs it again")
        return self.stop(job_name)


class ClusterList(openpai_tasks.ClusterList):
    """Clusters; ``available_resources`` returns what is free, by cluster and virtual cluster."""

    client_class = Cluster

    def available_resources(self):
        found = {}
        for row in super().available_resources():
            if row.problem:
                LOG.warning("%s: %s", row.cluster, row.problem)
            else:
                found.setdefault(row.cluster, {})[row.virtual_cluster] = _free(row)
        return found


def get_cluster(alias):
    """Return a client of a known cluster."""
    return ClusterList().get_client(alias)


def _free(row):
    """Return the free resources of a row; -1 for those that the cluster does not report."""
    amounts = {
        "GPUs": (row.gpus_used, row.gpus_usable),
        "vCores": (row.vcores_used, row.vcores_usable),
        "memory": (row.memory_mb_used, row.memory_mb_usable),
    }
    return {
        name: -1 if used is None or usable is None else max(0, int(usable - used))
        for name, (used, usable) in amounts.items()
    }
