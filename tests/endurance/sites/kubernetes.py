"""Jobs as pods of a Kubernetes that runs on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.endurance.operations.jobs import submitted_steps
from tests.endurance.sites.base import Site
from tests.endurance.sites.kube_proxy import KubeProxy
from tests.endurance.world import label_of
from tests.server.container_engines import JUPYTER_PYTHON, jupyter_files, python_files
from tests.server.engines.kube_cluster import CLUSTER, KUBECONFIG, Kube, import_image

if TYPE_CHECKING:
    from tests.endurance.world import Record, World

IMAGE = "docker.io/local/endure:1"
STORAGE = "journals"
RULES = (
    "create,delete,get,list,watch:pods",
    "get:pods/log",
    "create,get:pods/exec",
    "create:secrets",
    "list:resourcequotas",
)
"""The permissions that docs/kubernetes.md asks for, so that an administrator's do not hide anything."""
KINDS = "pods,secrets,configmaps,persistentvolumeclaims,services"
CLEAN_SECONDS = 60.0  # for Kubernetes to delete what belonged to a pod
ANSWER_SECONDS = 60.0  # for an API server that was restarted
REMOVED, LOST = -101, -1001
KILLED, OWN = 137, 255
GONE = (REMOVED, LOST, 0, 3, 256)
CODES = {
    "delete pod": GONE,
    "evict pod": (*GONE, KILLED),
    "lose node": (*GONE, KILLED),
    "kill container": (KILLED, 3),
}
"""How a job can end whose pod was taken away: its command may have ended before."""


class Kubernetes(Site):
    """Each history has its own namespace, and a proxy of ours between it and the API server."""

    kind = "kubernetes"
    has_runners = separates_streams = False
    most_faults = 12  # jobs take longer
    attempt = "/jobs/$PAI_JOB_NAME/$FC_FRAMEWORK_ATTEMPT_ID/$FC_TASK_ATTEMPT_ID"
    limit = 400.0  # a lost node is away for 75 s, and an API server takes a minute to start on a busy machine
    memory = 32
    update = f"extras.storages={json.dumps([{'name': 'home'}, {'name': STORAGE}])}"
    python = JUPYTER_PYTHON

    def __init__(self) -> None:
        self.namespace, self._has_image = "", False
        self.proxy: KubeProxy | None = None
        self.hurt: dict[str, set[str]] = {}  # what faults have done to the pod of a task, by its folder

    def missing(self) -> str:
        if os.geteuid():
            return "it breaks a cluster, and needs root"
        unset = [name for name in (KUBECONFIG, CLUSTER) if not os.environ.get(name)]
        if unset:
            return f"needs a Kubernetes on this machine that may be broken; set {' and '.join(unset)}"
        return "" if shutil.which("kubectl") else "needs kubectl"

    def start(self, world: World) -> None:
        if not self._has_image:
            import_image(Path(os.environ[CLUSTER]), IMAGE, {**python_files(), **jupyter_files()})
            self._has_image = True
        self.namespace, self.hurt = f"endure-{uuid.uuid4().hex[:8]}", {}
        self.kubectl("create", "namespace", self.namespace)
        user = Kube(os.environ[KUBECONFIG], self.namespace).user(world.folder, *RULES)
        self.proxy = KubeProxy(user, os.environ[CLUSTER])
        kubeconfig = world.folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(self.proxy.kubeconfig()))
        folder = world.folder / "journals"
        world.environment |= {
            "INVOKE_OPENPAI_IMAGE": IMAGE,
            "INVOKE_OPENPAI_LOCAL_KUBERNETES_KUBECONFIG": str(kubeconfig),
            "INVOKE_OPENPAI_LOCAL_KUBERNETES_NAMESPACE": self.namespace,
            "INVOKE_OPENPAI_LOCAL_KUBERNETES_STORAGES": f"{STORAGE}=host:{folder}",
            "INVOKE_OPENPAI_STORAGE_MOUNTS": f"local/{STORAGE}={folder}",
        }

    def stop(self, world: World) -> None:
        if self.proxy:
            self.proxy.close()
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def journal(self, world: World, label: str) -> str:
        return f"/mnt/{STORAGE}/{label}"

    # The outside system's own word

    @staticmethod
    def kubectl(*words: str, sent: str = "") -> str:
        """Run kubectl without the proxy, again while the API server does not answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            done = subprocess.run(
                ["kubectl", f"--kubeconfig={os.environ[KUBECONFIG]}", "--request-timeout=20s", *words],
                **{"input": sent, "capture_output": True, "text": True, "check": False},
            )
            if not done.returncode:
                return done.stdout
            if time.monotonic() > deadline or "NotFound" in done.stderr or "AlreadyExists" in done.stderr:
                raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
            time.sleep(0.5)

    def kubectl_unless_gone(self, *words: str, sent: str = "") -> bool:
        """Run kubectl; return whether its object was there."""
        try:
            self.kubectl(*words, sent=sent)
        except RuntimeError as err:
            if "NotFound" not in str(err):
                raise
            return False
        return True

    def objects(self, kinds: str) -> list[dict[str, Any]]:
        """Return the objects of the namespace that Kubernetes has not made by itself."""
        found = json.loads(self.kubectl("get", kinds, "-n", self.namespace, "-o", "json"))["items"]
        return [one for one in found if "openpai-tasks/home" in (one["metadata"].get("labels") or {})]

    def pods(self) -> list[dict[str, Any]]:
        with contextlib.suppress(RuntimeError):
            return [one for one in self.objects("pods") if "deletionTimestamp" not in one["metadata"]]
        return []

    def leftovers(self, world: World) -> Iterator[str]:
        deadline = time.monotonic() + CLEAN_SECONDS
        while (found := self.objects(KINDS)) and time.monotonic() < deadline:
            time.sleep(0.5)
        yield from (f"{one['kind']} {one['metadata']['name']}" for one in found)

    def collect(self, world: World) -> dict[str, Any]:
        """Return the events of pods, and what faults did to them by the folder of the task."""
        found = json.loads(self.kubectl("get", "events", "-n", self.namespace, "-o", "json"))["items"]
        about = [(one["reason"], one["involvedObject"], one["message"]) for one in found]
        events = [
            (reason, pod["name"], pod.get("uid", ""), words)
            for reason, pod, words in about
            if pod["kind"] == "Pod"
        ]
        return {"events": events, "hurt": dict(self.hurt)}

    def check(self, record: Record) -> Iterator[str]:
        events, hurt = record.collected(self.kind)["events"], record.collected(self.kind)["hurt"]
        yield from _pods_twice(events)
        steps = submitted_steps(record)
        for job in record.jobs:
            name, code = job["name"], job["platform_exit_code"]
            step = steps.get(label_of(name))
            if code == OWN and step and step.options["code"]:
                continue  # of its command, also in an attempt after the one that was taken away
            done = {what for folder, kinds in hurt.items() if f"~{name}/" in folder for what in kinds}
            if job["state"] == "FAILED" and done and not any(code in CODES[what] for what in done):
                yield f"{name} is FAILED with {code}, but a fault did this to its pod: {done}"
            if job["state"] == "FAILED" and code is not None and code < 0 and not done:
                yield f"{name} is FAILED with {code}, but no fault did anything to its pod"


def _pods_twice(events: list[tuple[str, str, str, str]]) -> Iterator[str]:
    """Each pod is created once, and its container is started once."""
    uids = {(name, uid) for _, name, uid, _ in events if uid}
    for name, times in Counter(name for name, _ in uids).items():
        if times > 1:
            yield f"pod {name} was created {times} times"
    started = Counter(name for reason, name, _, words in events if reason == "Started" and " task" in words)
    for name, times in started.items():
        if times > 1:
            yield f"the container of pod {name} was started {times} times"
