"""The engine: one event loop in a thread, with a driver for each task."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import io
import itertools
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import is_regular, open_regular
from openpai_tasks.protocol import JobDocument, fields
from openpai_tasks.protocol.document.policy import NORMAL, priority_rank, priority_word
from openpai_tasks.server import ssh
from openpai_tasks.server.engines.base import (
    Engine,
    EngineCapacity,
    Launch,
    MemoryLimits,
    Orphan,
    SchedulingEngine,
    TaskQueued,
    TaskStatus,
)
from openpai_tasks.server.engines.container_program import WORK
from openpai_tasks.server.engines.kubernetes import access, capacity
from openpai_tasks.server.engines.kubernetes.api import PROXY_AWAY, KubeApi, KubeError, path
from openpai_tasks.server.engines.kubernetes.driver import (
    CREATED,
    FORGOTTEN,
    GANG,
    READY,
    STOP,
    Cluster,
    TaskDriver,
    end_tasks,
)
from openpai_tasks.server.engines.kubernetes.gang import Gang, GangQueue
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl, reason
from openpai_tasks.server.engines.kubernetes.mirror import PodMirror
from openpai_tasks.server.engines.kubernetes.pods import HOME, JOB, OWNER, PodOwner, is_gang
from openpai_tasks.server.engines.kubernetes.site import read_site
from openpai_tasks.server.engines.machine import LOGS
from openpai_tasks.server.engines.process import GRACE, write_file
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.engines.wakeups import WakePipe, pipe_path
from openpai_tasks.server.state.records import NewEvent, Task
from openpai_tasks.settings import home
from openpai_tasks.settings.engines import TROUBLE, EngineOptions, find_engine

log = logging.getLogger(__name__)

FOLDER, ID = ".kubernetes", "id"
CAPACITY_SECONDS = 10.0  # between two looks at nodes and quotas
PROXY_SECONDS = 1.0  # between two looks at the proxy
CLOSE_SECONDS = 10.0  # to delete the pods of tasks that have ended
FIRST_SECONDS = 60.0  # for the first answer of Kubernetes
ERROR_PAUSE = 1.0
FORGET_PAUSE = 5.0  # seconds before pods that could not be deleted are tried again


class KubernetesEngine(SchedulingEngine):
    """Runs each task in a pod; Kubernetes decides where and when."""

    name = "kubernetes"
    uses_images = mounts_at_root = True
    serves_ssh_in_image = has_task_folders = separates_streams = False
    records_usage = True
    where = "Kubernetes"
    ssh_host = ssh.HOST

    def __init__(self, folder: Path, grace: float = GRACE, options: EngineOptions | None = None) -> None:
        jobs = home.make_private(folder.absolute())
        self.wakeups = WakePipe(pipe_path(jobs))
        self.memory = MemoryLimits(True, "by Kubernetes")
        self._own = home.make_private(jobs / FOLDER)
        self._site = read_site(options or find_engine(self.name).read_options({}))
        self._kubectl = Kubectl(self._site.kubeconfig, self._site.context)
        self._namespaces = self._site.namespaces or (self._kubectl.namespace(),)
        self._socket = home.socket_folder(self._own) / f"kubectl-{self._home_id()}"
        self._drivers: dict[str, TaskDriver] = {}  # by uid
        self._capacity = EngineCapacity(())
        self._loop = asyncio.new_event_loop()
        self._api = KubeApi(str(self._socket))
        self._mirror = PodMirror(self._api, self._home_id(), jobs.parent / TROUBLE, self._note_change)
        self._gangs = GangQueue(self._api, self._site)
        first = self._namespaces[0]
        self._cluster = Cluster(
            self._api,
            self._kubectl,
            self._mirror,
            self._site,
            PodOwner(self._home_id(), f"{platform.node()}:{self._own.absolute()}"),
            grace,
            {"": first, "default": first, **{name: name for name in self._namespaces}},
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._forgotten: set[str] = set()  # names of pods that are to be deleted, until they are gone
        self._deletions: set[asyncio.Task[Any]] = set()
        self._kubectl.start_proxy(self._socket)
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True)
        self._thread.start()
        opening = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
        try:
            opening.result(FIRST_SECONDS)
        except BaseException as err:
            opening.cancel()
            self.close()
            if isinstance(err, concurrent.futures.TimeoutError):
                raise ConfigError(f"Kubernetes did not answer within {FIRST_SECONDS:g} s") from err
            raise

    def _home_id(self) -> str:
        """Return the name by which the pods of this home are known."""
        file = self._own / ID
        with contextlib.suppress(FileNotFoundError, ValueError):
            if (known := file.read_text(encoding="ascii").strip()).isalnum():  # it was written completely
                return known
        write_file(file, uuid.uuid4().hex[:16] + "\n")
        return file.read_text(encoding="ascii").strip()

    # In the event loop

    async def _open(self) -> None:
        """Ask Kubernetes for the first time, and begin to mirror it."""
        if not await self._kubectl.wait_for_proxy(self._socket):
            raise ConfigError(f"kubectl proxy: {self._proxy_error()}")
        try:
            self._capacity = await capacity.read_capacity(self._api, self._site, self._namespaces)
            for name in self._namespaces:
                if not await access.exists(self._api, name):
                    hint = f"`kubectl create namespace {name}` creates it"
                    raise ConfigError(f"Kubernetes has no namespace {name!r}; {hint}")
                if missing := await access.missing_rights(self._api, name):
                    raise ConfigError(f"Kubernetes: you may not {missing} in namespace {name}")
        except KubeError as err:
            raise ConfigError(f"Kubernetes: {err}") from err
        for name in self._namespaces:
            self._begin(self._keep_running(functools.partial(self._mirror.run, name)))
        while not self._mirror.listed.issuperset(self._namespaces) and not self._mirror.trouble:
            await asyncio.sleep(0.02)
        for run in (self._keep_up, self._gangs.run, self._remove_forgotten):
            self._begin(self._keep_running(run))

    async def _keep_running(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what never ends, again after an error, such as of a full disk."""
        while True:
            try:
                await run()
            except Exception:
                log.exception("a task of the engine failed")
                await asyncio.sleep(ERROR_PAUSE)

    def _proxy_error(self) -> str:
        return reason(self._socket.with_suffix(".log").read_text(encoding="utf-8", errors="replace"))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the loop, which is kept from being collected."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            log.error("a task of the engine failed", exc_info=task.exception())

    async def _keep_up(self) -> None:
        """Look at nodes and quotas from time to time; start a proxy that has ended again."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(PROXY_SECONDS)
            if PROXY_AWAY in self._mirror.trouble:
                await asyncio.to_thread(self._kubectl.start_proxy, self._socket)
                await self._kubectl.wait_for_proxy(self._socket)
            if time.monotonic() > looked + CAPACITY_SECONDS:
                looked = time.monotonic()
                with contextlib.suppress(KubeError):
                    self._capacity = await capacity.read_capacity(self._api, self._site, self._namespaces)

    def _note_change(self, uid: str) -> None:
        self._gangs.changed.set()
        if driver := self._drivers.get(uid):
            driver.changed.set()
            if len(driver.peers) > 1 and all(one.pod and one.pod.is_running for one in driver.peers):
                for peer in driver.peers:
                    peer.changed.set()

    async def _remove_forgotten(self) -> None:
        """Delete the pods of tasks whose end is recorded, or whose folder is lost, and of withdrawn gangs."""
        while True:
            for pod in list(self._mirror.pods.values()):
                driver = self._drivers.get(pod.uid)
                if driver and driver.pod_name == pod.name:
                    continue
                if pod.is_gone:
                    self._mirror.pods.pop(pod.name, None)
                    self._forgotten.discard(pod.name)
                elif driver:
                    await self._delete(pod.namespace, pod.name)
                elif pod.name in self._forgotten or _is_forgotten(pod.folder):
                    await self._forget(pod.namespace, pod.name, Path(pod.folder))
            await asyncio.sleep(FORGET_PAUSE)

    async def _delete(self, namespace: str, name: str) -> bool:
        """Delete a pod; return whether Kubernetes has answered."""
        try:
            await self._api.delete(path(namespace, "pods", name))
        except KubeError as err:
            log.info("cannot delete pod %s: %s", name, err)
            return False
        return True

    def _begin_to_forget(self, driver: TaskDriver) -> None:
        task = self._begin(self._forget(driver.namespace, driver.pod_name, driver.folder))
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _forget(self, namespace: str, name: str, folder: Path) -> None:
        if name in self._mirror.pods:
            self._forgotten.add(name)
        if not await self._delete(namespace, name):
            return
        for marker in (CREATED, READY, STOP, GANG, FORGOTTEN):
            with contextlib.suppress(OSError):
                (folder / marker).unlink()

    async def _start_new(self, launches: Sequence[Launch]) -> None:
        self._start([launch for launch in launches if launch.uid not in self._drivers])

    def _start(self, launches: Sequence[Launch]) -> None:
        """Begin to drive tasks; those of one job attempt know each other."""
        for _, group in itertools.groupby(launches, key=lambda launch: launch.folder.parent):
            together: list[TaskDriver] = []
            for launch in group:
                driver = TaskDriver(self._cluster, launch, together, self._notify)
                together.append(driver)
                self._drivers[launch.uid] = driver
            if self._site.gang == "own" and is_gang(together[0].launch) and len(together) > 1:
                gang = Gang(together)
                for driver in together:
                    driver.gang = gang
                self._gangs.add(gang)
            for driver in together:
                self._begin(driver.run())

    def _adopt(self, task: Task) -> None:
        """Bring a task to its end that an earlier server was asked to stop."""
        if task.uid not in self._drivers:
            self._start([Launch(task.uid, "", task.folder, {}, {}, "")])
            self._drivers[task.uid].stop_asked.set()

    def _notify(self, driver: TaskDriver) -> None:
        self.wakeups.notify(str(driver.folder))

    async def _remove_orphans(self, preview: bool) -> list[Orphan]:
        """Delete the pods of embedded clusters that were on this machine, and are gone with their folders."""
        found: list[Orphan] = []
        for namespace in self._namespaces:
            query = {"labelSelector": f"{HOME},{HOME}!={self._cluster.owner.id}"}
            for pod in fields.rows((await self._api.get(path(namespace, "pods", **query))).get("items")):
                about = fields.mapping(pod.get("metadata"))
                notes, labels = fields.mapping(about.get("annotations")), fields.mapping(about.get("labels"))
                name, owner = fields.text(about.get("name")), fields.text(notes.get(OWNER))
                if not name or not _is_orphan(fields.text(labels.get(HOME)), owner):
                    continue
                if not preview:
                    await self._api.delete(path(namespace, "pods", name))
                found.append(Orphan(name, fields.text(notes.get(JOB)), owner))
        return found

    # For the scheduler, in its thread

    def capacity(self) -> EngineCapacity:
        return self._capacity

    def problem(self, document: JobDocument) -> str:
        return ""

    def priority_note(self, document: JobDocument) -> str:
        word = priority_word(document.priority)
        if word in self._site.priority_classes or priority_rank(document.priority) == NORMAL:
            return ""
        setting = f"local.kubernetes-priority-classes={word}=NAME"
        return f"the priority has no effect: set {setting} to a priority class of the cluster"

    def variables(self, task: Task) -> dict[str, str]:
        return {"PAI_WORK_DIR": WORK, "PAI_MOUNT_ROOT": ""}

    def start(self, *launches: Launch) -> None:
        asyncio.run_coroutine_threadsafe(self._start_new(launches), self._loop).result()

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        found: dict[str, TaskStatus] = {}
        for task in tasks:
            driver = self._drivers.get(task.uid)
            found[task.uid] = driver.status if driver else TaskQueued("it is being created")
            if driver is None and os.path.exists(task.folder / STOP):
                self._loop.call_soon_threadsafe(self._adopt, task)
        return found

    def stop(self, task: Task) -> None:
        with contextlib.suppress(OSError, ConfigError):  # a later server is asked to stop it, too
            home.make_private(task.folder)
            (task.folder / STOP).touch(mode=0o600)
        if driver := self._drivers.get(task.uid):
            self._loop.call_soon_threadsafe(driver.stop_asked.set)
        else:
            self._loop.call_soon_threadsafe(self._adopt, task)

    def forget(self, task: Task) -> None:
        with contextlib.suppress(OSError):
            (task.folder / FORGOTTEN).touch(mode=0o600)
        if driver := self._drivers.pop(task.uid, None):
            self._loop.call_soon_threadsafe(self._begin_to_forget, driver)

    def notes(self, task: Task) -> Sequence[NewEvent]:
        driver = self._drivers.get(task.uid)
        if driver is None:
            return []
        return [NewEvent("Warning", reason, message) for reason, message in driver.notes]

    def is_ssh_ready(self, task: Task) -> bool:
        return ssh.is_ready(task.folder)

    def logs(self, task: Task) -> dict[str, int]:
        path = task.folder / "logs" / "all"
        if not is_regular(path):
            return {}
        size = path.stat().st_size
        return {"stdout": size, "stderr": 0, "all": size}

    def open_log(self, task: Task, name: str) -> BinaryIO:
        """Open the log of both streams, which Kubernetes keeps together."""
        if name == usage.FILE:
            return open_regular(task.folder / "logs" / name)
        if name not in LOGS:
            raise FileNotFoundError(errno.ENOENT, "no such log", name)
        found = open_regular(task.folder / "logs" / "all")
        if name == "stderr":
            found.close()
            return io.BytesIO()
        return found

    def remove_orphans(self, preview: bool) -> Sequence[Orphan]:
        return asyncio.run_coroutine_threadsafe(self._remove_orphans(preview), self._loop).result()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._kubectl.close()
        for file in (self._socket, self._socket.with_suffix(".log")):
            with contextlib.suppress(OSError):
                file.unlink()
        home.remove_socket_folder(self._own)
        self.wakeups.close()

    async def _cancel(self) -> None:
        if self._deletions and not self._mirror.trouble:
            await asyncio.wait(self._deletions, timeout=CLOSE_SECONDS)
        await end_tasks(list(self._tasks))


def _is_forgotten(folder: str) -> bool:
    """Whether the end of a task is recorded, or its folder is lost; no if the disk cannot be read."""
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return os.path.exists(f"{folder}/{FORGOTTEN}")


def _is_orphan(home_id: str, place: str) -> bool:
    """Whether the home of a pod was on this machine, and is gone; we cannot know about other machines."""
    host, _, folder = place.partition(":")
    if host != platform.node() or not folder:
        return False
    try:
        with open_regular(Path(folder, ID)) as file:  # others can name any file in their pods
            return file.read(len(home_id) + 1).strip() != home_id.encode()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


if TYPE_CHECKING:
    _IS_ENGINE: type[Engine] = KubernetesEngine
