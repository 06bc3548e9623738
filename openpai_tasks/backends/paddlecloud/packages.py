"""A v2 job document as a PaddleCloud submission: what the cluster cannot do, and the scripts of the package.

The entry runs in the job's package, a folder that all trainers share. Its script sets the variables that
jobs of OpenPAI have, makes the user's storage appear as ``/mnt/pfs``, and runs the commands of the role in a
folder of the task.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from openpai_tasks.backends.paddlecloud.answers import PSERVER
from openpai_tasks.backends.paddlecloud.client import STORAGE, TrainingRequest
from openpai_tasks.errors import Unsupported
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, TaskRole, validate
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import role_key
from openpai_tasks.settings.config import Settings
from openpai_tasks.text.hints import option

FOLDER = ".pai-job"
"""The folder in the package with the scripts, one folder for each submission."""
PSERVER_SCRIPT = "pserver.sh"
LONGEST_NAME = 55  # with ``-trainer``, a label of Kubernetes
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
PLUGINS = "com.microsoft.pai.runtimeplugin"


@dataclass(frozen=True)
class PaddlePackage:
    """A job as it is submitted: the request, and the texts of files by their path in the package."""

    request: TrainingRequest
    files: Mapping[str, str]
    masked: str
    """The document, with its secrets masked."""


def trainer_role(document: JobDocument) -> TaskRole:
    return next(role for role in document.roles if role.name != PSERVER)


def pserver_role(document: JobDocument) -> TaskRole | None:
    return next((role for role in document.roles if role.name == PSERVER), None)


def check(text: str, where: str, namespace: str) -> JobDocument:
    """Return the document; raise with one line if a PaddleCloud cluster cannot run it."""
    document = validate(text)
    for refusal in _refusals(document, namespace):
        raise Unsupported(f"{where} {refusal}")
    return document


def package(document: JobDocument, user: str, mark: str) -> PaddlePackage:
    """Return the submission of a checked document; ``mark`` names the folder of its scripts."""
    trainer, pserver = trainer_role(document), pserver_role(document)
    folder = f"{FOLDER}/{mark}"
    files = {
        f"{folder}/start": _start(document, user, folder),
        f"{folder}/trainer": document.commands(trainer.name) + "\n",
    }
    if pserver:
        files[f"{folder}/{PSERVER}"] = document.commands(pserver.name) + "\n"
        files[PSERVER_SCRIPT] = 'exec sh -c "$ENTRY"\n'
    request = TrainingRequest(
        name=document.name,
        entry=f"sh {folder}/start",
        parallelism=trainer.instances,
        cpu=trainer.cpu,
        gpu=trainer.gpu,
        memory=f"{trainer.memory_mb}Mi",
        pservers=pserver.instances if pserver else 0,
        pscpu=pserver.cpu if pserver else 1,
        psmemory=f"{pserver.memory_mb}Mi" if pserver else "1Gi",
        image="" if trainer.image == Settings().image else trainer.image,  # the cluster has a default one
    )
    return PaddlePackage(request, files, document.masked())


def _refusals(document: JobDocument, namespace: str) -> Iterator[str]:
    """Yield what the cluster cannot do for the document, and advice."""
    if not NAME.fullmatch(document.name) or len(document.name) > LONGEST_NAME:
        yield (
            f"cannot run a job named {document.name!r}: use lower case letters, digits and '-'"
            f" (at most {LONGEST_NAME}, not '-' at an end)"
        )
    names = [role.name for role in document.roles]
    if len(names) > 2 or (len(names) == 2 and PSERVER not in names) or names == [PSERVER]:
        yield f"has trainers and parameter servers only: use one role, or one and another named {PSERVER!r}"
    if len({role.image for role in document.roles}) > 1:
        yield "runs all roles of a job in the same image: use one image"
    if document.virtual_cluster not in ("default", namespace):
        yield f"has no virtual cluster {document.virtual_cluster!r}: leave out {option('virtual_cluster')}"
    if document.retries or any(role.retries for role in document.roles):
        yield f"does not retry jobs: leave out {option('retries')}"
    if document.priority:
        yield "has no priorities: leave out the job's priority"
    others = [mount.name for mount in document.storages or () if mount.name != STORAGE]
    if others:
        yield f"mounts only the storage {STORAGE!r}, not {others[0]!r}: copy the data there"
    if document.extras.get(PLUGINS):
        yield "gives no ssh into containers: submit the job without it"
    if any(item.get("auth") for item in document.data.get("prerequisites", ())):
        yield "takes no credentials of registries from a document: use a public image"
    yield from _role_refusals(document)


def _role_refusals(document: JobDocument) -> Iterator[str]:
    for role in document.roles:
        if role.ports:
            yield f"reserves no ports (role {role.name!r}): let the program choose a free one"
        if role.shm_mb:
            yield f"cannot set the size of shared memory (role {role.name!r}): leave out {option('shm')}"
        if role.infiniband:
            yield f"has no InfiniBand option (role {role.name!r}): leave it out"
        if role.name == PSERVER:
            if role.gpu:
                yield "gives parameter servers no GPUs: ask for them for the trainers only"
        elif (role.min_failed, role.min_succeeded) != (1, role.instances):
            yield "ends a job when all trainers have succeeded or one has failed: leave out the completion"


def _start(document: JobDocument, user: str, folder: str) -> str:
    """Return the script of the entry."""
    trainer, pserver = trainer_role(document), pserver_role(document)
    key, tasks = job_key(user, document.name), sum(role.instances for role in document.roles)
    shared: dict[str, Any] = {
        "PAI_JOB_NAME": key,
        "PAI_FRAMEWORK_NAME": key,
        "PAI_USER_NAME": user,
        "PAI_USERNAME": user,
        "PAI_VIRTUAL_CLUSTER": document.virtual_cluster,
        "PAI_TASK_ROLE_COUNT": len(document.roles),
        "PAI_TASK_ROLE_LIST": ",".join(role.name for role in document.roles),
        "PAI_TASKS_NUM": tasks,
        "PAI_JOB_TASK_COUNT": tasks,
        **{f"PAI_TASK_ROLE_TASK_COUNT_{role.name}": role.instances for role in document.roles},
    }
    exports = [f"export {name}={shlex.quote(str(value))}" for name, value in shared.items() if _is_name(name)]
    return _START.format(
        exports="\n".join(exports),
        trainer=role_key(trainer.name),
        pserver=role_key(pserver.name) if pserver else PSERVER,
        suffix=shlex.quote(f"/home/{user}/jobs/{document.name}"),
        mount=shlex.quote(f"{MOUNTS}{STORAGE}"),
        folder=folder,
    )


def _is_name(name: str) -> bool:
    """Whether a shell can export the variable: roles may have other characters in their names."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


_START = """\
{exports}
case ${{TRAINING_ROLE:-TRAINER}} in
  PSERVER) pai_script=pserver pai_role={pserver} pai_index=${{PADDLE_INIT_PSERVER_ID:-0}} ;;
  *) pai_script=trainer pai_role={trainer} pai_index=${{PADDLE_INIT_TRAINER_ID:-0}} ;;
esac
pai_hosts=$(env | sed -n 's/^\\(PAI_HOST_IP_\\)trainer\\(_[0-9]*=[0-9a-fA-F.:]*\\)$/\\1{trainer}\\2/p')
[ -z "$pai_hosts" ] || export $pai_hosts
export PAI_CURRENT_TASK_ROLE_NAME="$pai_role" PAI_TASK_INDEX="$pai_index"
export PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX="$pai_index"
pai_fail() {{ echo "error: $1" >&2; exit 1; }}
if [ -z "${{PAI_WORK_DIR-}}" ] || [ ! -d "$PAI_WORK_DIR" ]; then
  PAI_WORK_DIR=$(mktemp -d) || pai_fail "cannot create a folder for the task"
fi
if [ -z "${{PAI_MOUNT_ROOT-}}" ] || [ ! -d "$PAI_MOUNT_ROOT" ]; then
  PAI_MOUNT_ROOT=$(mktemp -d) || pai_fail "cannot create a folder for the storage"
fi
export PAI_WORK_DIR PAI_MOUNT_ROOT
pai_mount=$PAI_MOUNT_ROOT{mount}
mkdir -p "${{pai_mount%/*}}" && ln -sfn "${{TRAINER_PACKAGE%{suffix}}}" "$pai_mount" ||
  pai_fail "cannot link the storage to $pai_mount"
cd "$PAI_WORK_DIR" || pai_fail "cannot change to $PAI_WORK_DIR"
exec "$(command -v bash || echo sh)" "$TRAINER_PACKAGE/{folder}/$pai_script"
"""
