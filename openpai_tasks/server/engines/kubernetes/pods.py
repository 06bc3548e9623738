"""The pod of a task, and the secret with its scripts: pure data."""

from __future__ import annotations

import base64
import io
import itertools
import posixpath
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from openpai_tasks.files.regular import is_regular
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.policy import priority_word, read_priority
from openpai_tasks.protocol.fields import text
from openpai_tasks.protocol.states import role_key
from openpai_tasks.server.engines.base import Launch, Ports
from openpai_tasks.server.engines.container_files import check_image, exports, registry_config
from openpai_tasks.server.engines.container_program import (
    BASE,
    DEFAULT_SHM_MB,
    RUNTIME,
    WORK,
    storage_target,
)
from openpai_tasks.server.engines.kubernetes import pod_usage
from openpai_tasks.server.engines.kubernetes.site import KubeSite
from openpai_tasks.server.engines.ports import counts
from openpai_tasks.server.engines.process import local_folder
from openpai_tasks.server.engines.runner.peers import Place, for_itself, for_peers
from openpai_tasks.server.ssh.in_container import ENVIRONMENT as LOGIN_VARIABLES
from openpai_tasks.server.ssh.in_container import session_script

TASK, FILES = "task", "files"
"""The container of the task, and the one that passes files in and out."""
IO, SESSION = f"{BASE}/io", f"{RUNTIME}/session"
HOME, UID, JOB, PLACE, FOLDER, OWNER = (
    f"openpai-tasks/{name}" for name in ("home", "task", "job", "instance", "folder", "owner")
)
"""Labels of our objects, and annotations of pods."""
SMALL = 700_000  # bytes of files that fit into a secret, whose limit is 1 MiB in base64
ADDRESS = "<address>"  # which no shell takes without quotes
FIRST_PORT = 20_000  # each pod has its own address, so ports need not differ
TIME_MARGIN = 300  # seconds that Kubernetes adds to a task's own time limit
NODE_SECONDS = 300  # after which Kubernetes gives up the pods of a node that does not answer

_ENTRY = f"""\
exec 3>&2 2>/dev/null
trap : TERM
. {RUNTIME}/environment
# Files and addresses of peers are put here by the server.
until [ -e {RUNTIME}/ready ] || [ -e {IO}/ready ]; do sleep 0.2; done
[ ! -e {RUNTIME}/address ] || . {RUNTIME}/address
[ ! -e {IO}/peers ] || . {IO}/peers
cd {WORK}
[ ! -e {RUNTIME}/ssh ] || (umask 077; mkdir -p /root/.ssh && : >>{LOGIN_VARIABLES})
if [ -e {RUNTIME}/files ]; then tar -xf {RUNTIME}/files -C / || exit 1; fi
/bin/sh {RUNTIME}/usage "$@" >&3 3>&- &
if command -v bash >/dev/null; then set -- bash -eu -o pipefail; else set -- /bin/sh -eu; fi
(exec 2>&3 3>&-; exec "$@" {RUNTIME}/command)
code=$?
own=
[ ! -e /sys/fs/cgroup/cgroup.events ] || own='memory.peak cpu.stat'
if read -r limit </sys/fs/cgroup/memory/memory.limit_in_bytes && [ ${{#limit}} -lt 19 ]; then
  own='memory/memory.max_usage_in_bytes cpuacct/cpuacct.usage'
fi
for file in $own; do
  if read -r used </sys/fs/cgroup/$file; then echo "$file $used" >>/dev/termination-log; fi
done
: >{IO}/end
exit $code
"""
# Arguments: the number of the session (see serve_ssh.py), the client, the connection, the type of
# the terminal or -, and the command if there is one.
_SESSION = f"""\
. {RUNTIME}/environment
[ ! -e {RUNTIME}/address ] || . {RUNTIME}/address
[ ! -e {IO}/peers ] || . {IO}/peers
export SSH_CLIENT="$2" SSH_CONNECTION="$3"
[ "$4" = - ] || export TERM="$4" SSH_TTY="$(tty)"
[ $# -lt 5 ] || SSH_ORIGINAL_COMMAND=$5
"""
_KEEPER = f"""\
trap : TERM
tail -n +1 -F "$1/$2" 2>/dev/null &
until [ -e {IO}/end ] || [ -e {IO}/fetched ]; do sleep 0.3; done
kill $! 2>/dev/null
cd "$1" 2>/dev/null || exit 0
[ -n "$(find . -type f -o -type l | head -n 1)" ] || exit 0
until [ -e {IO}/fetched ]; do sleep 0.3; done
"""
"""What the second container does: show the metrics as they grow, and wait until all outputs are fetched."""


def pod_name(uid: str, generation: int = 0) -> str:
    """Return the name of a task's pod; that of a gang that was withdrawn has a new one each time."""
    return f"pai-{uid}-{generation}" if generation else f"pai-{uid}"


def is_gang(launch: Launch) -> bool:
    """Whether a task starts together with all others of its job."""
    return bool(launch.shared) and launch.extras.get("gangAllocation") is not False


class PodOwner(NamedTuple):
    """The home whose pods these are, and where its folder is."""

    id: str
    place: str  # HOST:FOLDER


class GangMarks(NamedTuple):
    """What tells a gang scheduler which pods start together."""

    scheduler: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def gang_marks(scheduler: str, group: str, count: int) -> GangMarks:
    """Return the marks of a pod for the gang scheduler of a site, as its documentation has them."""
    kind, _, value = scheduler.partition(":")
    if kind == "kueue":
        queue = {"kueue.x-k8s.io/queue-name": value}
        if count == 1:
            return GangMarks("", queue)
        return GangMarks(
            "",
            {**queue, "kueue.x-k8s.io/pod-group-name": group},
            {"kueue.x-k8s.io/pod-group-total-count": str(count)},
        )
    if kind == "volcano":
        marks = {"scheduling.k8s.io/group-name": group} if count > 1 else {}
        return GangMarks("volcano", {}, marks)
    if kind == "coscheduling" and count > 1:
        return GangMarks(value, {"scheduling.x-k8s.io/pod-group": group})
    return GangMarks(value if kind == "coscheduling" else "")


GROUP_APIS = {"volcano": "scheduling.volcano.sh/v1beta1", "coscheduling": "scheduling.x-k8s.io/v1alpha1"}
"""The API of the object that describes a group, by gang scheduler."""


def build_group(scheduler: str, group: str, count: int, pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object that describes a group, which goes with its first pod; None if none is needed."""
    api = GROUP_APIS.get(scheduler.partition(":")[0])
    if api is None or count == 1:
        return None
    about = {
        "name": group,
        "labels": {HOME: pod["metadata"]["labels"][HOME]},
        "ownerReferences": [_owner(pod)],
    }
    return {"apiVersion": api, "kind": "PodGroup", "metadata": about, "spec": {"minMember": count}}


def _owner(pod: Mapping[str, Any]) -> dict[str, str]:
    about = pod["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}


@dataclass(frozen=True)
class FilePlan:
    """The files that a task needs from storages that Kubernetes does not have, and where it leaves others."""

    inputs: Mapping[str, Path] = field(default_factory=dict)  # by their path in the pod
    output: str = ""  # the folder in the pod; empty if there is none
    target: Path | None = None  # the folder on this machine
    metrics: str = ""  # the file below that folder to which the task appends metrics

    @property
    def is_small(self) -> bool:
        """Whether the inputs fit into the secret."""
        return sum(path.stat().st_size for path in self.inputs.values()) <= SMALL


def plan_files(launch: Launch, site: KubeSite) -> FilePlan:
    """Return the files of a job that was submitted by us; other jobs say nothing about theirs."""
    stamp = launch.extras.get("openpaiTasks")
    stamp = stamp if isinstance(stamp, dict) else {}
    mount = next((one for one in launch.mounts if one.name == stamp.get("storage")), None)
    workspace, archive = text(stamp.get("workspace")), text(stamp.get("sourceArchive"))
    if mount is None or mount.name in site.volumes or "\0" in workspace + archive:
        return FilePlan()
    root, here = storage_target(mount.path), local_folder(mount)
    job = launch.environment.get("PAI_JOB_NAME", launch.shared.get("PAI_JOB_NAME", "")).partition("~")[2]
    output = posixpath.normpath(f"/{workspace}/jobs/{job}/output").lstrip("/")  # never above the storage
    names = [archive]
    if (here / output).is_dir():  # of an earlier attempt, with its checkpoints
        names += [str(path.relative_to(here)) for path in (here / output).rglob("*") if is_regular(path)]
    inputs = {f"{root}/{name}": here / name for name in names if name and _is_below(here, name)}
    attempt = {**launch.shared, **launch.environment}.get("FC_FRAMEWORK_ATTEMPT_ID", "0")
    metrics = f".pai/metrics/{launch.role}-{launch.index}-{attempt}.jsonl"  # as in runtime.py
    return FilePlan(inputs, f"{root}/{output}", here / output, metrics)


def _is_below(folder: Path, name: str) -> bool:
    path = (folder / name).resolve()
    return path.is_file() and path.is_relative_to(folder.resolve())


def build_pod(
    launch: Launch, home: PodOwner, site: KubeSite, files: FilePlan, name: str, gang: GangMarks
) -> dict[str, Any]:
    """Return the pod; what may be secret is in the secret, which it mounts."""
    volumes, mounts = _volumes(launch, site, name)
    task = {
        "name": TASK,
        "image": check_image(launch.image),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", f"{RUNTIME}/entry"],
        "args": [
            str(pod_usage.ROW_SECONDS),
            pod_usage.GROUPS,
            f"{IO}/gpus" if launch.container.gpu else "",
        ],  # of ``usage``
        "env": [{"name": "PAI_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": _resources(launch, site),
        "volumeMounts": mounts,
    }
    keeper = {
        **{name: task[name] for name in ("image", "imagePullPolicy", "volumeMounts")},
        "name": FILES,
        "command": ["/bin/sh", "-c", _KEEPER, "sh", files.output, files.metrics],
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "0", "memory": "16Mi"}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [task, *([keeper] if files.output else [])],
        "volumes": volumes,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {**site.node_selector, **_gpu_type(launch, site)},
        "tolerations": [*(dict(one) for one in site.tolerations), *_while_node_is_away()],
        "imagePullSecrets": [{"name": one} for one in _pull_secrets(launch, site, name)],
        "schedulerName": gang.scheduler,
        "serviceAccountName": site.service_account,
        "priorityClassName": site.priority_classes.get(
            priority_word(read_priority(launch.extras)), site.priority_class
        ),
        "activeDeadlineSeconds": launch.seconds + TIME_MARGIN if launch.seconds else None,
    }
    about = {
        JOB: launch.container.labels.get("openpai-tasks.job", ""),
        PLACE: f"{launch.role}-{launch.index}",
        FOLDER: str(launch.folder.absolute()),
        OWNER: home.place,
        **gang.annotations,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {HOME: home.id, UID: launch.uid, **gang.labels},
            "annotations": about,
        },
        "spec": {name: value for name, value in spec.items() if value not in (None, "", {}, [])},
    }


def _gpu_type(launch: Launch, site: KubeSite) -> dict[str, str]:
    return {site.gpu_type_label: launch.container.gpu_type} if launch.container.gpu_type else {}


def _while_node_is_away() -> list[dict[str, Any]]:
    """Return how long a pod stays on a node that does not answer."""
    common = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_SECONDS}
    return [{"key": f"node.kubernetes.io/{key}", **common} for key in ("not-ready", "unreachable")]


def _pull_secrets(launch: Launch, site: KubeSite, name: str) -> tuple[str, ...]:
    own = (f"{name}-registry",) if launch.container.login else ()
    return (*own, *site.pull_secrets)


def _resources(launch: Launch, site: KubeSite) -> dict[str, Any]:
    wanted = launch.container
    amounts = {"cpu": wanted.cpu, site.gpu_resource: wanted.gpu}
    limits = {name: str(count) for name, count in amounts.items() if count}
    limits |= {"memory": f"{wanted.memory_mb}Mi"} if wanted.memory_mb else {}
    return {"limits": limits, "requests": limits}


def _volumes(launch: Launch, site: KubeSite, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes of a pod, and where its containers mount them."""
    shm = launch.container.shm_mb or DEFAULT_SHM_MB
    volumes: dict[str, dict[str, Any]] = {
        "runtime": {"secret": {"secretName": name}},
        "io": {"emptyDir": {}},
        "work": {"emptyDir": {}},
        "shm": {"emptyDir": {"medium": "Memory", "sizeLimit": f"{shm}Mi"}},
    }
    mounts: list[dict[str, Any]] = [
        {"name": "runtime", "mountPath": RUNTIME, "readOnly": True},
        {"name": "io", "mountPath": IO},
        {"name": "work", "mountPath": WORK},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in the pod
    ]
    for number, mount in enumerate(launch.mounts):
        volume = f"storage-{number}"
        volumes[volume] = dict(site.volumes.get(mount.name, {"emptyDir": {}}))
        part = {"subPath": launch.user} if mount.is_private and mount.name in site.volumes else {}
        mounts.append({"name": volume, "mountPath": storage_target(mount.path), **part})
    return [{"name": name, **volume} for name, volume in volumes.items()], mounts


def build_secrets(
    launch: Launch, pod: Mapping[str, Any], files: FilePlan, is_alone: bool
) -> list[dict[str, Any]]:
    """Return the secrets of a created pod, which Kubernetes removes with it.

    A task that has no peers, and all its files here, starts without the server.
    """
    scripts = {
        **launch.scripts,
        "entry": _ENTRY,
        "usage": pod_usage.SCRIPT,
        "environment": exports({**launch.shared, **launch.environment}),
    }
    if launch.ssh:
        scripts |= {"session": session_script(_SESSION, WORK), "ssh": ""}  # ``ssh``: see ssh/plugin.py
    if is_alone:
        scripts["address"] = address_script([place_of(launch, ADDRESS)], launch, knows_all=not launch.shared)
    content = {name: text.encode("utf-8", "surrogateescape") for name, text in scripts.items()}
    if files.inputs and files.is_small:
        content["files"] = _tar(files.inputs)
    if is_alone and files.is_small:
        content["ready"] = b""
    found = [_secret(pod, "", "Opaque", content)]
    if login := launch.container.login:
        config = {".dockerconfigjson": registry_config(login).encode()}
        found.append(_secret(pod, "-registry", "kubernetes.io/dockerconfigjson", config))
    return found


def _secret(pod: Mapping[str, Any], suffix: str, type: str, content: Mapping[str, bytes]) -> dict[str, Any]:
    about = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": about["name"] + suffix,
            "labels": about["labels"],
            "ownerReferences": [_owner(pod)],
        },
        "type": type,
        "data": {name: base64.b64encode(data).decode() for name, data in content.items()},
    }


def _tar(files: Mapping[str, Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in files.items():
            archive.add(path, name.lstrip("/"), recursive=False)
    return packed.getvalue()


def choose_ports(wanted: Mapping[str, int]) -> Ports:
    """Return ports by label; each pod has its own address, so those of other pods do not matter."""
    free = itertools.count(FIRST_PORT)
    return {label: tuple(itertools.islice(free, count)) for label, count in counts(wanted).items()}


def place_of(launch: Launch, ip: str) -> Place:
    return Place(role_key(launch.role), launch.index, ip, choose_ports(launch.ports))


def address_script(places: Sequence[Place], launch: Launch, knows_all: bool = True) -> str:
    """Return the variables with the addresses of a task and its peers; its own may be one that it knows.

    Unless ``knows_all``, there are more tasks, which start at other times.
    """
    own = next(one for one in places if (one.role, one.number) == (role_key(launch.role), launch.index))
    found = {**for_peers(places), **for_itself(own)}
    lists = ("PAI_TASK_ROLE_INSTANCES", "_HOST_LIST")
    text = exports({name: value for name, value in found.items() if knows_all or not name.endswith(lists)})
    return text.replace(ADDRESS, "'\"$PAI_POD_IP\"'")
