"""Break a Kubernetes of this machine and the way to it, and take pods away."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openpai_tasks.server.engines.container_program import RUNTIME
from tests.endurance.faults.waiting import wait_for
from tests.endurance.plan import Fault, Options
from tests.endurance.sites.kubernetes import Kubernetes
from tests.endurance.world import World, send_signal
from tests.server.engines.kube_cluster import Component

if TYPE_CHECKING:
    from tests.endurance.sites.kube_proxy import KubeProxy

PARTS = {
    "API server": ("kube-apiserver --",),
    "etcd": ("etcd --data-dir",),
    "scheduler": ("kube-scheduler --",),
    "controller manager": ("kube-controller-manager --",),
    "kubelet of node1": ("kubelet --", "--hostname-override=node1 "),
    "kubelet of node2": ("kubelet --", "--hostname-override=node2 "),
}
"""Words in the command lines of the cluster's processes."""
CONTAINER = re.compile(r"pod[^/\n]*/(?:cri-containerd-)?([0-9a-f]{64})")
ENTRY = f"{RUNTIME}/entry".encode()  # runs the commands of a task
PROC = Path("/proc")
OWNER_SECONDS = 10.0  # until Kubernetes knows that a container runs


class _OfKubernetes(Fault):
    """A fault that lasts for some seconds."""

    longest = 4.0

    def fits(self, world: World) -> bool:
        return isinstance(world.site, Kubernetes)

    def plan(self, chance: random.Random) -> Options:
        return {"seconds": round(chance.uniform(0.2, self.longest), 2), "chosen": chance.random()}


class _OfPart(_OfKubernetes):
    parts: tuple[str, ...] = ()

    def inject(self, world: World, options: Options) -> str:
        name = self.parts[int(options["chosen"] * len(self.parts))]
        self.hurt(Component.find(*PARTS[name]), options["seconds"])
        return name

    def hurt(self, part: Component, seconds: float) -> None:
        with part.away():
            time.sleep(seconds)
        time.sleep(0.5)  # it may be started by a script, whose command line differs


class KillControlPlane(_OfPart):
    kind, weight, longest = "kill control plane", 4, 6.0
    parts = ("API server", "API server", "etcd", "scheduler", "controller manager")


class KillKubelet(_OfPart):
    kind, weight, longest = "kill kubelet", 2, 6.0
    parts = ("kubelet of node1", "kubelet of node2")


class PauseApiServer(_OfPart):
    kind, weight, parts = "pause API server", 2, ("API server",)

    def hurt(self, part: Component, seconds: float) -> None:
        send_signal(part.pid, signal.SIGSTOP)
        time.sleep(seconds)
        send_signal(part.pid, signal.SIGCONT)


class _OfProxy(_OfKubernetes):
    """A fault of the way to the API server."""

    def inject(self, world: World, options: Options) -> str | None:
        proxy = cast("Kubernetes", world.site).proxy
        return self.hurt(proxy, options) if proxy else None

    def hurt(self, proxy: KubeProxy, options: Options) -> str:
        raise NotImplementedError


class CutConnections(_OfProxy):
    kind, weight = "cut connections", 4

    def hurt(self, proxy: KubeProxy, options: Options) -> str:
        return f"{proxy.cut()} connections"


class SlowApi(_OfProxy):
    kind, weight = "slow API", 2

    def hurt(self, proxy: KubeProxy, options: Options) -> str:
        proxy.delay = 0.1 + options["chosen"]
        time.sleep(options["seconds"])
        proxy.delay = 0.0
        return f"{options['seconds']} s"


class RefuseRequests(_OfProxy):
    kind, weight = "refuse requests", 3

    def hurt(self, proxy: KubeProxy, options: Options) -> str:
        proxy.refusal = (429, 500, 503, 504)[int(options["chosen"] * 4)]
        proxy.cut()
        time.sleep(options["seconds"])
        code, proxy.refusal = proxy.refusal, 0
        return f"with {code} for {options['seconds']} s"


class KillKubectl(_OfKubernetes):
    """Kill the server's own ``kubectl proxy``, or a command that it runs in a pod."""

    kind, weight = "kill kubectl", 4

    def inject(self, world: World, options: Options) -> str | None:
        found = [pid for pid, line in world.processes("kubectl ") if not line.startswith("/bin/sh")]
        if not found:
            return None
        send_signal(found[int(options["chosen"] * len(found))], signal.SIGKILL)
        return f"1 of {len(found)}"


class _OfPod(_OfKubernetes):
    """A fault of one pod of the history, chosen among those that exist."""

    def inject(self, world: World, options: Options) -> str | None:
        site = cast("Kubernetes", world.site)
        pods = site.pods()
        if not pods:
            return None
        pod = pods[int(options["chosen"] * len(pods))]
        if not self.hurt(site, pod):
            return None
        _note(world, pod, self.kind)
        return str(pod["metadata"]["name"])

    def hurt(self, site: Kubernetes, pod: dict[str, Any]) -> bool:
        """Take the pod away; return False if it has gone by itself."""
        raise NotImplementedError


def _note(world: World, pod: dict[str, Any], kind: str) -> None:
    folder = pod["metadata"]["annotations"]["openpai-tasks/folder"]
    world.killed_tasks.add(f"{folder}/work")
    cast("Kubernetes", world.site).hurt.setdefault(folder, set()).add(kind)


class DeletePod(_OfPod):
    kind, weight = "delete pod", 2

    def hurt(self, site: Kubernetes, pod: dict[str, Any]) -> bool:
        flags = ("--force", "--grace-period=0", "--wait=false")
        return site.kubectl_unless_gone(
            "delete", "pod", pod["metadata"]["name"], "-n", site.namespace, *flags
        )


class EvictPod(_OfPod):
    kind, weight = "evict pod", 3

    def hurt(self, site: Kubernetes, pod: dict[str, Any]) -> bool:
        about = {"name": pod["metadata"]["name"], "namespace": site.namespace}
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": about}
        path = f"/api/v1/namespaces/{site.namespace}/pods/{about['name']}/eviction"
        return site.kubectl_unless_gone("create", "--raw", path, "-f", "-", sent=json.dumps(body))


class KillContainer(_OfPod):
    """Kill the processes of a task's container, as the kernel does when memory is short.

    It is paused until Kubernetes has said which task it belongs to: it would end meanwhile.
    """

    kind, weight = "kill container", 4

    def inject(self, world: World, options: Options) -> str | None:
        site = cast("Kubernetes", world.site)
        tasks = wait_for(lambda: sorted(task_containers()))
        if not tasks:
            return None
        id = tasks[int(options["chosen"] * len(tasks))]
        for pid in (pids := container_processes().get(id, [])):
            send_signal(pid, signal.SIGSTOP)
        owners = wait_for(lambda: [pod for pod in site.pods() if _has_task(pod, id)], OWNER_SECONDS)
        for pid in (*pids, *container_processes().get(id, ())):
            send_signal(pid, signal.SIGKILL if owners else signal.SIGCONT)
        for pod in owners:
            _note(world, pod, self.kind)
        return id[:12] if owners else None


def container_processes(folder: Path = PROC) -> dict[str, list[int]]:
    """Return the processes of the containers of all pods by the container's id."""
    found: dict[str, list[int]] = {}
    for path in folder.glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if container := CONTAINER.search(path.read_text()):
                found.setdefault(container[1], []).append(int(path.parent.name))
    return found


def task_containers(folder: Path = PROC) -> Iterator[str]:
    """Yield the ids of containers that run the commands of a task, not those that prepare or serve it."""
    for id, pids in container_processes(folder).items():
        for pid in pids:
            with contextlib.suppress(OSError):
                if ENTRY in (folder / str(pid) / "cmdline").read_bytes().split(b"\0"):
                    yield id
                    break


def _has_task(pod: dict[str, Any], container: str) -> bool:
    """Whether a container is that of the pod's task."""
    states = pod["status"].get("containerStatuses") or ()
    return any(one["name"] == "task" and container in one.get("containerID", "") for one in states)


class LoseNode(_OfKubernetes):
    """Kill a kubelet until its node is not ready, and delete the pods of that node.

    Kubernetes deletes them, too, but only after the 300 s that they tolerate such a node.
    """

    kind, weight = "lose node", 1

    def plan(self, chance: random.Random) -> Options:
        return {"node": chance.choice(("node1", "node2")), "seconds": chance.choice((2, 75))}

    def inject(self, world: World, options: Options) -> str | None:
        site, node = cast("Kubernetes", world.site), options["node"]
        if not _pods_on(site, node):
            return None
        with Component.find(*PARTS[f"kubelet of {node}"]).away():
            site.kubectl("wait", f"node/{node}", "--for=condition=Ready=Unknown", "--timeout=20s")
            for pod in (pods := _pods_on(site, node)):
                _note(world, pod, self.kind)
                site.kubectl_unless_gone(
                    "delete", "pod", pod["metadata"]["name"], "-n", site.namespace, "--wait=false"
                )
            time.sleep(options["seconds"])
        site.kubectl("wait", f"node/{node}", "--for=condition=Ready", "--timeout=20s")
        return f"{node} with {len(pods)} pods for {options['seconds']} s"


def _pods_on(site: Kubernetes, node: str) -> list[dict[str, Any]]:
    return [one for one in site.pods() if one["spec"].get("nodeName") == node]


class Cordon(_OfKubernetes):
    """Let no new pod start on one node, or on any."""

    kind, weight, longest = "cordon", 1, 6.0

    def inject(self, world: World, options: Options) -> str:
        nodes = [["node1"], ["node2"], ["node1", "node2"]][int(options["chosen"] * 3)]
        Kubernetes.kubectl("cordon", *nodes)
        time.sleep(options["seconds"])
        Kubernetes.kubectl("uncordon", *nodes)
        return " and ".join(nodes)

    def repair(self, world: World) -> None:
        Kubernetes.kubectl("uncordon", "node1", "node2")


class Quota(_OfKubernetes):
    """Let the namespace have few pods, or no memory, for a while."""

    kind, weight, longest = "quota", 1, 6.0

    def inject(self, world: World, options: Options) -> str:
        site = cast("Kubernetes", world.site)
        hard = ("pods=1", "requests.memory=48Mi", "pods=0")[int(options["chosen"] * 3)]
        site.kubectl("create", "quota", "small", f"--hard={hard}", "-n", site.namespace)
        time.sleep(options["seconds"])
        self.repair(world)
        return hard

    def repair(self, world: World) -> None:
        site = cast("Kubernetes", world.site)
        site.kubectl("delete", "quota", "small", "-n", site.namespace, "--ignore-not-found")
