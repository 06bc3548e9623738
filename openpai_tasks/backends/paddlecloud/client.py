"""The client of PaddleCloud's REST API: one typed method per call, no policy."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from openpai_tasks.backends.http import bodies
from openpai_tasks.backends.http.connection import ServerConnection
from openpai_tasks.backends.http.errors import KINDS, one_line, parse_object
from openpai_tasks.backends.paddlecloud import answers
from openpai_tasks.backends.paddlecloud.answers import PaddlePod, PserverSet, Quota, TrainerSet
from openpai_tasks.backends.paddlecloud.config_file import datacenter_of
from openpai_tasks.errors import ApiError, Denied, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.protocol.fields import text, texts, whole
from openpai_tasks.protocol.models import notices_from_body
from openpai_tasks.text.hints import command

STORAGE = "pfs"
"""The name of the only storage of a datacenter."""
LOGIN = "/api-token-auth/"
JOBS = "/api/v1/jobs/"
PSERVERS = "/api/v1/pservers/"
WORKERS = "/api/v1/workers/"
LOGS = "/api/v1/logs/"
QUOTA = "/api/v1/quota/"
FILE = "/api/v1/file/"
FILE_LIST = "/api/v1/filelist/"
PFS_FILES = "/api/v1/pfs/files"
USER = "/api/v1/token2user/"
UNCOMPRESSED = {"Accept-Encoding": "identity"}
GOOD = ("", "OK")
"""Messages of success: of the shipped server, and of the design document."""
STATUSES = {
    404: r"not exists?\b|not found|no such|\b404\b",
    409: r"already exists?\b|\bconflict|terminating|\b409\b",
}
"""Messages by what they mean: the server answers 200 to almost everything, often without a code."""


@dataclass(frozen=True)
class TrainingRequest:
    """A job as it is submitted; its package is a folder on the datacenter's storage."""

    name: str
    entry: str = ""
    topology: str = ""
    parallelism: int = 1
    cpu: int = 1
    gpu: int = 0
    memory: str = "1Gi"
    pservers: int = 0
    pscpu: int = 1
    psmemory: str = "1Gi"
    passes: int = 1
    image: str = ""
    registry: str = ""
    fault_tolerant: bool = False
    min_instance: int = 1
    max_instance: int = 1
    folder: str = ""  # the name of the package on this machine

    def package(self, home: str) -> str:
        """Return the folder that the package is uploaded to, below the user's home on PFS."""
        return f"{home}/jobs/{self.name}"

    def body(self, datacenter: str, home: str) -> dict[str, Any]:
        """Return the fields of the shipped client and of the design document.

        The shipped server reads other names for three of those that its client sends.
        """
        others = ("fault_tolerant", "folder")
        return {
            **{name: value for name, value in vars(self).items() if name not in others},
            "faulttolerant": self.fault_tolerant,
            "minInstance": self.min_instance,
            "maxInstance": self.max_instance,
            "jobPackage": self.folder,
            "job_package": self.package(home),
            "datacenter": datacenter,
        }


class PaddleClient(ServerConnection):
    """A connection to a PaddleCloud datacenter as one user."""

    label = "PaddleCloud"
    scheme = "Token"
    health = "/healthz/"

    @property
    def datacenter(self) -> str:
        """The name of the datacenter in paths: ``/pfs/NAME/home/USER``."""
        return datacenter_of(self.cluster)

    @property
    def home(self) -> str:
        """The user's folder on the datacenter's storage."""
        return f"/pfs/{self.datacenter}/home/{self.user}"

    def _base(self) -> str:
        if not self.cluster.generation and self._learn:
            self.cluster = self._learn(self.cluster)
        return self.cluster.rest

    @property
    def _is_certificate_enough(self) -> bool:
        """Whether the user has no password or token, so that only the certificate identifies them."""
        return self.cluster.certificate is not None and not (self._credentials.password or self._logins.token)

    def token(self) -> str:
        """Return the token for requests; "" if the certificate identifies the user."""
        return "" if self._is_certificate_enough else super().token()

    def renew(self, refused: str = "", pause: float | None = None) -> str:
        return "" if self._is_certificate_enough else super().renew(refused, pause)

    def _authorised(self, send: Callable[..., HttpAnswer], headers: dict[str, str]) -> HttpAnswer:
        if not self._is_certificate_enough:
            return super()._authorised(send, headers)
        response = send(headers=headers)
        if response.status_code == 401:
            again = command("cluster.update", self.cluster.alias, "--login")
            hint = f"give a password, too: `{again}` asks for it, or `password` in ~/.paddle/config"
            raise Denied(f"{self._where()} does not accept the certificate alone; {hint}", 401)
        return response

    def _unreachable(self, err: Exception) -> Unreachable:
        if "CERTIFICATE_REQUIRED" in (getattr(err, "reason", None) or ""):
            hint = "name yours in ~/.paddle/config, as usercert and userkey"
            return Unreachable(f"{self._where()} demands a client certificate; {hint}")
        return super()._unreachable(err)

    def token_user(self) -> str:
        """Return the user that the token belongs to."""
        return text(self._object("GET", USER).get("user"))

    # Jobs

    def submit_training(self, request: TrainingRequest) -> tuple[str, ...]:
        """Submit a job; return what will not be as it asks for, one line each."""
        return notices_from_body(self._checked("POST", JOBS, json=request.body(self.datacenter, self.home)))

    def kill(self, name: str) -> None:
        self._checked("DELETE", JOBS, json={"jobname": name})

    def trainer_sets(self) -> tuple[TrainerSet, ...]:
        return tuple(answers.trainer_sets(self._list(JOBS)))

    def pserver_sets(self) -> tuple[PserverSet, ...]:
        return tuple(answers.pserver_sets(self._list(PSERVERS)))

    def workers(self, job: str = "", role: str | None = None) -> tuple[PaddlePod, ...]:
        """Return the trainers' pods of a job, or of all jobs; newer servers also know the role ``all``."""
        return tuple(answers.pods(self._list(WORKERS, jobname=job or None, role=role)))

    def logs(self, job: str, lines: int = 10, pod: str = "") -> str:
        """Return the last lines of each trainer below a line with its pod's name, or those of one pod."""
        query = {"jobname": job, "n": lines, "w": pod}
        return text(self._checked("GET", LOGS, query=query, limit=bodies.LOG_PAGE, is_text=True).get("msg"))

    def quotas(self) -> tuple[Quota, ...]:
        return tuple(answers.quotas(self._list(QUOTA)))

    # Files

    def upload(self, path: str, content: bytes) -> None:
        """Write a file at a path such as ``/pfs/dc1/home/USER/x``; missing folders are created."""
        boundary = secrets.token_hex(16)
        name = re.sub(r'[\r\n"\\]', "_", path.rpartition("/")[2])
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        data = b"".join((head.encode("utf-8", "replace"), content, f"\r\n--{boundary}--\r\n".encode()))
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        self._checked("POST", FILE, query={"path": path}, data=data, headers=headers)

    def download(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        with self._call("GET", FILE, query={"path": path}, stream=True, headers=UNCOMPRESSED) as answer:
            is_json = answer.headers.get("content-type", "").lower().startswith("application/json")
            if is_json and "content-disposition" not in answer.headers:
                raise self._answer_error(FILE, parse_object(b"".join(self._pieces(answer))))
            yield from self._pieces(answer)

    def files(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder."""
        query = {"path": path, "dc": self.datacenter}
        body = self._checked("GET", FILE_LIST, query=query, limit=bodies.JOB_LIST)
        return tuple(filter(None, texts(body.get("items"))))

    def remove_files(self, *paths: str) -> None:
        """Remove files; missing ones are fine."""
        body = {"method": "rm", "r": False, "path": list(paths)}
        answer = self._object("DELETE", PFS_FILES, json=body)
        if text(answer.get("err")):
            raise self._answer_error(PFS_FILES, answer)

    # Answers

    def _log_in(self, user: str, password: str) -> dict[str, Any]:
        return self._object("POST", LOGIN, auth=False, json={"username": user, "password": password})

    def _list(self, path: str, **query: str | None) -> dict[str, Any]:
        body = self._object("GET", path, query=query, limit=bodies.JOB_LIST)
        if "items" not in body and not isinstance(body.get("msg"), list):
            raise self._answer_error(path, body)
        return body

    def _checked(self, method: str, path: str, is_text: bool = False, **options: Any) -> dict[str, Any]:
        """Call the API and raise if the answer reports an error, which has the status 200 too."""
        body = self._object(method, path, **options)
        is_good = whole(body.get("code", 200)) == 200
        if is_good and (is_text or text(body.get("msg")) in GOOD):
            return body
        raise self._answer_error(path, body)

    def _answer_error(self, path: str, body: dict[str, Any]) -> ApiError:
        """Return the error for an answer that reports one."""
        message = one_line(next((text(body[key]) for key in ("msg", "detail", "err") if body.get(key)), ""))
        if not message:
            return ApiError(f"{self._where()} does not answer {path} as expected: {self._doubt}")
        code = whole(body.get("code"))
        meant = (code for code, words in STATUSES.items() if re.search(words, message, re.IGNORECASE))
        status = code if code in KINDS else next(meant, code if code and code != 200 else 400)
        return KINDS.get(status, ApiError)(f"{self._where()} answered: {message}", status)
