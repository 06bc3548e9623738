"""The table of settings, and how their values are merged from all sources.

Weakest first: built in, tasks.py, Invoke's system and user files, ``~/.openpai/defaults.yaml``, the
project's ``invoke.yaml``, ``./.openpai/defaults.yaml``, ``INVOKE_OPENPAI_*``, ``pai -f FILE``, the flag.
They stay out of Invoke's merged configuration, where conflicting keys would break every command; the
``openpai`` section of each source is read instead. Secrets are not settings (credentials.py).

Settings that only shape a job count from every source. Those that reach further (``FAR`` in the table, and
sources ``OUTSIDE`` of the project) count from a project's files only if the user trusts them (trust.py).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, cast

from openpai_tasks import hooks
from openpai_tasks.errors import ConfigError, InvalidOption
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings import engines, trust
from openpai_tasks.settings.home import locked, write_private
from openpai_tasks.settings.keeping import parse_keep
from openpai_tasks.settings.layers import (
    Layer,
    defaults_layer,
    flat,
    layers,
    project_layer,
    read_defaults,
    section,
)
from openpai_tasks.settings.project import load_config, own_folder
from openpai_tasks.settings.registry import LOCAL, is_embedded
from openpai_tasks.settings.trust import Claim, UntrustedSettings
from openpai_tasks.settings.value_types import KINDS, READERS, Value
from openpai_tasks.text import durations
from openpai_tasks.text.hints import option

PROGRAMS = ("invoke", "fabric")  # a project may have settings files of these programs
BUILT_IN = "built-in"
FLAG = "flag"

FAR = "far"
OUTSIDE = "outside"
TIME, KEEP, ENGINE, HOOKS = "time", "keep", "engine", "hooks"
FORMS: dict[str, Callable[[str, str], object]] = {
    TIME: durations.parse_seconds,
    KEEP: parse_keep,
    ENGINE: engines.check_engine,
}
"""Functions that check the text of a setting; errors name where it was given."""

_PANEL = "the notebook panel that it belongs to is replaced by `%pai` and the portal"
_SDK_BRANCH = "jobs run without the SDK in their container"
OLD_NAMES = {
    "container-sdk-branch": _SDK_BRANCH,
    "sdk-branch": _SDK_BRANCH,
    "mem": "`--mem` sets the memory of a job",
    "storage-alias": "a storage is chosen by its name",
    **dict.fromkeys(("image-list", "resource-list"), _PANEL),
    **dict.fromkeys(("web-default-form", "web-default-image", "web-default-resource"), _PANEL),
}
"""Settings of older clients that have no use here, and why."""


def _setting(
    name: str, default: Any, about: str, least: float | None = None, among: str = "", **more: str
) -> Any:
    details = {"name": name, "about": about, "least": least, "among": tuple(among.split()), **more}
    return field(default=default, metadata=details)


_far = functools.partial(_setting, reach=FAR)


@dataclass(frozen=True, eq=False, repr=False)  # nobody compares or prints so many values
class Settings:
    """All settings, typed; ``origins`` maps each name to its source."""

    cluster_alias: str = _setting("cluster-alias", "local", "the cluster that commands use")
    any_clusters: tuple[str, ...] = _setting(
        "any-clusters", (), "clusters that `-a any` may choose; all if there are none"
    )
    image: str = _setting("image", engines.DEFAULT_IMAGE, "the docker image that jobs run in")
    workspace: str = _setting("workspace", "", "folder on the storage for the files of jobs")
    virtual_cluster: str = _setting("virtual-cluster", "", "the virtual cluster that jobs run in")
    cpu: int = _setting("cpu", 2, "CPU cores per task; 1 on `local`", least=1)
    gpu: int = _setting("gpu", 0, "GPUs per task", least=0)
    memory_mb: int = _setting("memoryMB", 4096, "memory per task, in MB; 1024 on `local`", least=1)
    sources: tuple[str, ...] = _setting(
        "sources", (), "files and folders that are uploaded with jobs", reach=OUTSIDE
    )
    outputs: tuple[str, ...] = _setting(
        "outputs", (), "files that are kept when jobs end, such as model/*.pt"
    )
    pip_installs: tuple[str, ...] = _setting(
        "pip-installs", (), "packages that jobs install before their command"
    )
    python: str = _far("python", "python3", "the python in the image that installs packages")
    clusters_in_local: bool = _far(
        "clusters-in-local", False, "keep clusters.yaml in ./.openpai, not in ~/.openpai"
    )
    output: str = _setting("output", "table", "output format of results", among="table json yaml csv")
    editor: str = _far("editor", "", "the editor that cluster.edit opens")
    http_timeout: float = _setting("http-timeout", 30.0, "seconds to wait for a cluster's answer", least=0.1)
    watch_patience: str = _setting(
        "watch-patience", "15m", "how long to wait for a watched cluster that does not answer", form=TIME
    )
    local_body_limit: int = _far(
        "local.body-limit", 100, "largest request to the embedded cluster, in KB", least=1
    )
    local_keep: str = _far(
        "local.keep",
        "90d,10000,10GB",
        "finished jobs that the embedded cluster keeps: age, number, size; or all",
        form=KEEP,
    )
    local_enforce: str = _far(
        "local.enforce",
        engines.REFUSE_GPUS,
        "which jobs larger than the machine the embedded cluster refuses; true: all of them, false: none",
        among=" ".join(engines.ENFORCE),
    )
    local_engine: str = _far(
        "local.engine",
        engines.DEFAULT,
        "how the embedded cluster runs tasks",
        form=ENGINE,
    )
    local_profile: str = _far(
        "local.profile", "union", "OpenPAI version of the embedded cluster", among="union 0.14 0.18 1.8"
    )
    local_ssh: str = _far(
        "local.ssh", "auto", "ssh server of the embedded cluster", among="auto sshd asyncssh off"
    )
    ssh_key: str = _far("ssh.key", "", "private key for containers; made automatically if empty")
    ssh_user: str = _far("ssh.user", "root", "user to log in to containers as")
    ssh_timeout: float = _far("ssh.timeout", 15.0, "seconds to wait for a container's answer", least=1)
    ssh_gateway: str = _far("ssh.gateway", "", "jump host to the containers: USER@HOST:PORT")
    ssh_gateway_key: str = _far("ssh.gateway-key", "", "private key for the jump host")
    container_engine: str = _far(
        "container.engine", "auto", "program that builds and checks images", among="auto docker podman"
    )
    storage_mounts: tuple[str, ...] = _far(
        "storage.mounts", (), "where shares are mounted here: CLUSTER/STORAGE=FOLDER or ADDRESS=FOLDER"
    )
    notify: tuple[str, ...] = _far(
        "notify", (), "hooks that are notified when jobs end, start or wait", form=HOOKS
    )
    engine_options: Mapping[str, str] = field(default_factory=dict)
    """Options of engines that are set, by the name of the setting."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown: tuple[str, ...] = field(default=(), repr=False)
    withheld: tuple[Claim, ...] = field(default=(), repr=False)
    overruled: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """The user's own values of settings that a project's files override."""

    @property
    def is_embedded(self) -> bool:
        """Whether commands use the embedded cluster."""
        return is_embedded(self.cluster_alias)

    def value(self, variable: Variable) -> Value:
        """Return a setting by its row in the table."""
        if variable.is_engine_option:
            return self.engine_options.get(variable.name, variable.default)
        found: Value = getattr(self, variable.field)
        return found

    def origin(self, variable: Variable) -> str:
        return self.origins.get(variable.name, BUILT_IN)

    def own(self, name: str) -> Value:
        """Return a setting from the user's own files, variables and flags, ignoring the project's."""
        return self.overruled.get(name, self.value(VARIABLES[name]))

    @classmethod
    def load(
        cls, config: Any = None, flags: Mapping[str, Any] | None = None, withhold: bool = False
    ) -> Settings:
        """Read all sources; ``config`` is Invoke's, ``flags`` are the values of flags by field name.

        Settings of a project that need trust and do not have it are an error, or ignored with ``withhold``.
        """
        values: dict[str, Any] = {}
        own: dict[str, Any] = {}
        origins = {name: BUILT_IN for name in VARIABLES}
        unknown: list[str] = []
        withheld: list[Claim] = []
        for layer in layers(config):
            unknown += _ignored_names(layer)
            doubted = trust.untrusted(claims(layer))
            withheld += doubted
            for variable, given, value in _known(layer):
                if all(claim.setting != variable.name for claim in doubted):
                    origins[variable.name] = origin = layer.naming.get(given, layer.origin)
                    values[variable.field] = variable.read(value, origin)
                    own |= {variable.field: values[variable.field]} if layer.is_own else {}
                    if layer.is_project and variable.reach == OUTSIDE:
                        values[variable.field] = trust.confine_sources(origin, values[variable.field])
        for key, value in (flags or {}).items():
            if value is not None and value != [] and value != ():
                variable = _BY_FIELD.get(key) or find(key)
                values[key] = own[key] = variable.read_option(value)
                origins[variable.name] = FLAG
        if values.get("clusters_in_local") or any(one.setting == "clusters-in-local" for one in withheld):
            withheld += trust.untrusted(trust.used_clusters(own_folder(Path.cwd()), not withhold))
        if withheld and not withhold:
            raise UntrustedSettings(withheld)
        overruled = {
            variable.name: own.get(key, variable.default)
            for key, variable in _BY_FIELD.items()
            if values.get(key) != own.get(key)
        }
        options = {key: values.pop(key) for key in [*values] if key not in _FIELDS}
        return cls(
            **{**_small_requests(values), **values},
            engine_options=options,
            origins=origins,
            unknown=tuple(unknown),
            withheld=tuple(withheld),
            overruled=overruled,
        )


def _small_requests(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the defaults on the embedded cluster, where an idle job must not take the whole machine.

    Its containers, unlike its processes, are killed if they use more memory than requested.
    """
    if not is_embedded(values.get("cluster_alias", LOCAL)):
        return {}
    is_limit = values.get("local_engine", engines.DEFAULT) != engines.DEFAULT
    return {"cpu": 1} if is_limit else {"cpu": 1, "memory_mb": 1024}


class Variable(NamedTuple):
    """A row of the table: name, allowed values and description of a setting."""

    name: str
    field: str
    default: Value
    about: str
    least: float | None
    among: tuple[str, ...]
    reach: str = ""
    form: str = ""  # TIME, KEEP, ENGINE, HOOKS, or the module of an engine's option

    @property
    def is_engine_option(self) -> bool:
        return "." in self.field

    @property
    def kind(self) -> type:
        return type(self.default)

    def shown(self, value: Value, is_claim: bool = False) -> Value:
        """Return a value without its secrets; as a claim, it has all that it would run."""
        if self.form == HOOKS and isinstance(value, tuple):
            return hooks.describe_all(value, has_commands=is_claim)
        return value

    def read(self, value: Any, origin: str) -> Value:
        """Convert a value to this setting's type; errors name its origin."""
        try:
            return self._convert(value, f"{origin}: {self.name}")
        except ValueError as err:
            raise ConfigError(f"{origin}: {self.name} {err}") from None

    def read_option(self, value: Any) -> Value:
        """Convert the value of an option with the name of this setting; errors name the option."""
        field = self.name.replace("-", "_")
        try:
            return self._convert(value, option(field))
        except ValueError as err:
            raise InvalidOption(field, str(err)) from None

    def _convert(self, value: Any, where: str) -> Value:
        if self.form == HOOKS:
            return tuple(one.dump() for one in hooks.parse_all(value))
        if self.among and isinstance(value, float):
            value = str(value)  # YAML reads 0.14 as a number
        if "true" in self.among and isinstance(switch := READERS[bool](value), bool):
            value = str(switch).lower()
        if self.form in FORMS and type(value) is int:
            value = str(value)
        read: Value | None = READERS[self.kind](value)
        if read is None:
            raise ValueError(f"must be {KINDS[self.kind]}, got {value!r}")
        if self.form:
            check = FORMS.get(self.form) or engines.load_form(self.form).check
            check(str(read), where)
        if self.least is not None and isinstance(read, (int, float)) and not read >= self.least:
            raise ValueError(f"must be at least {self.least:g}, got {value!r}")
        if isinstance(read, float) and not math.isfinite(read):
            raise ValueError(f"must be a finite number, got {value!r}")
        if self.among and read not in self.among:
            raise ValueError(f"must be one of {', '.join(self.among)}, got {value!r}")
        return read


def _spelling(name: object) -> str:
    """Normalise a name: ``memory_mb``, ``memory-mb`` and ``memoryMB`` are the same."""
    return "".join(char for char in str(name).lower() if char not in "-_.")


def _option_variables(kind: engines.EngineKind) -> list[Variable]:
    """Return the settings of an engine; their values are in ``Settings.engine_options``."""
    named = [(f"{LOCAL}.{one.name}", one) for one in kind.options]
    return [
        Variable(name, name, one.default, one.about, None, one.among, FAR, one.form) for name, one in named
    ]


VARIABLES: dict[str, Variable] = {
    item.metadata["name"]: Variable(field=item.name, default=cast(Value, item.default), **item.metadata)
    for item in dataclasses.fields(Settings)
    if item.metadata
}
VARIABLES |= {
    variable.name: variable for kind in engines.ENGINES.ours.values() for variable in _option_variables(kind)
}
_FIELDS = {item.name for item in dataclasses.fields(Settings)}
_BY_SPELLING = {_spelling(name): variable for name, variable in VARIABLES.items()}
_BY_FIELD = {variable.field: variable for variable in VARIABLES.values()}


def find(name: str) -> Variable:
    """Find a setting by its name, in any spelling."""
    found = _find(name)
    if found is None:
        raise ConfigError(f"{_unknown(name)} (known: {', '.join(VARIABLES)})")
    return found


def _find(name: str) -> Variable | None:
    wanted = _spelling(name)
    ours = _BY_SPELLING.get(wanted)
    if ours or not wanted.startswith(LOCAL):
        return ours
    return next((one for one in all_variables() if _spelling(one.name) == wanted), None)


def all_variables() -> list[Variable]:
    """Return all settings, also those of engines that other packages add."""
    added = engines.ENGINES.added().values()
    return [*VARIABLES.values(), *(one for kind in added for one in _option_variables(kind))]


def _unknown(name: object) -> str:
    import difflib

    near = difflib.get_close_matches(str(name), VARIABLES, 1)
    return f"no setting named {str(name)!r}" + (f", did you mean {near[0]}?" if near else "")


def _known(layer: Layer) -> Iterator[tuple[Variable, str, Any]]:
    """Yield the settings in the layer, each with the name used there and its value."""
    for given, value in layer.values.items():
        variable = _find(given)
        if variable and value not in (None, ""):
            yield variable, given, value


def _ignored_names(layer: Layer) -> list[str]:
    """Return a line for each ignored name, except those of older clients in files that we share with them."""
    old = {*(map(_spelling, OLD_NAMES) if layer.is_ours else ())}
    names = [name for name in layer.values if not _find(name) and _spelling(name) not in old]
    lines = [f"{layer.origin}: {_unknown(name)}" for name in names]
    return [layer.ignored, *lines] if layer.ignored else lines


def change_defaults(path: Path, values: Mapping[str, Value], remove: Sequence[str] = ()) -> list[str]:
    """Set and remove settings in a defaults.yaml, keeping the rest, safely for concurrent writers.

    Return those to remove that it had.
    """
    import yaml

    gone = {_spelling(name) for name in (*remove, *values)}
    with locked(path):
        before = flat(read_defaults(path))
        kept = {key: item for key, item in before.items() if _spelling(key) not in gone}
        kept |= {key: list(item) if isinstance(item, tuple) else item for key, item in values.items()}
        text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
        write_private(path, text)
    if trust.is_project_file(path):
        trust.remember(_typed_claims(path, values))
    had = {_spelling(key) for key in before}
    return [name for name in remove if _spelling(name) in had]


# Settings of a project that need trust


def claims(layer: Layer, base: Path | None = None) -> list[Claim]:
    """Return a project layer's settings that reach further than a job; sources are relative to ``base``."""
    found: dict[str, list[Claim]] = {}  # by setting, as a file may have several spellings of one
    for variable, _, value in _known(layer) if layer.is_project else ():
        read: Any = variable.read(value, layer.origin) if variable.reach else None
        if variable.reach == OUTSIDE:
            found[variable.name] = trust.sources_claims(layer.origin, read, base or Path.cwd())
        elif variable.reach:
            shown = variable.shown(read, is_claim=True)
            found[variable.name] = [trust.setting_claim(layer.origin, variable.name, read, shown)]
    return [claim for several in found.values() for claim in several]


def project_claims(folder: Path, base: Path) -> list[Claim]:
    """Return all claims of the files in a project folder, as seen by a command that runs in ``base``."""
    own = folder / ".openpai" / "defaults.yaml"
    found = claims(project_layer(defaults_layer(own)), base) if trust.is_project_file(own) else []
    for path in (folder / f"{name}.{suffix}" for name in PROGRAMS for suffix in ("yaml", "yml", "json")):
        values = section(read_defaults(path), str(path))
        found += claims(project_layer(Layer(str(path), values)), base)
    return found + trust.used_clusters(folder) + trust.debug_claims(folder)


def _typed_claims(path: Path, values: Mapping[str, Value]) -> list[Claim]:
    """Return the claims in a project's defaults.yaml that the user has just typed."""
    found = claims(project_layer(defaults_layer(path)))
    sources = values.get("sources")
    links = [trust.links_claim(str(path), sources)] if isinstance(sources, tuple) else []
    return links + [claim for claim in found if claim.setting in values]


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings that commands have in this folder; ``flags`` override every other source.

    A project's tasks.py is not run, so settings in its code do not count.
    """
    config, problem = load_config()
    loaded = Settings.load(config, flags)
    return dataclasses.replace(loaded, unknown=(problem, *loaded.unknown)) if problem else loaded
