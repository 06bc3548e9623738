"""A user: the token, which is valid until the password changes, and the quota.

The quota limits the number of pods and the resources of all unfinished jobs together. A job that is larger
than this machine may be submitted, as it runs alone: the quota is at least that of a small cluster. GPUs are
those of the machine; on a machine without GPUs, jobs that ask for them run without.
"""

from __future__ import annotations

from starlette.responses import PlainTextResponse

from openpai_tasks.errors import ApiError
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.paddlecloud.records import PaddleRecords
from openpai_tasks.server.paddlecloud.submission import PaddleSubmission, memory_text

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


Amounts = dict[str, int]
"""A number of pods, and the CPUs, megabytes and GPUs of all of them."""


def get_quota(context: Context, request: Request) -> Reply:
    hard, used = _limit(context), _usage(context, request.caller.user)
    status = {"hard": _as_kubernetes(hard), "used": _as_kubernetes(used)}
    return 200, {"items": [{"metadata": {"name": "quota"}, "status": status}]}


def _as_kubernetes(amounts: Amounts) -> dict[str, str]:
    """Return the amounts as Kubernetes names and writes them."""
    cpu, memory = str(amounts["CPU"]), memory_text(amounts["memory"])
    return {
        "pods": str(amounts["pods"]),
        "requests.cpu": cpu,
        "requests.memory": memory,
        "limits.cpu": cpu,
        "limits.memory": memory,
        GPU: str(amounts["GPU"]),
    }


def _limit(context: Context) -> Amounts:
    total = context.engine.capacity().total
    cpu, memory = max(LEAST_CPU, total.cpu), max(LEAST_MEMORY_MB, total.memory_mb)
    return {"pods": PODS, "CPU": cpu, "memory": memory, "GPU": total.gpu}


def _usage(context: Context, user: str) -> Amounts:
    pods, used = PaddleRecords(context.state.database).usage(user)
    return {"pods": pods, "CPU": used.cpu, "memory": used.memory_mb, "GPU": used.gpu}


def check_quota(context: Context, user: str, wanted: PaddleSubmission) -> None:
    """Raise if the submission exceeds the rest of the quota."""
    request: Amounts = {
        "pods": wanted.trainers + wanted.pservers,
        "CPU": wanted.trainers * wanted.cpu + wanted.pservers * wanted.pserver_cpu,
        "memory": wanted.trainers * wanted.memory_mb + wanted.pservers * wanted.pserver_memory_mb,
        "GPU": wanted.trainers * wanted.gpu,
    }
    hard, used = _limit(context), _usage(context, user)
    for name, asked in request.items():
        if asked and used[name] + asked > hard[name] and (hard[name] or name != "GPU"):
            unit = "Mi" if name == "memory" else ""
            numbers = f"request: {asked}{unit}, usage: {used[name]}{unit}, limit: {hard[name]}{unit}"
            raise ApiError(f"exceeds the quota of {name}: {numbers}", 403)
