"""A namespace of a real Kubernetes for tests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.server.engines.kubernetes.engine import KubernetesEngine
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl
from openpai_tasks.settings.engines import find_engine
from tests.needs import require
from tests.server.container_engines import image_tar

KUBECONFIG = "OPENPAI_TEST_KUBECONFIG"
IMAGE = os.environ.get("OPENPAI_TEST_KUBE_IMAGE", "busybox")
"""An image with a POSIX shell and little else, which the cluster can pull."""
PATH = "/usr/local/bin:/usr/bin:/bin"  # of images
TRIES = 5  # each takes 10 s


def patch(path: Path, target: str, body: dict[str, Any]) -> None:
    """Change an object through the socket of a proxy."""
    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connection.sock, contextlib.closing(connection):
        connection.sock.connect(str(path))
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        connection.request("PATCH", target, json.dumps(body), kind)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def import_image(cluster: Path, name: str, files: Mapping[str, bytes | Path]) -> None:
    """Give an image with busybox and these files to all nodes of a cluster in a folder."""
    layer = image_tar(files)
    digest = hashlib.sha256(layer).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {"os": "linux", "architecture": machine, "config": {"Env": [f"PATH={PATH}"]}}
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in (
            ("manifest.json", json.dumps(manifest).encode()),
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer),
        ):
            file = tarfile.TarInfo(path)
            file.size = len(content)
            tar.addfile(file, io.BytesIO(content))
    for address in cluster.glob("node*/containerd.sock"):
        argv = ["ctr", "-a", str(address), "-n", "k8s.io", "images", "import", "-"]
        done = subprocess.run(argv, input=made.getvalue(), capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()


@dataclass(frozen=True)
class Kube:
    """A namespace, and kubectl for it."""

    kubeconfig: str
    namespace: str
    options: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, sent: str = "", check: bool = True) -> str:
        """Run kubectl, again while a busy machine does not let it connect."""
        argv = ["kubectl", f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *words]
        for _ in range(TRIES):
            done = subprocess.run(argv, input=sent, capture_output=True, text=True, timeout=120)
            if "TLS handshake timeout" not in done.stderr:
                break
        assert not check or not done.returncode, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def names(self, kind: str) -> list[str]:
        """The names of our objects of a kind."""
        found = self.run("get", kind, "--selector=openpai-tasks/home", "--output=name")
        return [line.partition("/")[2] for line in found.split()]

    def clean(self) -> None:
        """Delete our objects at once."""
        ours = ("--selector=openpai-tasks/home", "--grace-period=0", "--force")
        self.run("delete", "pods,secrets", *ours)

    def pretend(self, node: str, gpus: int | None, resource: str = "nvidia.com/gpu") -> None:
        """Let a node have GPUs, as a device plug-in does; None takes them away.

        kubectl cannot change a status before 1.24.
        """
        amounts = {resource: None if gpus is None else str(gpus)}
        kubectl = Kubectl(self.kubeconfig, "")

        with tempfile.TemporaryDirectory() as folder, contextlib.closing(kubectl):
            path = Path(folder, "proxy")
            kubectl.start_proxy(path)
            assert asyncio.run(kubectl.wait_for_proxy(path))
            target = f"/api/v1/nodes/{node.removeprefix('node/')}/status"
            patch(path, target, {"status": {"capacity": amounts, "allocatable": amounts}})

    def wait_until_empty(self) -> None:
        """Wait until none of our objects is left."""
        for kind in ("pods", "secrets"):
            ours = ("--selector=openpai-tasks/home", "--for=delete", "--timeout=60s")
            self.run("wait", kind, *ours, check=False)
            assert not self.names(kind)

    def _token(self, account: str) -> str:
        """Ask for a token as `kubectl create token` does since 1.24."""
        target = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": ["api"]},
        }
        found = json.loads(self.run("create", "--raw", target, "--filename=-", sent=json.dumps(wanted)))
        return str(found["status"]["token"])

    def get(self, what: str, name: str) -> dict[str, Any]:
        """An object; empty if there is none."""
        found: dict[str, Any] = json.loads(self.run("get", what, name, "--output=json", check=False) or "{}")
        return found

    def user(self, folder: Path, *rules: str) -> str:
        """Return a kubeconfig of a user who may only do this in the namespace: VERBS:RESOURCES."""
        name = f"user-{uuid.uuid4().hex[:8]}"
        self.run("create", "serviceaccount", name)
        for number, rule in enumerate(rules):
            verbs, _, resources = rule.partition(":")
            role = f"{name}-{number}"
            self.run("create", "role", role, f"--verb={verbs}", f"--resource={resources}")
            self.run(
                "create", "rolebinding", role, f"--role={role}", f"--serviceaccount={self.namespace}:{name}"
            )
        content = json.loads(self.run("config", "view", "--raw", "--minify", "--output=json"))
        content["users"][0]["user"] = {"token": self._token(name)}
        path = folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def engine(self, folder: Path, grace: float = 30.0, **options: str) -> KubernetesEngine:
        named = {f"kubernetes-{name.replace('_', '-')}": value for name, value in options.items()}
        return KubernetesEngine(folder, grace, find_engine("kubernetes").read_options(self.options | named))


@contextlib.contextmanager
def kube_namespace(gpus: int = 0) -> Iterator[Kube]:
    """Yield a new namespace, which is removed in the end; skip where there is no cluster.

    With ``gpus``, each node pretends to have so many.
    """
    kubeconfig = os.environ.get(KUBECONFIG, "")
    if not kubeconfig:
        pytest.skip(f"needs a Kubernetes cluster: set {KUBECONFIG} to a kubeconfig (kind, minikube)")
    require("kubectl")
    name = f"pai-test-{uuid.uuid4().hex[:8]}"
    options = {"kubernetes-kubeconfig": kubeconfig, "kubernetes-namespace": name}
    kube = Kube(kubeconfig, name, options)
    kube.run("create", "namespace", name)
    try:
        if gpus:
            for node in kube.run("get", "nodes", "--output=name").split():
                kube.pretend(node, gpus)
        yield kube
    finally:
        kube.run("delete", "namespace", name, "--wait=false")


CLUSTER = "OPENPAI_TEST_KUBE_DIR"


@dataclass(frozen=True)
class Component:
    """A process of a cluster that is ours to break."""

    argv: tuple[str, ...]
    folder: str
    log: str
    pid: int

    @classmethod
    def find(cls, *marks: str) -> Component:
        """Find a process by words of its command line; skip where the cluster is not ours."""
        root = os.environ.get(CLUSTER, "")
        if not root or os.geteuid():
            pytest.skip(f"needs a cluster on this machine that may be broken: set {CLUSTER} to its folder")
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                argv = [word for word in (entry / "cmdline").read_text().split("\0") if word]
                folder = os.readlink(entry / "cwd")
                if folder == os.path.realpath(root) and all(mark in " ".join(argv) for mark in marks):
                    return cls(tuple(argv), folder, os.readlink(entry / "fd" / "1"), int(entry.name))
        raise AssertionError(f"no process of the cluster in {root} has {marks} in its command line")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def start(self) -> None:
        """Start it again as it was, once more if it exits: an API server does that on a busy machine."""
        pid = self.pid
        while True:
            with open(self.log, "ab") as log:
                started = subprocess.Popen(
                    self.argv,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            pids, new = Path(self.folder, "pids"), Path(self.folder, f"pids-{started.pid}")
            new.write_text(pids.read_text().replace(f"{pid} ", f"{started.pid} "))
            new.replace(pids)  # at once: a kubelet that starts reads it
            pid = started.pid
            while started.poll() is None:
                if self._is_ready():
                    started.returncode = 0  # it outlives the tests
                    return

    def _is_ready(self) -> bool:
        """Whether it answers, if it is the API server, which others wait for by themselves."""
        words = ["kubectl", f"--kubeconfig={self.folder}/kubeconfig", "get", "--raw=/readyz"]
        is_server = "kube-apiserver" in self.argv[0]
        return not is_server or not subprocess.run(words, capture_output=True, timeout=120).returncode

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Kill it, and start it again in the end."""
        self.kill()
        try:
            yield
        finally:
            self.start()
