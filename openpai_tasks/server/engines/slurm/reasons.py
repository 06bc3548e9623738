"""Slurm's reasons and states in plain words."""

from __future__ import annotations

import re

from openpai_tasks.server.engines.slurm.programs import QueueRow

REASONS = {
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs with a higher priority are ahead of it",
    "Resources": "it is next, and waits until enough CPUs, memory or GPUs are free",
    "Dependency": "it waits for the end of another job",
    "DependencyNeverSatisfied": "the job that it depends on failed, so it will never start",
    "BeginTime": "it may not start before a certain time",
    "JobHeldUser": "it is held: `scontrol release {id}` lets it start",
    "JobHeldAdmin": "an administrator holds it",
    "Reservation": "it waits for its reservation",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition accepts jobs but does not start any now",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionConfig": "its partition has no nodes that can meet its request",
    "PartitionNodeLimit": "it asks for more nodes than its partition has",
    "ReqNodeNotAvail": "the nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node can ever meet its requirements",
    "JobArrayTaskLimit": "as many elements of its array run as may run at once",
    "BurstBufferResources": "it waits for space in the burst buffer",
    "Licenses": "it waits for a licence",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "launch failed requeued held": "its node could not start it: `scontrol release {id}` lets it try again",
    "Cleaning": "it was requeued, and its earlier run is being cleaned up",
}
"""What a reason of ``squeue`` means."""

_WHOSE = (("QOS", "the quality of service"), ("Assoc", "your account"))
_WHAT = {
    "GRES": "GPUs",
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "Jobs": "running jobs",
    "SubmitJobs": "submitted jobs",
    "Wall": "run time",
    "WallDuration": "run time",
}
STATES = {
    "TIMEOUT": "was stopped by Slurm: it reached its time limit",
    "OUT_OF_MEMORY": "was killed by Slurm: it used more memory than it asked for",
    "NODE_FAIL": "was lost: its node failed",
    "BOOT_FAIL": "was lost: its node did not boot",
    "PREEMPTED": "was stopped by Slurm: a job with a higher priority took its place",
    "CANCELLED": "was cancelled in Slurm",
    "DEADLINE": "was stopped by Slurm: its deadline passed",
    "FAILED": "ended without a result: its script failed on the node",
    "REVOKED": "was revoked by Slurm",
    "LAUNCH_FAILED": "could not be launched by Slurm",
    "RECONFIG_FAIL": "was lost: its node could not be configured",
}
"""How a job ended that has left no exit code."""
REQUEUED = "was put back into the queue by Slurm after it had begun: its node failed, or it was preempted"


def why_waiting(row: QueueRow) -> str:
    """Return why a job waits, with the reason as Slurm writes it, and when it is expected to start."""
    reason = row.reason.strip("()").partition(",")[0].strip()[:200]
    words = REASONS.get(reason, "").format(id=row.id) or _limit(reason)
    text = f"{words} ({reason})" if words else reason or "it waits in Slurm"
    expected = re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{5,8}", row.start, re.ASCII)
    return f"{text}; expected to start at {row.start}" if expected else text


def _limit(reason: str) -> str:
    """Explain reasons like ``QOSMaxGRESPerUser`` and ``AssocGrpCpuLimit``."""
    owner = next((words for prefix, words in _WHOSE if reason.startswith(prefix)), "")
    what = max((key for key in _WHAT if key in reason), key=len, default="")
    if not owner:
        return ""
    resource = f" of {_WHAT[what]}" if what else ""
    return f"it would exceed the limit{resource} that {owner} allows"
