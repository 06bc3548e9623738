"""The labels of the portal's fields, which also name them in errors."""

from __future__ import annotations

from openpai_tasks.text.hints import flag

LABELS = {
    "command": "Command",
    "job_name": "Job name",
    "image": "Docker image",
    "gpu": "GPUs per task",
    "cpu": "CPU cores per task",
    "memoryMB": "Memory per task",
    "instances": "Tasks",
    "virtual_cluster": "Virtual cluster",
    "sources": "Sources",
    "env": "Environment",
    "secret": "Secrets",
    "retries": "Retries",
    "max_time": "Time limit of a task",
    "keep_failed": "Keep a failed task for",
    "shm": "Shared memory",
    "tag": "Tags",
    "outputs": "Files to keep",
    "pip_installs": "Python packages",
    "after": "After",
    "after_any": "After",
    "after_failed": "After",
    "priority": "Priority",
    "requeue_on_timeout": "Runs after the time limit",
    "grace": "Time to save before the limit",
    "idle_stop": "Stop when GPUs are idle for",
    "notify": "Notify at the end",
}
"""Labels of the form for a job, by the names of the options."""
ELSEWHERE = {"attempt": "Attempt", "role": "Role", "index": "Index", "state": "State", "level": "Level"}


def label(name: str) -> str:
    """Name an option for users of the portal: “Memory per task”; those without a field by their flag."""
    found = LABELS.get(name) or ELSEWHERE.get(name)
    return f"“{found}”" if found else flag(name)
