"""One task from its pod to its end: a coroutine that survives outages, and starts over after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from openpai_tasks.errors import PaiError
from openpai_tasks.files import shortages
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.engines.base import (
    Launch,
    TaskExit,
    TaskPlace,
    TaskQueued,
    TaskRunning,
    TaskStatus,
)
from openpai_tasks.server.engines.kubernetes import gang, pod_state, pods
from openpai_tasks.server.engines.kubernetes.api import NOT_FOUND, KubeApi, KubeError, path, reading
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl, reason
from openpai_tasks.server.engines.kubernetes.log_copy import LogCopy
from openpai_tasks.server.engines.kubernetes.mirror import PodMirror
from openpai_tasks.server.engines.kubernetes.pod_state import PodState
from openpai_tasks.server.engines.kubernetes.pods import FILES, TASK, FilePlan, PodOwner, pod_name
from openpai_tasks.server.engines.kubernetes.site import KubeSite
from openpai_tasks.server.engines.kubernetes.ssh_service import PodCommands, SshService
from openpai_tasks.server.engines.kubernetes.transfer import CONFLICTS, PodFiles, TransferFailed
from openpai_tasks.server.engines.process import NODE_LOST, RUNTIME_FAILED, write_file
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.engines.runner.peers import Place
from openpai_tasks.server.ssh import NOT_SERVED
from openpai_tasks.server.state.state import now
from openpai_tasks.settings import home

log = logging.getLogger(__name__)
_T = TypeVar("_T")

LOOK = 5.0  # seconds between two looks at what is known to change seldom
PAUSE = 1.0  # seconds before an operation that failed is tried again
REFUSED_PAUSE = 5.0  # seconds before a request is repeated that a quota or a permission has refused
IMAGE_SECONDS = 120.0  # that pulling an image may fail, since a registry may be down for a moment
LOST_SECONDS = 60.0  # that a deleted pod may take to go, before its node counts as lost
LOG_SECONDS = 30.0  # to read the rest of a log
KILL_SECONDS = 20.0  # after the grace period, before the pod itself is deleted
CANCEL_SECONDS = 5.0  # before a task is cancelled again, which interrupts what it cleans up
LAST_ANSWERS = 2  # with no new lines, at the end of a log: a killed kubelet cuts one short
MOST_RESTARTS = 3  # of a task whose node was interrupted
TRANSFER_SECONDS = 300.0  # that passing files may fail while Kubernetes answers; a node may be restarted
PEER_SECONDS = 10.0  # for the scheduler to end the peers of a task that has ended before all began

CREATED, READY, STOP, FORGOTTEN, GANG = "pod", "ready", "stop", "forgotten", "gang"
"""Files in a task's folder.

Its pod exists (where, and which outputs to fetch); it has what it needs; it is to stop; its end is recorded;
how often the pods of its gang were withdrawn, and since when it waits.
"""


@dataclass(frozen=True)
class Cluster:
    """What drivers share."""

    api: KubeApi
    kubectl: Kubectl
    mirror: PodMirror
    site: KubeSite
    owner: PodOwner
    grace: float
    namespaces: Mapping[str, str]  # by virtual cluster


class TaskDriver:
    """Brings a task to its end; ``status`` is what is known about it."""

    def __init__(
        self,
        cluster: Cluster,
        launch: Launch,
        peers: Sequence[TaskDriver],
        notify: Callable[[TaskDriver], None],
    ) -> None:
        self._cluster, self.launch = cluster, launch
        self._notify = notify  # called when the task runs, and when it has ended
        self.peers = peers  # all tasks that start together, this one among them
        self.changed, self.stop_asked, self._withdrawn = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.gang: gang.Gang | None = None  # set for tasks that we start together
        self._ssh = SshService(launch) if launch.ssh else None
        recorded = self._read_gang()
        self._generation, self.since = recorded or (0, now())
        self._is_recorded = recorded is not None
        marker = self._read_marker()
        self.is_created, self._is_ready = self._has(CREATED), self._has(READY)
        self.namespace = marker.get("namespace") or cluster.namespaces.get(
            launch.virtual_cluster, cluster.namespaces[""]
        )
        self._files = FilePlan()
        if marker.get("output"):  # for a task that is only to be ended
            self._files = FilePlan({}, marker["output"], Path(marker["target"]))
        self.status: TaskStatus = TaskQueued(pod_state.why_waiting(self.pod, launch.image))
        self._is_alone = bool(marker.get("alone"))  # it begins without anything from the server
        self._made: Mapping[str, Any] | None = None  # the pod, if this driver has created it
        pod = None if self._is_interrupted else self.pod
        if pod and (pod.is_over or (pod.is_running and self._has_begun)):
            self.status = TaskRunning(self._place(pod))  # its end is not complete yet
        if self.is_stopped and not self.is_created:
            self.status = pod_state.stopped_exit(False)
        self._places: list[Place] = []  # of all tasks that start together, once all have run
        self.notes: list[tuple[str, str]] = []  # reasons and messages of events
        self._first_failure = 0.0  # when its container could first not be started

    @property
    def folder(self) -> Path:
        return self.launch.folder

    @property
    def pod_name(self) -> str:
        return pod_name(self.launch.uid, self._generation)

    @property
    def pod(self) -> PodState | None:
        return self._cluster.mirror.pods.get(self.pod_name)

    @property
    def is_stopped(self) -> bool:
        return self.stop_asked.is_set() or self._has(STOP)

    @property
    def is_ending(self) -> bool:
        """Whether the task will not begin any more, if it has not begun."""
        pod = self.pod
        is_over = pod is not None and (pod.is_over or pod.is_gone)
        return self.stop_asked.is_set() or isinstance(self.status, TaskExit) or is_over

    def _has(self, name: str) -> bool:
        return os.path.exists(self.folder / name)

    def _read_gang(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError, ValueError):
            generation, since = (self.folder / GANG).read_text(encoding="ascii").split()
            return int(generation), int(since)
        return None

    def _read_marker(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, str] = json.loads((self.folder / CREATED).read_text(encoding="utf-8"))
            return found
        return {}

    async def run(self) -> None:
        """Drive the task until it has ended, from the start again after an error that may pass."""
        try:
            end = await self._retry(self._drive)
        except (PaiError, OSError) as err:
            words = f"{err.strerror}: {err.filename}" if isinstance(err, OSError) else str(err)
            end = TaskExit(None, f"could not be started: {words}", RUNTIME_FAILED, self.is_stopped)
        self.status = end
        self._notify(self)

    async def _drive(self) -> TaskExit:
        if isinstance(self.status, TaskExit):
            return self.status
        if self.is_stopped:
            self.stop_asked.set()
        if self.launch.scripts:
            self._files = pods.plan_files(self.launch, self._cluster.site)
            if not self.is_created:
                self._is_alone = not pods.is_gang(self.launch) and self._files.is_small
        while True:
            if end := await self._until_created():
                return end
            self._withdrawn.clear()
            work, lost = asyncio.create_task(self._work()), asyncio.create_task(self._until_lost())
            withdrawn = asyncio.create_task(self._withdrawn.wait())
            calls = self._stop_when_asked(), self._serve_ssh(), self._copy_metrics()
            others = [asyncio.create_task(call) for call in calls]
            try:
                await asyncio.wait({work, lost, withdrawn}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    if end := await work:
                        return end
                elif lost.done():
                    return TaskExit(None, pod_state.LOST, NODE_LOST, self.is_stopped)
            finally:
                await end_tasks((work, lost, withdrawn, *others))

    async def _work(self) -> TaskExit | None:
        """Bring the task to its end; return None if it needs another pod."""
        await self._create_secrets()
        if end := await self._until_running():
            return end
        if self._is_interrupted:
            why = "its node was interrupted while it created the container; the task starts in another pod"
            self.notes.append(("StartInterrupted", why))
            self.begin_again()
            return None
        if end := await self._deliver():
            return end
        await self._copy_log()
        return await self._finish()

    async def _until_lost(self) -> None:
        """Wait until the pod was deleted, and has not ended for so long that its node must be lost."""
        since: float | None = None
        while True:
            pod = await self._wait(LOST_SECONDS / 10)
            if pod and pod.is_deleted and not pod.is_over:
                since = since or time.monotonic()
                if time.monotonic() > since + LOST_SECONDS:
                    return

    async def _retry(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call again after errors that may pass."""
        while True:
            try:
                return await call()
            except Exception as err:
                await self._wait_after(err)

    async def _wait_after(self, err: Exception) -> None:
        """Wait a moment after an error that may pass, or until the task is to stop; raise any other.

        Kubernetes may not answer, a quota be used up, a permission be missing, or this machine lack space,
        memory or descriptors.
        """
        if shortage := shortages.find_shortage(err):
            self.note_wait(shortages.describe(shortage))
        elif isinstance(err, KubeError) and (err.may_pass or err.may_be_allowed):
            self.note_wait(f"Kubernetes: {err}")
        else:
            raise err
        is_refused = isinstance(err, KubeError) and err.may_be_allowed
        if not self.stop_asked.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stop_asked.wait(), REFUSED_PAUSE if is_refused else PAUSE)
            return await asyncio.sleep(0.1)
        await asyncio.sleep(PAUSE)

    def note_wait(self, why: str) -> None:
        """Note why the task does not run yet."""
        if isinstance(self.status, TaskQueued):
            self.status = TaskQueued(why)

    # Creating

    def need(self) -> gang.PodNeed:
        try:
            return gang.pod_need(self._build_pod()["spec"])
        except PaiError:  # as in ``run``, which reports it
            return gang.PodNeed({"pods": 1}, {})

    def begin_again(self) -> None:
        """Give up the pod of a task that has not begun, for one with another name."""
        self._generation += 1
        self.is_created = self._is_recorded = False
        with contextlib.suppress(OSError):  # then it is recorded before the next pod is created
            (self.folder / CREATED).unlink(missing_ok=True)
            self._record_gang()
        self._first_failure, self._made, self._places = 0.0, None, []
        self._withdrawn.set()
        self.status = TaskQueued()

    def _record_gang(self) -> None:
        write_file(self.folder / GANG, f"{self._generation} {self.since}\n")
        self._is_recorded = True

    def _build_pod(self) -> dict[str, Any]:
        marks = pods.gang_marks(self._cluster.site.gang, *self._group)
        return pods.build_pod(
            self.launch, self._cluster.owner, self._cluster.site, self._files, self.pod_name, marks
        )

    @property
    def _group(self) -> tuple[str, int]:
        """The name and the number of the tasks that start together."""
        if not pods.is_gang(self.launch):
            return self.pod_name, 1
        return pod_name(self.peers[0].launch.uid), len(self.peers)

    async def _until_created(self) -> TaskExit | None:
        """Create the pod when its gang may start; return the exit of a task that is stopped before."""
        while not self.is_created:
            if self.stop_asked.is_set():
                return pod_state.stopped_exit(False)
            home.make_private(self.folder)
            if not self._is_recorded and (self.gang or self._generation):
                self._record_gang()
            if self.gang and not self.gang.admitted.is_set():
                await _first(self.gang.admitted.wait(), self.stop_asked.wait())
                continue
            with reading():
                await self._create_pod()
        return None

    async def _create_pod(self) -> None:
        """Create the pod, unless it exists; without its secret, it cannot begin."""
        pod = self._build_pod()
        name, api = self.pod_name, self._cluster.api
        try:
            made = await api.create(path(self.namespace, "pods"), pod)
        except KubeError as err:
            if not err.already_exists:
                raise
            made = await api.get(path(self.namespace, "pods", name))
            if made["metadata"].get("labels", {}).get(pods.HOME) != self._cluster.owner.id:
                raise
        group, count = self._group
        described = pods.build_group(self._cluster.site.gang, group, count, made)
        if described and self.peers[0] is self:
            with _unless_it_exists():
                await api.create(
                    f"/apis/{described['apiVersion']}/namespaces/{self.namespace}/podgroups", described
                )
        if name == self.pod_name:  # otherwise, it was withdrawn meanwhile
            files = self._files
            marker = {"namespace": self.namespace, "output": files.output, "target": str(files.target or "")}
            marker |= {"alone": "yes"} if self._is_alone else {}
            self._made = made
            write_file(self.folder / CREATED, json.dumps(marker))
            self.is_created = True

    async def _create_secrets(self) -> None:
        """Create the secrets of the pod, unless they exist."""
        pod, launch = self.pod, self.launch
        if not launch.scripts or (pod and (pod.is_running or pod.is_over or pod.is_gone)):
            return
        try:
            made = self._made or await self._cluster.api.get(path(self.namespace, "pods", self.pod_name))
        except KubeError as err:
            if err.code == NOT_FOUND:
                return  # someone has deleted it
            raise
        with reading():
            secrets = pods.build_secrets(launch, made, self._files, is_alone=not pods.is_gang(launch))
        for secret in secrets:
            with _unless_it_exists():
                await self._cluster.api.create(path(self.namespace, "secrets"), secret)

    async def _wait(self, seconds: float = PAUSE) -> PodState | None:
        """Wait for a change of the pod, but not longer than this; return the pod."""
        self.changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)
        return self.pod

    async def _is_missing(self) -> bool:
        """Whether Kubernetes does not have the pod, which the mirror has not seen."""
        try:
            await self._cluster.api.get(path(self.namespace, "pods", self.pod_name))
        except KubeError as err:
            return err.code == NOT_FOUND
        return False

    async def _until_running(self) -> TaskExit | None:
        """Wait until the container runs, or has ended; return the exit of a task that never starts."""
        pod = self.pod or await self._wait()
        while pod is None or not (pod.is_running or pod.is_over):
            if pod.is_gone if pod else await self._is_missing():
                return pod_state.stopped_exit(False) if self.is_stopped else pod_state.deleted_exit(pod)
            reason = pod.waiting[0] if pod else ""
            if pod and reason in (*pod_state.NO_IMAGES, *pod_state.NOT_STARTING):
                self._first_failure = self._first_failure or time.monotonic()
                is_final = reason == "InvalidImageName"
                if is_final or time.monotonic() > self._first_failure + IMAGE_SECONDS:
                    return pod_state.start_failure(pod, self.launch.image)
            self.note_wait(self._cluster.mirror.trouble or pod_state.why_waiting(pod, self.launch.image))
            pod = await self._wait(PAUSE if self._first_failure or pod is None else LOOK)
        if not self._is_interrupted and (self._has_begun or not pods.is_gang(self.launch)):
            self._note_running(pod)
        return None

    @property
    def _is_interrupted(self) -> bool:
        """Whether its command never began, so that it can begin in another pod; a gang starts as a whole."""
        if self.pod is None or self.is_stopped or pods.is_gang(self.launch):
            return False
        return self._generation < MOST_RESTARTS and pod_state.was_interrupted(self.pod)

    def _note_running(self, pod: PodState) -> None:
        self.status = TaskRunning(self._place(pod))
        self._notify(self)

    def _place(self, pod: PodState) -> TaskPlace:
        ports = pods.choose_ports(self.launch.ports)
        ports |= {"ssh": (self._ssh.open_port(),)} if self._ssh else {}
        return TaskPlace(pod.ip, ports, began=pod.began)

    async def _serve_ssh(self) -> None:
        """Serve SSH on this machine while the task runs, if it has asked for that."""
        while not isinstance(self.status, TaskRunning):
            await self._wait()
        if self._ssh:
            pod = PodCommands(self._cluster.kubectl, self.namespace, self.pod_name)
            why = await self._ssh.serve(pod, self._cluster.api.socket)
            self.notes.append((NOT_SERVED, f"there is no ssh service: {why}"))

    # What the task needs before it starts

    @property
    def _has_begun(self) -> bool:
        """Whether the task has what it needs, so that its command runs, or has run."""
        return self._is_alone or self._is_ready

    @property
    def _is_alive(self) -> bool:
        pod = self.pod
        return pod is not None and not pod.is_over and not pod.is_gone

    def _pod_files(self) -> PodFiles:
        container = FILES if self._files.output else TASK  # a task without outputs has no second container
        return PodFiles(self._cluster.kubectl, self.namespace, self.pod_name, container)

    async def _deliver(self) -> TaskExit | None:
        """Send what does not fit into the secret: large files, and the addresses of peers.

        Return the exit of a task that cannot begin.
        """
        if self._has_begun or not self.launch.scripts:
            return None
        sending = asyncio.create_task(self._send_inputs(self._pod_files()))
        over = asyncio.create_task(self._until_over())  # a command in a container that ends may hang
        try:
            await asyncio.wait({sending, over}, return_when=asyncio.FIRST_COMPLETED)
            return await sending if sending.done() else None
        except (TransferFailed, OSError):
            if self._is_alive:
                raise
            return None  # an earlier server has sent everything, or the exit of the pod says what happened
        finally:
            await end_tasks((sending, over))

    async def _until_over(self) -> None:
        while self._is_alive:
            await self._wait(LOOK)

    async def _send_inputs(self, files: PodFiles) -> TaskExit | None:
        if not self._files.is_small and not await self._retry_transfer(files.have_all):
            for target, source in self._files.inputs.items():
                await self._retry_transfer(lambda source=source, target=target: files.put(source, target))  # type: ignore[misc]
        text = ""
        if pods.is_gang(self.launch):
            places = await self._peer_places()
            if isinstance(places, TaskExit):
                return places
            if (pod := self.pod) is None or not places:
                return None
            self._note_running(pod)
            text = pods.address_script(places, self.launch)
        await self._retry_transfer(lambda: files.write(f"{pods.IO}/peers", text, f"{pods.IO}/ready"))
        if self._is_alive:
            self._is_ready = True
            await self._retry(self._record_ready)
        return None

    async def _record_ready(self) -> None:
        write_file(self.folder / READY, "")

    async def _retry_transfer(
        self, call: Callable[[], Awaitable[_T]], seconds: float = TRANSFER_SECONDS
    ) -> _T | None:
        """Pass files, also if the API server, the node, the connection or disk space is away for a while."""
        deadline = time.monotonic() + seconds
        while (pod := self.pod) and not pod.is_gone:
            try:
                return await call()
            except (TransferFailed, OSError) as err:
                if err.errno in CONFLICTS if isinstance(err, OSError) else not err.may_pass:
                    raise
                shortage = shortages.find_shortage(err)
                if self._cluster.mirror.trouble or shortage:
                    deadline = time.monotonic() + seconds
                elif time.monotonic() > deadline or (pod.is_over and not pod.keeps_files):
                    raise
                self.notes = [("FilesNotPassed", f"its files cannot be passed yet: {err}")]
                await self._wait(LOOK if shortage else PAUSE)
        return None

    async def _peer_places(self) -> list[Place] | TaskExit:
        """Return the places of all tasks of the job, once all run; none if this one has ended meanwhile.

        A task that begins later than another, which may end before, gets the same.
        """
        deadline = 0.0
        while self._is_alive:
            found = [(one, one.pod) for one in self.peers]
            if all(pod and pod.is_running and pod.ip and not pod.is_gone for _, pod in found):
                places = [pods.place_of(one.launch, pod.ip) for one, pod in found if pod]
                for one in self.peers:
                    one._places = places
            if self._places:
                return self._places
            if ended := next((one for one in self.peers if one.is_ending), None):
                deadline = deadline or time.monotonic() + PEER_SECONDS
                if time.monotonic() > deadline and not self.is_stopped:
                    peer = f"{ended.launch.role}-{ended.launch.index}"
                    words = f"did not begin, since {peer}, which starts with it, has ended before"
                    return TaskExit(None, words, RUNTIME_FAILED)
            self.note_wait(f"waits until all {len(self.peers)} tasks of its job run")
            await self._wait(LOOK)  # changed, as soon as all run
        return []

    # While it runs

    async def _copy_log(self) -> None:
        """Copy the log until the container has ended."""
        logs = self.folder / "logs"
        await self._retry(self._create_log)
        copy = self._log_copy(TASK, logs / "all", logs / ".position", logs / usage.FILE)
        deadline, answers = None, 0  # without anything new
        while True:
            pod, is_over = self.pod, not self._is_alive
            if is_over and not self._cluster.mirror.trouble:
                deadline = deadline or time.monotonic() + LOG_SECONDS
            try:
                has_more = await copy.run(follow=not is_over)
                answers = 0 if has_more or not is_over else answers + 1
                if answers == LAST_ANSWERS:
                    return
            except Exception as err:
                if not isinstance(err, KubeError) or shortages.find_shortage(err):
                    await self._wait_after(err)
                    deadline = None
                elif pod is None or pod.is_gone or (err.code == NOT_FOUND and is_over):
                    return
                elif deadline and time.monotonic() > deadline:
                    self.notes.append(("LogNotRead", f"the rest of its log could not be read: {err}"))
                    return
                else:
                    await self._wait()
            if self._is_alive:
                await self._wait()

    async def _create_log(self) -> None:
        """Create the log also of a task that prints nothing."""
        logs = self.folder / "logs"
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        (logs / "all").touch(mode=0o600)

    def _log_copy(self, container: str, file: Path, position: Path, usage: Path | None = None) -> LogCopy:
        return LogCopy(self._cluster.api, self.namespace, self.pod_name, container, file, position, usage)

    async def _copy_metrics(self) -> None:
        """Copy the metrics while the task runs; all of its outputs are fetched when it has ended."""
        target, metrics = self._files.target, self._files.metrics
        if target is None or not metrics:
            return
        while not isinstance(self.status, TaskRunning):
            await self._wait()
        copy = self._log_copy(FILES, target / metrics, self.folder / "logs" / ".metrics")
        while self._is_alive:
            with contextlib.suppress(KubeError, OSError):
                await copy.run(follow=True)
            await self._wait()

    # The end

    async def _finish(self) -> TaskExit:
        """Fetch the outputs, and return the exit."""
        while self._is_alive:
            await self._wait()
        pod = self.pod
        if pod is None or (pod.is_gone and not pod.is_over):
            return pod_state.stopped_exit(self._has_begun) if self.is_stopped else pod_state.deleted_exit(pod)
        if pod.keeps_files and not pod.is_gone:
            await self._fetch_files()
        return dataclasses.replace(pod_state.read_exit(pod, self.is_stopped), place=self._place(pod))

    async def _fetch_files(self) -> None:
        """Fetch the outputs while the container that keeps them runs; without outputs, it ends by itself."""
        fetching = asyncio.create_task(self._fetch_from(self._pod_files()))
        ended = asyncio.create_task(self._until_files_ended())  # a command in a container that ends may hang
        try:
            await asyncio.wait({fetching, ended}, return_when=asyncio.FIRST_COMPLETED)
            why = "the container that kept them has failed"
            if fetching.done():
                why = ""
                await fetching
        except (TransferFailed, OSError) as err:
            why = str(err)
        finally:
            await end_tasks((fetching, ended))
        if why and (self.pod is None or self.pod.files_code != 0):
            self.notes.append(("FilesNotFetched", f"its output files could not be fetched: {why}"))

    async def _fetch_from(self, files: PodFiles) -> None:
        target = self._files.target
        if target is not None:
            await self._retry_transfer(lambda: files.fetch(self._files.output, target), math.inf)
            await self._retry_transfer(files.end, math.inf)

    async def _until_files_ended(self) -> None:
        while (pod := self.pod) and pod.keeps_files and not pod.is_gone:
            await self._wait(LOOK)

    # Stopping

    async def _stop_when_asked(self) -> None:
        """Send TERM to all processes of the task, KILL after the grace period, then delete the pod."""
        await self.stop_asked.wait()
        await self._retry(self._stop)

    async def _stop(self) -> None:
        pod = self.pod
        if pod and pod.is_running and (self._has_begun or not self.launch.scripts):
            await self._signal("TERM", self._cluster.grace)
            await self._signal("KILL", KILL_SECONDS)
        target = path(self.namespace, "pods", self.pod_name)
        await self._retry(lambda: self._cluster.api.delete(target))

    async def _signal(self, name: str, seconds: float) -> None:
        """Send a signal, again while that fails, and wait."""
        end = time.monotonic() + seconds
        while self._is_alive:
            try:
                done = await self._cluster.kubectl.run_script(
                    self.namespace, self.pod_name, TASK, f"kill -{name} -1"
                )
                why = "" if done.code == 0 else reason(done.err)
            except OSError as err:
                why = str(err)
            if not why or time.monotonic() > end:
                break
            log.info("cannot send %s to %s: %s", name, self.launch.uid, why)
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(max(0.0, end - time.monotonic()))


async def _first(*calls: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of these is done; cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(tasks)


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until their processes and connections are closed, even if cancelled."""
    left = {task for task in tasks if not task.done()}
    cancelled, again = None, 0.0
    while left:
        if time.monotonic() >= again:  # before Python 3.12, wait_for may swallow a cancellation
            again = time.monotonic() + CANCEL_SECONDS
            for task in left:
                task.cancel()
        try:
            await asyncio.wait(left, timeout=max(0.0, again - time.monotonic()))
        except asyncio.CancelledError as err:
            cancelled = err
        left = {task for task in left if not task.done()}
    if cancelled:
        raise cancelled


@contextlib.contextmanager
def _unless_it_exists() -> Iterator[None]:
    try:
        yield
    except KubeError as err:
        if not err.already_exists:
            raise
