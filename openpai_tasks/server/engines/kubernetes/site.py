"""The options of the engine: how a site's Kubernetes is used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.policy import PRIORITIES
from openpai_tasks.settings.engines import EngineOptions

_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL = r"[A-Za-z0-9./_-]{1,317}"


class OptionForm:
    """The form of an option's value, or of each of several with commas."""

    def __init__(self, one: str, about: str, several: bool = True) -> None:
        self.one, self._about, self._several = one, about, several
        more = rf"(\s*,\s*({one}))*" if several else ""
        self.PATTERN = rf"^\s*(({one}){more})?\s*$"

    def check(self, text: str, where: str) -> None:
        """Raise ConfigError for an invalid value."""
        values = text.split(",") if self._several else [text]
        if text.strip() and not all(re.fullmatch(self.one, value.strip(), re.ASCII) for value in values):
            many = ", or several with commas" if self._several else ""
            raise ConfigError(f"{where}: expected {self._about}{many}, got {text!r}")


NAMESPACE = OptionForm(_NAME, "a namespace")
NODE_SELECTOR = OptionForm(rf"{_LABEL}=[\w.-]{{0,63}}", "LABEL=VALUE")
TOLERATIONS = OptionForm(
    rf"{_LABEL}(=[\w.-]{{0,63}})?(:(NoSchedule|PreferNoSchedule|NoExecute))?", "KEY[=VALUE][:EFFECT]"
)
NAME = OptionForm(_NAME, "a name of Kubernetes", several=False)
NAMES = OptionForm(_NAME, "a name of Kubernetes")
RESOURCE = OptionForm(_LABEL, "the name of a resource, such as nvidia.com/gpu", several=False)
GANG = OptionForm(
    rf"own|kueue:{_NAME}|volcano|coscheduling(:{_NAME})?",
    "own, kueue:QUEUE, volcano or coscheduling[:SCHEDULER]",
    several=False,
)
STORAGES = OptionForm(
    rf"\w[\w.-]{{0,99}}=(pvc:{_NAME}|nfs:[\w.-]+:/[^,]*|host:/[^,]*)",
    "STORAGE=pvc:CLAIM, STORAGE=nfs:SERVER:/PATH or STORAGE=host:/PATH",
)
PRIORITY_CLASSES = OptionForm(rf"({'|'.join(PRIORITIES)})={_NAME}", "low=CLASS or high=CLASS")
"""The forms of options, which the table of engines names."""


@dataclass(frozen=True)
class KubeSite:
    """The values of the options; a volume is part of a pod's spec."""

    kubeconfig: str
    context: str
    namespaces: tuple[str, ...]  # the first is the default virtual cluster; empty: that of the context
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, str], ...]
    service_account: str
    pull_secrets: tuple[str, ...]
    gpu_resource: str
    gpu_type_label: str
    priority_class: str
    gang: str  # what starts the tasks of a job together: ``own``, or a scheduler of the cluster
    volumes: Mapping[str, Mapping[str, Any]]  # by the name of the storage
    priority_classes: Mapping[str, str]  # by the word for a priority


def split(text: str) -> tuple[str, ...]:
    """Return the values of a list with commas."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


def read_site(options: EngineOptions) -> KubeSite:
    """Return the values of valid options."""
    given = {name.removeprefix("kubernetes-"): value for name, value in options.items()}
    return KubeSite(
        kubeconfig=os.path.expanduser(given["kubeconfig"]),
        context=given["context"],
        namespaces=split(given["namespace"]),
        node_selector=dict(_pair(one) for one in split(given["node-selector"])),
        tolerations=tuple(_toleration(one) for one in split(given["tolerations"])),
        service_account=given["service-account"],
        pull_secrets=split(given["pull-secrets"]),
        gpu_resource=given["gpu-resource"],
        gpu_type_label=given["gpu-type-label"],
        priority_class=given["priority-class"],
        gang=given["gang"],
        volumes={name: _volume(place) for name, place in map(_pair, split(given["storages"]))},
        priority_classes=dict(_pair(one) for one in split(given["priority-classes"])),
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _toleration(text: str) -> dict[str, str]:
    key, _, effect = text.partition(":")
    name, equals, value = key.partition("=")
    found = {"key": name, "operator": "Equal" if equals else "Exists", "value": value, "effect": effect}
    return {name: value for name, value in found.items() if value}


def _volume(place: str) -> dict[str, Any]:
    kind, _, where = place.partition(":")
    if kind == "pvc":
        return {"persistentVolumeClaim": {"claimName": where}}
    if kind == "nfs":
        server, _, folder = where.partition(":")
        return {"nfs": {"server": server, "path": folder}}
    return {"hostPath": {"path": where}}
