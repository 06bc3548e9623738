"""Start a job's tasks: ports, GPUs, variables, commands."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping

from openpai_tasks.errors import ConfigError
from openpai_tasks.files import shortages
from openpai_tasks.protocol import JobDocument, StorageMount, TaskRole, states
from openpai_tasks.protocol.document.scripts import time_limit
from openpai_tasks.server.engines.base import ContainerSpec, Engine, Launch, image_not_used
from openpai_tasks.server.engines.container_files import registry_login
from openpai_tasks.server.job_errors import JOB_ERRORS, describe
from openpai_tasks.server.resources import ResourceAmount, task_demand
from openpai_tasks.server.scheduling import environment, plugins
from openpai_tasks.server.scheduling.keeping import keep_failed
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.ssh.logins import SshLogins
from openpai_tasks.server.state.records import Job, NewEvent, Task
from openpai_tasks.server.state.state import State
from openpai_tasks.server.storages import Storage, code_link, user_mounts
from openpai_tasks.server.variables import for_job

log = logging.getLogger(__name__)

MOST_TASKS = 10_000  # of one job; a machine cannot run more processes


class Launcher:
    def __init__(
        self,
        state: State,
        progress: Progress,
        engine: Engine,
        inherited: Mapping[str, str],
        logins: SshLogins,
        storages: Mapping[str, Storage],
    ) -> None:
        self._state = state
        self._progress = progress
        self._engine = engine
        self._inherited = {} if engine.uses_images else inherited  # images have their own
        self._logins = logins
        self._storages = storages
        self._known: tuple[tuple[str, int, int], dict[str, str]] | None = None
        self._committed: list[tuple[str, list[Launch]]] = []  # jobs that are recorded, to be started

    def waiting_tasks(self, job: Job) -> list[Task]:
        """Return the tasks of the job's attempt that have yet to start; the first call creates them."""
        tasks = self._progress.waiting_tasks(job)
        if tasks is None:
            if job.tasks > MOST_TASKS:
                raise ConfigError(f"the job has {job.tasks} tasks, one machine can run {MOST_TASKS} at most")
            document = self._state.document(job.key)
            tasks = self._progress.new_tasks(job, document.roles)
            ports = self._engine.assign_ports({task.uid: self._role(task).ports for task in tasks})
            kept = 0 if document.policy.keep_failed else None
            tasks = [dataclasses.replace(task, ports=ports[task.uid], kept=kept) for task in tasks]
            if not document.gang:  # otherwise, all start now
                self._progress.save_tasks(job, tasks)
        return tasks

    def need(self, task: Task) -> ResourceAmount:
        return task_demand(self._role(task))

    def launch(self, job: Job, tasks: Iterable[Task]) -> None:
        """Record the tasks as running, or as waiting in the engine's queue, then start them."""
        wanted = list(tasks)
        gpus = self._engine.assign_gpus({task.uid: self._role(task).gpu for task in wanted})
        ready = [
            dataclasses.replace(task, gpus=gpus[task.uid], ip=self._engine.address(task)) for task in wanted
        ]
        try:
            launches = self._launches(job, ready, ready if len(ready) == job.tasks else None)
        except JOB_ERRORS:
            self._progress.save_tasks(job, wanted)
            raise
        record = self._progress.queue_in_engine if self._engine.schedules else self._progress.begin
        record(job, ready)
        for note in self._notes(self._state.document(job.key), any(launch.ssh for launch in launches)):
            self._state.add_event(job.key, note.type, note.reason, note.message, once=True)
        self._state.database.when_committed(lambda: self._committed.append((job.key, launches)))

    def start_committed(self) -> None:
        """Start the recorded jobs; an engine that schedules gets all at once, which it may combine.

        The next call starts a job for which there was no space or memory.
        """
        if self._engine.schedules:
            ready, self._committed = self._committed, []
            self._engine.start(*itertools.chain.from_iterable(launches for _, launches in ready))
        while self._committed:
            key, launches = self._committed[0]
            try:
                self._engine.start(*launches)
            except JOB_ERRORS as err:
                if shortages.find_shortage(err):
                    raise
                self._progress.refuse(key, describe(err))
            del self._committed[0]

    def recover(self, alive: Iterable[Task]) -> None:
        """Start the tasks that an earlier server has recorded; tasks that have begun do not start twice."""
        running = sorted((task for task in alive if task.state != states.STOPPING), key=lambda task: task.job)
        together: list[Launch] = []
        for key, tasks in itertools.groupby(running, key=lambda task: task.job):
            try:
                launches = self._launches(self._state.existing_job(key), list(tasks))
                if self._engine.schedules:
                    together += launches
                else:
                    self._engine.start(*launches)
            except JOB_ERRORS as err:
                if shortages.find_shortage(err):
                    raise
                log.exception("cannot resume job %s", key)
        if together:
            self._engine.start(*together)

    def _launches(self, job: Job, tasks: list[Task], peers: list[Task] | None = None) -> list[Launch]:
        """Return the launches of these tasks; ``peers`` are all tasks of the attempt, if they are known."""
        key, document = job.key, self._state.document(job.key)
        shared = self._shared_variables(job, peers)
        plans = _plans(document)
        policy, kept = document.policy, document.policy.keep_failed
        scripts = {
            name: plan.scripts(keep_failed(document.commands(name), policy)) for name, plan in plans.items()
        }
        mounts = {
            name: tuple(user_mounts(_storages(document, name), self._storages, job.user)) for name in plans
        }
        limits = {name: time_limit(document.entrypoint(name)) for name in plans}
        links = {name: code_link(document, name) for name in plans}
        requests = {name: plan.ssh for name, plan in plans.items()}
        logins = self._logins.for_tasks(job, requests, lambda: peers or self._state.tasks(key, job.attempt))
        return [
            Launch(
                uid=task.uid,
                user=job.user,
                folder=task.folder,
                scripts=scripts[task.role],
                environment={
                    **(shared if job.tasks == 1 else {}),
                    **environment.own_variables(task, self._engine.places_late),
                    **self._engine.variables(task),
                    **({"PAI_REQUEUES": str(job.requeues)} if document.policy.requeues else {}),
                },
                shared=shared if job.tasks > 1 else {},
                image=self._role(task).image,
                mounts=mounts[task.role],
                container=self._container(document, task),
                ssh=logins.get(task.uid),
                virtual_cluster=job.virtual_cluster,
                ports=self._role(task).ports,
                role=task.role,
                index=task.index,
                seconds=limit + kept if (limit := limits.get(task.role)) else 0,
                extras=document.extras,
                link=links[task.role],
            )
            for task in tasks
        ]

    def _container(self, document: JobDocument, task: Task) -> ContainerSpec:
        role = self._role(task)
        return ContainerSpec(
            cpu=role.cpu,
            memory_mb=role.memory_mb,
            is_memory_asked=role.is_memory_asked,
            gpu=role.sku_number or role.gpu,
            gpu_type=role.sku_type,
            shm_mb=role.shm_mb,
            gpus=task.gpus,
            login=registry_login(document, role.name) if self._engine.uses_images else None,
            labels={"openpai-tasks.job": task.job, "openpai-tasks.instance": f"{task.role}-{task.index}"},
        )

    def _shared_variables(self, job: Job, peers: list[Task] | None) -> dict[str, str]:
        """Return the variables of an attempt; the last ones are kept, as its tasks may start one by one."""
        which = (job.key, job.submitted, job.attempt)  # a name can be used again after a job was deleted
        if self._known is None or self._known[0] != which:
            document, tasks = self._state.document(job.key), peers or self._state.tasks(job.key, job.attempt)
            inherited = self._inherited and for_job(self._inherited, self._state.environment(job.key))
            self._known = which, environment.shared_variables(job.user, document, tasks, inherited)
        return self._known[1]

    def _notes(self, document: JobDocument, serves_ssh: bool) -> Iterator[NewEvent]:
        """Yield what the job's owner should know about its start."""
        engine, plans = self._engine, _plans(document)
        if not engine.uses_images:
            images = [role.image for role in document.roles]
            yield NewEvent("Normal", "ImageNotUsed", image_not_used(engine, images))
        elif not engine.schedules and any(role.infiniband for role in document.roles):
            message = "infiniband is ignored: containers on this machine have none"
            yield NewEvent("Warning", "InfinibandNotUsed", message)
        if unused := dict.fromkeys(note for plan in plans.values() for note in plan.notes):
            yield NewEvent("Warning", "PluginNotUsed", "; ".join(unused))
        policy = document.policy
        if policy.requeues and not all(time_limit(document.entrypoint(name)) for name in plans):
            message = "requeues: only the time limit of the cluster counts, as not all commands have one"
            yield NewEvent("Warning", "NoTimeLimit", message)
        if policy.idle_stop and not (engine.records_usage and any(role.gpu for role in document.roles)):
            why = (
                "the job has no GPUs" if engine.records_usage else f"the engine {engine.name} has no samples"
            )
            yield NewEvent("Warning", "NoIdleStop", f"the job is never stopped for idle GPUs: {why}")
        if document.policy.keep_failed and not any(plan.ssh for plan in plans.values()):
            message = "failed tasks are kept, but nobody can log in: the job was submitted without ssh"
            yield NewEvent("Warning", "NoSsh", message)
        for note in self._logins.notes({name: plan.ssh for name, plan in plans.items()}, serves_ssh):
            if not engine.serves_ssh_in_image or note.type != "Normal":  # else, the container reports it
                yield note

    def _role(self, task: Task) -> TaskRole:
        return next(role for role in self._state.document(task.job).roles if role.name == task.role)


def _storages(document: JobDocument, role: str) -> tuple[StorageMount, ...] | None:
    """Return the storages to mount; the default ones also for a code folder, which may be in one of them."""
    if document.storages is None and plugins.fetch_code(document, role):
        return ()
    return document.storages


def _plans(document: JobDocument) -> dict[str, plugins.PluginPlan]:
    """Return the plugins of each role."""
    return {role.name: plugins.plan(document, role.name) for role in document.roles}
