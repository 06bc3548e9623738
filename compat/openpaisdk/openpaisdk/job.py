"""Jobs, with the answers that old programs expect."""

import logging
from pathlib import Path

import openpai_tasks
from openpai_tasks import sdk
from openpai_tasks.errors import JobFailed, PaiError, TimedOut
from openpai_tasks.sdk.notebooks.running import read_run_mark
from openpai_tasks.sdk.notebooks.serving import read_server_mark
from openpai_tasks.storage.job_files.sources import RUNTIME_PACKAGES

RUNTIME_PACKAGES.append(Path(__file__).parent)  # old notebooks import it in their jobs, too
LOG = logging.getLogger("openpaisdk")


class Job(openpai_tasks.Job):
    """A job, with the answers of the old methods."""

    def submit(self, cluster_alias=None, virtual_cluster=None):
        """Submit the job; return the address of its page and its name."""
        super().submit(cluster_alias, virtual_cluster)
        return {"job_link": self.url, "job_name": self.name}

    def get_status(self):
        """Return the status, in the form of OpenPAI's REST API."""
        return JobStatus(self, self.status)

    def wait(self, t_sleep=10, timeout=3600, silent=False):
        """Wait until a Jupyter server answers, until a notebook's page is here, or until the job ends."""
        document = self.document()
        if read_server_mark(document):
            return self.connect_jupyter(timeout)
        ended = super().wait(timeout)
        return self.connect_jupyter() if read_run_mark(document) else JobStatus(self, ended)

    def connect_jupyter(self, timeout=1.0):
        """Look once: return the state, and the address of Jupyter or of the executed notebook's page."""
        state, is_run = self.state, read_run_mark(self.document()) is not None
        if is_run and state == "SUCCEEDED":
            return {"state": state, "notebook": sdk.notebooks.best_page(self.fetch()) or None}
        if is_run or state not in ("WAITING", "RUNNING"):
            return {"state": state, "notebook": None}
        try:
            return super().connect_jupyter(timeout)
        except (JobFailed, TimedOut):
            return {"state": self.state, "notebook": None}


class JobStatus(dict):
    """The status of a job, in the form of OpenPAI's REST API."""

    def __init__(self, job, info):
        roles = {}
        for task in info.tasks:
            role = roles.setdefault(task.role, {"taskRoleStatus": {"name": task.role}, "taskStatuses": []})
            role["taskStatuses"].append(
                {
                    "taskIndex": task.index,
                    "taskState": task.state,
                    "containerId": task.container,
                    "containerIp": task.ip,
                    "containerPorts": task.ports,
                    "containerLog": task.log,
                    "containerExitCode": task.exit_code,
                }
            )
        status = {
            "name": info.name,
            "username": info.user,
            "state": info.state,
            "virtualCluster": info.virtual_cluster,
            "retries": info.retries,
            "createdTime": info.submitted,
            "completedTime": info.completed,
            "appExitCode": info.platform_exit_code,
            "appExitDiagnostics": info.message,
        }
        super().__init__(name=info.name, jobStatus=status, taskRoles=roles)
        self.job = job


class JobStatusParser:
    """Read a status that ``Job.get_status`` or ``Cluster.rest_api_job_info`` returned."""

    @staticmethod
    def state(status):
        """Return the state of the job; None if the status has none."""
        return status.get("jobStatus", {}).get("state")

    @staticmethod
    def single_task_logs(status, task_role="main", index=0, log_type=None, return_urls=False):
        """Return the output of a task by stream, or the addresses of its logs; None if it has none."""
        tasks = status.get("taskRoles", {}).get(task_role, {}).get("taskStatuses", [])
        task = next((one for one in tasks if one["taskIndex"] == index), None)
        if task is None:
            return None
        streams = [name for name in ("stdout", "stderr") if name in (log_type or ("stdout", "stderr"))]
        if return_urls:
            return dict.fromkeys(streams, task["containerLog"])
        job = getattr(status, "job", None) or Job(status["name"])
        try:
            return {
                name: "\n".join(job.logs(role=task_role, index=index, **{name: True})) for name in streams
            }
        except PaiError as err:
            LOG.warning("%s", err)
            return None

    @staticmethod
    def all_tasks_logs(status):
        """Return the output of all tasks, by stream and task: ``{"stdout": {"main[0]": ...}, ...}``."""
        logs = {"stdout": {}, "stderr": {}}
        for role, found in status.get("taskRoles", {}).items():
            for task in found["taskStatuses"]:
                index = task["taskIndex"]
                for stream, text in (JobStatusParser.single_task_logs(status, role, index) or {}).items():
                    logs[stream][f"{role}[{index}]"] = text
        return logs

    @staticmethod
    def interactive_jupyter_url(status, nb_file=None, task_role="main", index=0):
        """Return the state, and the address of the job's Jupyter server if it answers."""
        job = getattr(status, "job", None) or Job(status["name"])
        return job.connect_jupyter()


class JobResource:
    """What a task needs: ``cpu``, ``gpu``, ``memoryMB`` (or ``mem``, such as 8g) and ``ports``."""

    def __init__(self, r=None):
        given = {name: value for name, value in (r or {}).items() if value is not None}
        numbers = {"cpu": 2, "gpu": 0, "memoryMB": 4096}  # as before
        self.req = {name: int(given.get(name, number)) for name, number in numbers.items()}
        self.req["ports"] = dict(given.get("ports", {}))
        if "mem" in given:
            self.req["memoryMB"] = sdk.amounts.read("mem", sdk.amounts.megabytes, given["mem"])

    def add_port(self, name, num=1):
        """Request ports under a label."""
        self.req["ports"][name] = num
        return self

    @property
    def as_dict(self):
        """The request, as ``resources`` of a job."""
        return self.req

    @staticmethod
    def parse_list(lst):
        """Read requests that are written as ``GPUS,CPUS,MEMORY``."""
        parts = [[part.strip() for part in text.split(",")] for text in lst]
        return [JobResource({"gpu": gpu, "cpu": cpu, "mem": mem}).as_dict for gpu, cpu, mem in parts]
