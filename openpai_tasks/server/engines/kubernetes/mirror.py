"""Our pods as Kubernetes last described them: one list, then one watch for all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openpai_tasks.protocol.json_text import parse
from openpai_tasks.server.engines.kubernetes.api import GONE, KubeApi, KubeError, path, reading
from openpai_tasks.server.engines.kubernetes.pod_state import PodState, read_pod
from openpai_tasks.server.engines.kubernetes.pods import HOME
from openpai_tasks.server.engines.process import write_file

log = logging.getLogger(__name__)

WATCH_SECONDS = 300  # after which the API server ends a watch
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds before asking again


class PodMirror:
    def __init__(self, api: KubeApi, home: str, trouble_file: Path, changed: Callable[[str], None]) -> None:
        """``changed`` is called with the uid of each task whose pod has changed."""
        self._api, self._home, self._changed = api, home, changed
        self._trouble_file = trouble_file
        self.pods: dict[str, PodState] = {}  # by name
        self.listed: set[str] = set()  # namespaces that were listed since the start
        self._troubles: dict[str, str] = {}  # by namespace
        self._failures = 0

    @property
    def trouble(self) -> str:
        """Why Kubernetes does not answer; empty if it does."""
        return next(iter(self._troubles.values()), "")

    async def run(self, namespace: str) -> None:
        """Mirror the pods in a namespace until cancelled."""
        while True:
            try:
                with reading():
                    version = await self._list(namespace)
                    self.listed.add(namespace)
                    self._note_up(namespace)
                    await self._watch(namespace, version)
            except KubeError as err:
                if err.code != GONE:  # otherwise, too much has changed since the last event
                    self._note_down(namespace, str(err))
                await asyncio.sleep(PAUSES[max(0, min(self._failures, len(PAUSES)) - 1)])

    async def _list(self, namespace: str) -> str:
        """Replace what is known about the pods in a namespace; return the version of the list."""
        found: dict[str, PodState] = {}
        version = ""
        async for page in self._api.pages(path(namespace, "pods"), labelSelector=f"{HOME}={self._home}"):
            for one in page["items"]:
                pod = read_pod(one)
                found[pod.name] = pod
            version = str(page["metadata"]["resourceVersion"])
        for pod in list(self.pods.values()):
            if pod.namespace == namespace and pod.name not in found:
                self._put(pod._replace(is_gone=True))
        for pod in found.values():
            self._put(pod)
        return version

    async def _watch(self, namespace: str, version: str) -> None:
        """Follow the changes until the server ends the watch."""
        while True:
            began = time.monotonic()
            query: dict[str, Any] = {
                "labelSelector": f"{HOME}={self._home}",
                "watch": 1,
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": WATCH_SECONDS,
            }
            async with contextlib.aclosing(self._api.lines(path(namespace, "pods", **query))) as lines:
                async for line in lines:
                    version = self._apply(parse(line)) or version
            if time.monotonic() < began + PAUSES[-1]:  # something between us and the API ends it
                await asyncio.sleep(PAUSES[2])

    def _apply(self, event: dict[str, Any]) -> str:
        """Apply a change; return its version."""
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise KubeError(str(found.get("message")), int(found.get("code") or GONE))
        if kind != "BOOKMARK":
            self._put(read_pod(found)._replace(is_gone=kind == "DELETED"))
        return str(found["metadata"].get("resourceVersion", ""))

    def _put(self, pod: PodState) -> None:
        if self.pods.get(pod.name) != pod:
            self.pods[pod.name] = pod
            self._changed(pod.uid)

    def _note_down(self, namespace: str, why: str) -> None:
        """Note that Kubernetes does not answer."""
        self._failures += 1
        if why != self._troubles.get(namespace):
            log.warning("Kubernetes: %s", why)
            self._troubles[namespace] = why
            with contextlib.suppress(OSError):
                write_file(self._trouble_file, f"Kubernetes: {why}\n")

    def _note_up(self, namespace: str) -> None:
        self._troubles.pop(namespace, None)
        if not self._troubles:
            self._failures = 0
            with contextlib.suppress(OSError):
                self._trouble_file.unlink(missing_ok=True)
