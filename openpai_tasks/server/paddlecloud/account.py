"""A user: the token, which is valid until the password changes, and the quota.

The quota limits the number of pods and the resources of all unfinished jobs together. A job that is larger
than this machine may be submitted, as it runs alone: the quota is at least that of a small cluster. GPUs are
those of the machine.
"""

from __future__ import annotations

from starlette.responses import PlainTextResponse

from openpai_tasks.errors import ApiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud.records import PaddleRecords
from openpai_tasks.server.paddlecloud.submission import PaddleSubmission

WRONG_PASSWORD = "Unable to log in with provided credentials."

PODS, LEAST_CPU, LEAST_MEMORY_MB = 20, 20, 100 * 1024
GPU = "alpha.kubernetes.io/nvidia-gpu"


def health(context: Context, request: Request) -> Reply:
    return PlainTextResponse("OK")


def get_token(context: Context, request: Request) -> Reply:
    """Return the caller's token for a user name and a password, in JSON or a form."""
    given = request.body if isinstance(request.body, dict) else {}
    values = {name: _text(given.get(name)) for name in ("username", "password")}
    missing = {name: ["This field is required."] for name, value in values.items() if not value}
    if missing:
        return 400, missing
    if not context.check_password(request.process, values["username"], values["password"]):
        return 400, {"non_field_errors": [WRONG_PASSWORD]}
    return 200, {"token": PaddleRecords(context.state.database).token(values["username"])}


def get_user(context: Context, request: Request) -> Reply:
    return 200, {"user": request.caller.user}


def _text(value: object) -> str:
    """Return a text or, like YAML's readers of a password of digits, a number as text."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


@dataclass(frozen=True)
class PodAmount:
    pods: int
    cpu: int
    memory_mb: int
    gpu: int

    def as_kubernetes(self) -> dict[str, str]:
        """Return the amounts as Kubernetes names and writes them."""
        memory = f"{self.memory_mb // 1024}Gi" if self.memory_mb % 1024 == 0 else f"{self.memory_mb}Mi"
        if not self.memory_mb:
            memory = "0"
        cpu = str(self.cpu)
        return {
            "pods": str(self.pods),
            "requests.cpu": cpu,
            "requests.memory": memory,
            "limits.cpu": cpu,
            "limits.memory": memory,
            GPU: str(self.gpu),
        }


def get_quota(context: Context, request: Request) -> Reply:
    hard, used = _limit(context), _usage(context, request.caller.user)
    status = {"hard": hard.as_kubernetes(), "used": used.as_kubernetes()}
    return 200, {"items": [{"metadata": {"name": "quota"}, "status": status}]}


def _limit(context: Context) -> PodAmount:
    total = context.engine.capacity().total
    return PodAmount(PODS, max(LEAST_CPU, total.cpu), max(LEAST_MEMORY_MB, total.memory_mb), total.gpu)


def _usage(context: Context, user: str) -> PodAmount:
    pods, used = PaddleRecords(context.state.database).usage(user)
    return PodAmount(pods, used.cpu, used.memory_mb, used.gpu)


def check_quota(context: Context, user: str, wanted: PaddleSubmission) -> None:
    """Raise if the submission exceeds the rest of the quota."""
    request = PodAmount(
        wanted.trainers + wanted.pservers,
        wanted.trainers * wanted.cpu + wanted.pservers * wanted.pserver_cpu,
        wanted.trainers * wanted.memory_mb + wanted.pservers * wanted.pserver_memory_mb,
        wanted.trainers * wanted.gpu,
    )
    hard, used = _limit(context), _usage(context, user)
    amounts = {"pods": "pods", "cpu": "CPU", "memory_mb": "memory", "gpu": "GPU"}
    for field, name in amounts.items():
        if getattr(request, field) and getattr(used, field) + getattr(request, field) > getattr(hard, field):
            raise ApiError(f"exceeds the quota of {name}: {_numbers(field, request, used, hard)}", 403)


def _numbers(field: str, request: PodAmount, used: PodAmount, hard: PodAmount) -> str:
    unit = "Mi" if field == "memory_mb" else ""
    words = {"request": request, "usage": used, "limit": hard}
    return ", ".join(f"{name}: {getattr(amount, field)}{unit}" for name, amount in words.items())
