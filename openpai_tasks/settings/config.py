"""The settings: their table, and how they are put together from the places they are read from.

Weakest first: built in, tasks.py, Invoke's system and user files, ``~/.openpai/defaults.yaml``, the
project's ``invoke.yaml``, ``./.openpai/defaults.yaml``, ``INVOKE_OPENPAI_*``, ``inv -f FILE``, the flag.
They stay out of Invoke's merged configuration, where a clash of two keys would break every command;
each place's own ``openpai`` section is read instead. Secrets are no settings (credentials.py).

What shapes a job counts from every place. What reaches further (``FAR`` in the table, and sources that are
``OUTSIDE`` of the project) counts from the files of a project only if the user trusts them (trust.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks import times
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import engines, trust
from openpai_tasks.settings.home import locked, write_private
from openpai_tasks.settings.layers import (
    Layer,
    defaults_layer,
    flat,
    layers,
    project_layer,
    read_defaults,
    section,
)
from openpai_tasks.settings.trust import Claim, Untrusted
from openpai_tasks.settings.value_types import KINDS, READERS, Value

PROGRAMS = ("invoke", "fabric")  # whose settings files a project may have
BUILT_IN = "built-in"
FLAG = "flag"

FAR = "far"
OUTSIDE = "outside"


def _setting(
    name: str,
    default: Any,
    about: str,
    least: float | None = None,
    among: str = "",
    reach: str = "",
    is_time: bool = False,
) -> Any:
    details = {"name": name, "about": about, "least": least, "among": tuple(among.split()), "reach": reach}
    details["is_time"] = is_time
    return field(default=default, metadata=details)


_far = functools.partial(_setting, reach=FAR)


@dataclass(frozen=True)
class Settings:
    """Every setting, typed; ``origins`` says where each one came from."""

    cluster_alias: str = _setting("cluster-alias", "local", "the cluster that commands speak to")
    image: str = _setting("image", "python:3", "the docker image that jobs run in")
    workspace: str = _setting("workspace", "", "folder on the storage that jobs keep their files in")
    virtual_cluster: str = _setting("virtual-cluster", "", "the part of the cluster that jobs run in")
    cpu: int = _setting("cpu", 2, "CPU cores of a job", least=1)
    gpu: int = _setting("gpu", 0, "GPUs of a job", least=0)
    memory_mb: int = _setting("memoryMB", 4096, "memory of a job, in MB", least=1)
    sources: tuple[str, ...] = _setting(
        "sources", (), "files and folders that jobs take along", reach=OUTSIDE
    )
    pip_installs: tuple[str, ...] = _setting("pip-installs", (), "packages that jobs install first")
    python: str = _far("python", "python3", "the python in the image that installs packages")
    clusters_in_local: bool = _far(
        "clusters-in-local", False, "keep clusters.yaml in ./.openpai, not in ~/.openpai"
    )
    output: str = _setting("output", "table", "how results are shown", among="table json yaml csv")
    editor: str = _far("editor", "", "the program that `cluster.edit` opens")
    http_timeout: float = _setting("http-timeout", 30.0, "seconds to wait for a cluster's answer", least=0.1)
    watch_patience: str = _setting(
        "watch-patience", "15m", "how long a watched cluster may give no answer", is_time=True
    )
    local_body_limit: int = _far(
        "local.body-limit", 100, "KB that a request to the embedded cluster may carry", least=1
    )
    local_enforce: bool = _far(
        "local.enforce", False, "the embedded cluster holds jobs back that are larger than the machine"
    )
    local_engine: str = _far(
        "local.engine",
        engines.DEFAULT,
        "how the embedded cluster runs tasks",
        among=" ".join(engines.ENGINES),
    )
    local_profile: str = _far(
        "local.profile", "union", "the OpenPAI that the embedded cluster is", among="union 0.14 0.18 1.8"
    )
    local_ssh: str = _far(
        "local.ssh", "auto", "what serves ssh in the embedded cluster", among="auto sshd asyncssh off"
    )
    ssh_key: str = _far("ssh.key", "", "the private key that opens containers; else one of our own")
    ssh_user: str = _far("ssh.user", "root", "whom to log in to containers as")
    ssh_timeout: float = _far("ssh.timeout", 15.0, "seconds to wait for a container's answer", least=1)
    ssh_gateway: str = _far("ssh.gateway", "", "the host that leads to the containers: USER@HOST:PORT")
    ssh_gateway_key: str = _far("ssh.gateway-key", "", "the private key that opens the gateway")
    container_engine: str = _far(
        "container.engine", "auto", "what builds and checks images", among="auto docker podman"
    )
    storage_mounts: tuple[str, ...] = _far(
        "storage.mounts", (), "where shares are mounted here: CLUSTER/STORAGE=FOLDER or ADDRESS=FOLDER"
    )
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown: tuple[str, ...] = field(default=(), repr=False)
    withheld: tuple[Claim, ...] = field(default=(), repr=False)
    overruled: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """The user's own values of settings that a project's files say something else about."""

    def own(self, name: str) -> Value:
        """A setting as the user's own files, variables and flags have it, whatever the project says."""
        value: Value = getattr(self, VARIABLES[name].field)
        return self.overruled.get(name, value)

    @classmethod
    def load(
        cls, config: Any = None, flags: Mapping[str, Any] | None = None, withhold: bool = False
    ) -> Settings:
        """Read every place; ``config`` is Invoke's, ``flags`` what the command line said, by field.

        What a project wants and the user has not trusted is an error; or, to ``withhold``, it does not count.
        """
        values: dict[str, Any] = {}
        own: dict[str, Any] = {}
        origins = {name: BUILT_IN for name in VARIABLES}
        unknown: list[str] = []
        withheld: list[Claim] = []
        for layer in layers(config):
            unknown += _not_used(layer)
            doubted = trust.untrusted(claims(layer))
            withheld += doubted
            for variable, given, value in _known(layer):
                if all(claim.setting != variable.name for claim in doubted):
                    origins[variable.name] = origin = layer.naming.get(given, layer.origin)
                    values[variable.field] = variable.read(value, origin)
                    own |= {variable.field: values[variable.field]} if layer.is_own else {}
                    if layer.is_project and variable.reach == OUTSIDE:
                        values[variable.field] = trust.fenced(origin, values[variable.field])
        for key, value in (flags or {}).items():
            if value is not None and value != [] and value != ():
                variable = _BY_FIELD[key]
                values[key] = own[key] = variable.read(value, f"--{variable.name}")
                origins[variable.name] = FLAG
        is_local = values.get("clusters_in_local") or any(c.setting == "clusters-in-local" for c in withheld)
        withheld += trust.untrusted(trust.used_clusters(Path.cwd(), not withhold)) if is_local else ()
        if withheld and not withhold:
            raise Untrusted(withheld)
        overruled = {
            variable.name: own.get(key, variable.default)
            for key, variable in _BY_FIELD.items()
            if values.get(key) != own.get(key)
        }
        return cls(
            **values,
            origins=origins,
            unknown=tuple(unknown),
            withheld=tuple(withheld),
            overruled=overruled,
        )


@dataclass(frozen=True)
class Variable:
    """One row of the table: its name as people write it, what it may be, and what it is for."""

    name: str
    field: str
    default: Value
    about: str
    least: float | None
    among: tuple[str, ...]
    reach: str = ""
    is_time: bool = False

    @property
    def kind(self) -> type:
        return type(self.default)

    def read(self, value: Any, origin: str) -> Value:
        """``value`` as this setting's type, or an error that names where it was written."""
        if self.among and isinstance(value, float):
            value = str(value)  # YAML takes 0.14 for a number
        if self.is_time and type(value) is int:
            value = str(value)
        read: Value | None = READERS[self.kind](value)
        if read is None:
            raise ConfigError(f"{origin}: {self.name} must be {KINDS[self.kind]}, got {value!r}")
        if self.is_time:
            times.seconds(str(read), f"{origin}: {self.name}")
        if self.least is not None and isinstance(read, (int, float)) and not read >= self.least:
            raise ConfigError(f"{origin}: {self.name} must be at least {self.least:g}, got {value!r}")
        if isinstance(read, float) and not math.isfinite(read):
            raise ConfigError(f"{origin}: {self.name} must be a finite number, got {value!r}")
        if self.among and read not in self.among:
            raise ConfigError(f"{origin}: {self.name} must be one of {', '.join(self.among)}, got {value!r}")
        return read


def _spelling(name: object) -> str:
    """``memory_mb``, ``memory-mb`` and ``memoryMB`` are one name."""
    return "".join(char for char in str(name).lower() if char not in "-_.")


VARIABLES: dict[str, Variable] = {
    item.metadata["name"]: Variable(field=item.name, default=cast(Value, item.default), **item.metadata)
    for item in dataclasses.fields(Settings)
    if item.metadata
}
_BY_SPELLING = {_spelling(name): variable for name, variable in VARIABLES.items()}
_BY_FIELD = {variable.field: variable for variable in VARIABLES.values()}


def find(name: str) -> Variable:
    """The setting of that name, in any spelling."""
    try:
        return _BY_SPELLING[_spelling(name)]
    except KeyError:
        raise ConfigError(f"{_unknown(name)} (known: {', '.join(VARIABLES)})") from None


def _unknown(name: object) -> str:
    near = difflib.get_close_matches(str(name), VARIABLES, 1)
    return f"no setting is named {str(name)!r}" + (f", did you mean {near[0]}?" if near else "")


def _known(layer: Layer) -> Iterator[tuple[Variable, str, Any]]:
    """The settings that the layer gives a value, with the name that it has there."""
    for given, value in layer.values.items():
        variable = _BY_SPELLING.get(_spelling(given))
        if variable and value not in (None, ""):
            yield variable, given, value


def _not_used(layer: Layer) -> list[str]:
    """What of the layer does not count, and why; in our own files older clients kept more."""
    names = [] if layer.is_ours else [name for name in layer.values if _spelling(name) not in _BY_SPELLING]
    lines = [f"{layer.origin}: {_unknown(name)}" for name in names]
    return [layer.ignored, *lines] if layer.ignored else lines


def change_defaults(path: Path, values: Mapping[str, Value], remove: Iterable[str] = ()) -> None:
    """Set and remove settings in a defaults.yaml, keeping the rest, whoever else writes it now."""
    import yaml

    gone = {_spelling(name) for name in (*remove, *values)}
    with locked(path):
        kept = {key: item for key, item in flat(read_defaults(path)).items() if _spelling(key) not in gone}
        kept |= {key: list(item) if isinstance(item, tuple) else item for key, item in values.items()}
        text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
        write_private(path, text)
    if trust.is_project_file(path):
        trust.remember(_typed(path, values))


# What a project asks for


def claims(layer: Layer, base: Path | None = None) -> list[Claim]:
    """What the layer says that reaches further than a job, if it is of a project; sources are in ``base``."""
    found: dict[str, list[Claim]] = {}
    for variable, _, value in _known(layer) if layer.is_project else ():
        if variable.reach:
            read: Any = variable.read(value, layer.origin)
            if variable.reach == OUTSIDE:
                found[variable.name] = trust.sources_claims(layer.origin, read, base or Path.cwd())
            else:
                found[variable.name] = [trust.setting_claim(layer.origin, variable.name, read)]
    return [claim for several in found.values() for claim in several]


def project_claims(folder: Path, base: Path) -> list[Claim]:
    """All that the files of a project folder ask for, as a command that is run in ``base`` sees it."""
    own = folder / ".openpai" / "defaults.yaml"
    found = claims(project_layer(defaults_layer(own)), base) if trust.is_project_file(own) else []
    for path in (folder / f"{name}.{suffix}" for name in PROGRAMS for suffix in ("yaml", "yml", "json")):
        values = section(SimpleNamespace(data=read_defaults(path)), "data", str(path))
        found += claims(project_layer(Layer(str(path), values)), base)
    return found + trust.used_clusters(folder)


def _typed(path: Path, values: Mapping[str, Value]) -> list[Claim]:
    """What of a project's defaults.yaml the user has just typed himself."""
    found = claims(project_layer(defaults_layer(path)))
    sources = values.get("sources")
    links = [trust.links_claim(str(path), sources)] if isinstance(sources, tuple) else []
    return links + [claim for claim in found if claim.setting in values]
