"""Which tasks get an SSH service, and which keys may log in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import states
from openpai_tasks.server.ssh import FOLDER, NOT_SERVED, SERVED, Peer, Service, SshLogin, services
from openpai_tasks.server.ssh.plugin import SshRequest
from openpai_tasks.server.ssh.services import AUTO
from openpai_tasks.server.state.records import Job, NewEvent, Task
from openpai_tasks.server.state.state import folder_name
from openpai_tasks.settings.key_pairs import load_or_create_pair

HOST_KEY, JOB_KEY = "host", "job"  # the names of key pairs
Requests = Mapping[str, SshRequest | None]  # by role


def key_folder(jobs: Path, key: str) -> Path:
    """Return the folder of a job's keys, which all its attempts share."""
    return jobs / folder_name(key) / FOLDER


class SshLogins:
    """Decides the SSH services of jobs; ``always`` gives every job one and its own key, like OpenPAI 0.14."""

    def __init__(
        self,
        jobs: Path,
        wanted: str = AUTO,
        always: bool = False,
        keys_of: Callable[[str], Iterable[str]] = lambda user: (),
    ) -> None:
        self._jobs = jobs
        self._always = always
        self._keys_of = keys_of
        self.service: Service | None = None
        self.reason = ""  # why there is none
        try:
            self.service = services.choose(wanted)
        except ConfigError as err:
            self.reason = str(err)

    def for_tasks(
        self, job: Job, requests: Requests, tasks: Callable[[], Iterable[Task]]
    ) -> dict[str, SshLogin]:
        """Return the service of each task that has one, by uid.

        ``tasks`` returns all tasks of the attempt.
        """
        found = {role: self._effective(request) for role, request in requests.items()}
        served = {role: request for role, request in found.items() if request is not None}
        if self.service is None or not served:
            return {}
        folder, own = key_folder(self._jobs, job.key), tuple(self._keys_of(job.user))
        host_key = load_or_create_pair(folder, HOST_KEY, job.key)
        shared = any(request.job_key for request in served.values())
        job_key = load_or_create_pair(folder, JOB_KEY, job.key) if shared else None
        open_tasks = [task for task in tasks() if task.role in served]
        peers = tuple(_peer(task) for task in open_tasks if served[task.role].job_key)
        logins = {}
        for task in open_tasks:
            pair = job_key if served[task.role].job_key else None
            known = [*served[task.role].keys, *own, *([pair.public] if pair else [])]
            if known:
                place = (self.service, _port(task), host_key, tuple(dict.fromkeys(known)))
                logins[task.uid] = SshLogin(*place, pair, peers if pair else ())
        return logins

    def notes(self, requests: Requests, served: bool) -> list[NewEvent]:
        """Return events about a job's SSH service, or about why it has none."""
        if not any(self._effective(request) for request in requests.values()):
            return []
        if self.service is None:
            return [NewEvent("Warning", NOT_SERVED, f"there is no ssh service: {self.reason}")]
        if not served:
            return [NewEvent("Warning", NOT_SERVED, "there is no ssh service: no public key is given")]
        name, user = self.service.name, self.service.user
        return [NewEvent("Normal", SERVED, f"{name} serves ssh: log in as {user} at the ssh port of a task")]

    def _effective(self, request: SshRequest | None) -> SshRequest | None:
        if not self._always:
            return request
        return SshRequest(request.keys if request else (), job_key=True, must=bool(request and request.must))


def _peer(task: Task) -> Peer:
    name, port = f"{states.role_key(task.role)}-{task.index}", _port(task)
    return Peer(name, str(port), task.ip) if port else Peer.placed_later(name)


def _port(task: Task) -> int:
    """Return the port of the task's service; 0 if it is chosen where the task starts."""
    return task.ports["ssh"][0] if task.ports.get("ssh") else 0
