"""What Kubernetes says about a pod, in few fields and in plain words: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from openpai_tasks.protocol.fields import mapping, rows, text, whole
from openpai_tasks.server.engines import task_state
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.engines.container_supervisor import (
    NO_IMAGE,
    NO_SHELL,
    NODE_LOST,
    NOT_STARTED,
    REMOVED_OUTSIDE,
    USAGE,
)
from openpai_tasks.server.engines.kubernetes.pods import FILES, FOLDER, TASK, UID
from openpai_tasks.server.engines.process import RUNTIME_FAILED

NO_IMAGES = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
NOT_STARTING = ("CreateContainerError", "CreateContainerConfigError", "RunContainerError")
INTERRUPTIONS = (
    "context canceled",
    "context deadline exceeded",
    "transport is closing",
    "connection refused",
)
"""What a kubelet reports that was killed, or whose container runtime was, while it created a container."""
UNKNOWN = "ContainerStatusUnknown"
KILLED = 128 + 9  # exit code of a killed command
DELETED = "its pod was deleted by someone else; only output read before that is kept"
LOST = "its node was lost; it may still run there"
EVICTED = "was evicted from its node"
PREEMPTED = "was preempted by a pod with a higher priority"
REASONS = {
    "Evicted": (NODE_LOST, EVICTED),
    "Preempting": (NODE_LOST, PREEMPTED),
    "NodeLost": (NODE_LOST, LOST),
    "Shutdown": (NODE_LOST, "was ended because its node was shut down"),
    "Terminated": (NODE_LOST, "was ended because its node was shut down"),
    "DeadlineExceeded": (RUNTIME_FAILED, "reached its time limit"),
}
"""Why Kubernetes ended a pod: the platform's exit code, and what to say."""
DISRUPTIONS = {
    "PreemptionByScheduler": (NODE_LOST, PREEMPTED),
    "DeletionByTaintManager": (NODE_LOST, "was ended because its node cannot be used any more"),
    "EvictionByEvictionAPI": (NODE_LOST, EVICTED),
    "DeletionByPodGC": (NODE_LOST, LOST),
    "TerminationByKubelet": (NODE_LOST, "was ended by its node, which is short of resources or shuts down"),
}
"""Why a pod is about to be deleted, as newer versions of Kubernetes report it."""


class ContainerEnd(NamedTuple):
    code: int
    reason: str
    message: str
    ended: int | None  # ms


class PodState(NamedTuple):
    name: str
    uid: str  # of the task
    namespace: str
    folder: str
    phase: str
    node: str = ""
    ip: str = ""
    reason: str = ""  # why the whole pod was ended
    message: str = ""
    is_scheduled: bool = False
    why_unscheduled: str = ""
    waiting: tuple[str, str] = ("", "")  # reason and message of the task's container
    is_running: bool = False  # the task's container
    began: int | None = None  # ms
    end: ContainerEnd | None = None
    keeps_files: bool = False  # the outputs have to be fetched
    files_code: int | None = None  # exit code of the container that kept them
    is_deleted: bool = False  # someone has asked to delete it
    disruption: str = ""  # why Kubernetes itself deletes it
    is_gone: bool = False

    @property
    def is_over(self) -> bool:
        return self.end is not None or self.phase in ("Succeeded", "Failed")


def read_pod(pod: Mapping[str, Any]) -> PodState:
    """Return what we need to know about a pod; others may have created one with our labels."""
    about, status, spec = (mapping(pod.get(name)) for name in ("metadata", "status", "spec"))
    states = {
        text(one.get("name")): mapping(one.get("state")) for one in rows(status.get("containerStatuses"))
    }
    task, files = states.get(TASK, {}), states.get(FILES, {})
    ended, waiting = mapping(task.get("terminated")), mapping(task.get("waiting"))
    conditions = {text(one.get("type")): one for one in rows(status.get("conditions"))}
    scheduled, disrupted = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    return PodState(
        name=text(about.get("name")),
        uid=text(mapping(about.get("labels")).get(UID)),
        namespace=text(about.get("namespace")),
        folder=text(mapping(about.get("annotations")).get(FOLDER)),
        phase=text(status.get("phase")),
        node=text(spec.get("nodeName")),
        ip=text(status.get("podIP")),
        reason=text(status.get("reason")),
        message=text(status.get("message")),
        is_scheduled=scheduled.get("status") == "True",
        why_unscheduled=text(scheduled.get("message")),
        waiting=(text(waiting.get("reason")), text(waiting.get("message"))),
        is_running="running" in task,
        began=_milliseconds((ended or mapping(task.get("running"))).get("startedAt")),
        end=_container_end(ended) if ended else None,
        keeps_files="running" in files,
        files_code=whole(mapping(files.get("terminated")).get("exitCode")),
        is_deleted="deletionTimestamp" in about,
        disruption=text(disrupted.get("reason")) if disrupted.get("status") == "True" else "",
    )


def _container_end(found: Mapping[str, Any]) -> ContainerEnd:
    code = whole(found.get("exitCode"))
    return ContainerEnd(
        code or 0,
        UNKNOWN if code is None else text(found.get("reason")),
        text(found.get("message")),
        _milliseconds(found.get("finishedAt")),
    )


def _milliseconds(words: object) -> int | None:
    """Return a time in ms; None if it is missing or unknown, which is a time of 1970 or before."""
    try:
        moment = read_time(text(words))
    except ValueError:
        return None
    return int(moment.timestamp() * 1000) if moment.year > 1970 else None


def read_time(words: str) -> datetime:
    """Return a time of Kubernetes, which Python 3.10 cannot read with a ``Z``; ValueError if it is none."""
    return datetime.fromisoformat(words.replace("Z", "+00:00"))


def why_waiting(pod: PodState | None, image: str) -> str:
    """Return why a pod does not run yet."""
    if pod is None:
        return "it is being created"
    if not pod.is_scheduled:
        return f"Kubernetes cannot place it yet: {pod.why_unscheduled or 'it has not been looked at'}"
    reason, message = pod.waiting
    if reason in NO_IMAGES:
        return no_image(pod, image)
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return f"node {pod.node} is preparing its container"
    return f"node {pod.node} cannot start its container: {message or reason}"


def no_image(pod: PodState, image: str) -> str:
    return f"its image {image} cannot be pulled: {pod.waiting[1] or pod.waiting[0]}"


def start_failure(pod: PodState, image: str) -> TaskExit:
    """Return the exit of a task whose container cannot be started, however often it is tried."""
    is_image = pod.waiting[0] in NO_IMAGES
    words = no_image(pod, image) if is_image else why_waiting(pod, image)
    return TaskExit(None, words, NO_IMAGE if is_image else NOT_STARTED)


def was_interrupted(pod: PodState) -> bool:
    """Whether its node was interrupted before it had created the container: the command never began."""
    end = pod.end
    return (
        end is not None
        and end.reason == "StartError"
        and "failed to create" in end.message
        and any(words in end.message for words in INTERRUPTIONS)
    )


def read_exit(pod: PodState, is_stopped: bool) -> TaskExit:
    """Return how the task of a pod that is over has ended."""
    if pod.reason in REASONS and (pod.end is None or pod.reason != "NodeLost"):
        code, words = REASONS[pod.reason]
        detail = f": {pod.message}" if pod.message and pod.reason == "Evicted" else ""
        ended, is_late = pod.end.ended if pod.end else None, pod.reason == "DeadlineExceeded"
        return TaskExit(None, words + detail, code, is_stopped, ended=ended, timed_out=is_late)
    if pod.is_deleted and not is_stopped and (pod.end is None or pod.end.code):
        return deleted_exit(pod)
    if pod.end is None and pod.phase == "Succeeded":
        return TaskExit(0, stopped=is_stopped)
    if pod.end is None:
        words = f"could not be started by Kubernetes: {pod.message or pod.reason or pod.phase}"
        return TaskExit(None, words, NOT_STARTED, is_stopped)
    end = pod.end
    if end.reason in ("StartError", "ContainerCannotRun"):
        code = NO_SHELL if "/bin/sh" in end.message else NOT_STARTED
        return TaskExit(
            None, f"its container could not be started: {end.message}", code, is_stopped, end.ended
        )
    usage = _usage(end.message)
    is_too_large = end.reason == "OOMKilled" and end.code
    reason = "used more memory than it asked for" if is_too_large else ""
    if end.reason == UNKNOWN:
        return TaskExit(None, LOST, NODE_LOST, is_stopped, end.ended)
    return TaskExit(end.code, reason, None, is_stopped, end.ended, **usage)


def deleted_exit(pod: PodState | None) -> TaskExit:
    """Return the exit of a task whose pod was deleted by others."""
    code, words = DISRUPTIONS.get(pod.disruption if pod else "", (REMOVED_OUTSIDE, DELETED))
    return TaskExit(None, words, code, ended=pod.end.ended if pod and pod.end else None)


def stopped_exit(has_begun: bool) -> TaskExit:
    """Return the exit of a task whose pod was deleted because it was to stop."""
    if has_begun:
        return TaskExit(KILLED, stopped=True)
    return TaskExit(None, "was stopped before it started", RUNTIME_FAILED, stopped=True)


def _usage(message: str) -> task_state.Usage:
    """Return what the task used, which the entry script leaves as the container's message."""
    found: dict[str, int] = {}
    for line in message.splitlines():
        match = re.fullmatch(r"(\S+(?: usage_usec)?) (\d{1,18})", line)
        if match and match[1] in USAGE:
            name, unit = USAGE[match[1]]
            found[name] = int(match[2]) // unit
    return task_state.usage(found.get("peak"), found.get("cpu"))
