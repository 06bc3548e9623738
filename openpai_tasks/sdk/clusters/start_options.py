"""What the embedded cluster is started with: flags, settings, and what its home was last started with.

Every start repeats the last one of the home. A flag of `cluster.start` counts more than that, and so does a
setting that is set to something else than it was then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, cast

from openpai_tasks.errors import ConfigError, InvalidOption, TimedOut
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.problems import closest
from openpai_tasks.settings.config import BUILT_IN, VARIABLES, Settings, find
from openpai_tasks.settings.engines import AUTO, DEFAULT, ENGINES, REFUSE_GPUS, choose_engine
from openpai_tasks.settings.home import home, write_private
from openpai_tasks.settings.keeping import EVERYTHING
from openpai_tasks.settings.registry import LOCAL
from openpai_tasks.text.hints import command

UNION = "union"  # of the routes of every generation
_FILE = "start.json"
_OLD_FILE = "engine"  # of version 0.1, with its name alone


@dataclass(frozen=True)
class LocalOptions:
    """Options of the server."""

    engine: str = DEFAULT
    enforce: str = REFUSE_GPUS
    port: int = 0  # 0: the last one, or any
    profile: str = UNION
    ssh: str = "auto"
    body_limit: int = 100  # KB
    keep: str = EVERYTHING  # limits of finished jobs
    storages: tuple[str, ...] = ()  # NAME=FOLDER
    engine_options: Mapping[str, str] = field(default_factory=dict)  # of all engines, by their setting

    def values(self) -> dict[str, Any]:
        """Return all options by name; that of an engine's option is its setting."""
        found: dict[str, Any] = dataclasses.asdict(cast(Any, self))
        del found["engine_options"]
        return found | dict(self.engine_options)

    def changed(self, values: Mapping[str, Any]) -> LocalOptions:
        """Return these options with other values, by the names of ``values()``."""
        own = {name: value for name, value in values.items() if name in SETTINGS or name == "port"}
        others = {name: value for name, value in values.items() if name not in own}
        return dataclasses.replace(self, **own, engine_options={**self.engine_options, **others})

    def of_engine(self) -> dict[str, str]:
        """Return the options of the chosen engine, by the names that it knows."""
        names = {f"{LOCAL}.{one.name}": one.name for one in ENGINES[self.engine].options}
        return {names[name]: value for name, value in self.engine_options.items() if name in names}


SETTINGS = {
    "engine": "local.engine",
    "enforce": "local.enforce",
    "profile": "local.profile",
    "ssh": "local.ssh",
    "body_limit": "local.body-limit",
    "keep": "local.keep",
    "storages": "storage.mounts",
}
"""The setting of each option; the port has none, and options of engines have their setting's name."""


@dataclass(frozen=True)
class StartRequest:
    """What a command asks for: its flags, and below them the settings."""

    options: LocalOptions
    flags: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  # those that are not built in
    fresh: bool = False  # whatever the last start was given

    def merged(self, last: LastStart) -> LocalOptions:
        """Return the options of the next start."""
        if self.fresh:
            return self.options
        kept = {name: value for name, value in last.options.items() if not self._decides(name, last)}
        return self.options.changed(kept)

    def _decides(self, name: str, last: LastStart) -> bool:
        is_changed = name in self.settings and self.settings[name] != last.settings.get(name)
        return name in self.flags or is_changed


@dataclass(frozen=True)
class LastStart:
    """What a home was last started with, and the settings that were not built in then."""

    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    engine: str = DEFAULT  # the one that ``auto`` has chosen


def start_request(
    settings: Settings,
    port: int | None = None,
    engine: str | None = None,
    fresh: bool = False,
    options: Sequence[str] = (),
) -> StartRequest:
    """Return what the settings and the flags of `cluster.start` ask for; ``options`` are NAME=VALUE."""
    of_engines = [name for name, variable in VARIABLES.items() if variable.is_engine_option]
    names = {**SETTINGS, **{name: name for name in (*of_engines, *settings.engine_options)}}
    given: dict[str, Any] = {name: settings.value(find(setting)) for name, setting in names.items()}
    given["storages"] = embedded_storages(given["storages"])
    flags = {name: value for name, value in {"port": port, "engine": engine}.items() if value is not None}
    if options:  # otherwise, engines of other packages need not be looked for
        flags |= _engine_flags(engine or given["engine"], options)
    chosen = {
        name: given[name] for name, setting in names.items() if settings.origin(find(setting)) != BUILT_IN
    }
    return StartRequest(LocalOptions().changed({**given, **flags}), flags, chosen, fresh)


def _engine_flags(engine: str, words: Sequence[str]) -> dict[str, str]:
    """Return options of engines by their settings; the name of one of ``engine`` may lack its prefix."""
    known = {one.name: one for kind in ENGINES.values() for one in kind.options}
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidOption("option", f"needs NAME=VALUE, got {word!r}")
        full = name if name in known else f"{engine}-{name}"
        if full not in known:
            names = [one.removeprefix(f"{engine}-") for one in known]
            raise InvalidOption("option", f": no engine has an option {name!r}{closest(name, names)}")
        is_path = known[full].is_path and value
        found[f"{LOCAL}.{full}"] = os.path.abspath(os.path.expanduser(value)) if is_path else value
    return found


def check_engine_flags(request: StartRequest, engine: str) -> None:
    """Raise for an option of another engine than the one that is started."""
    known = [f"{LOCAL}.{one.name}" for one in ENGINES[engine].options]
    for name in request.flags:
        if name.startswith(f"{LOCAL}.") and name not in known:
            raise InvalidOption("option", f": the engine {engine} has no option {name.partition('.')[2]!r}")


def embedded_storages(rows: tuple[str, ...]) -> tuple[str, ...]:
    """Return the storages of the embedded cluster in a mount map; its ``home`` is always there."""
    own = (row.removeprefix(f"{LOCAL}/").partition("=") for row in rows if row.startswith(f"{LOCAL}/"))
    return tuple(f"{name}={Path(os.path.expanduser(folder))}" for name, _, folder in own if name != "home")


def next_engine(settings: Settings, folder: Path) -> str:
    """Return the engine of the next start."""
    return choose_engine(start_request(settings).merged(read_last(folder)).engine)


def read_last(folder: Path) -> LastStart:
    """Return what the home was last started with; empty before its first start."""
    path = folder / _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        options, settings = (
            {name: _value(value) for name, value in found[part].items() if _is_known(name)}
            for part in ("options", "settings")
        )
        return LastStart(options, settings, str(found["engine"]))
    except FileNotFoundError:
        return _read_old(folder / _OLD_FILE)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        hint = "remove it to start the embedded cluster with your settings"
        raise ConfigError(f"cannot read {path}: {hint}") from err


def forget_settings(names: Collection[str]) -> None:
    """Let the next start choose the options anew that these removed settings had decided."""
    folder = home() / LOCAL
    path, last = folder / _FILE, read_last(folder)
    kept = {
        name: value
        for name, value in last.options.items()
        if SETTINGS.get(name, name) not in names or value != last.settings.get(name)
    }
    if len(kept) < len(last.options) and path.exists():
        changed = dataclasses.replace(last, options=kept)
        write_private(path, json.dumps(dataclasses.asdict(cast(Any, changed))) + "\n")


def _read_old(path: Path) -> LastStart:
    try:
        engine = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return LastStart()
    return LastStart({"engine": engine}, engine=engine)


def _is_known(name: str) -> bool:
    return name in SETTINGS or name == "port" or name.startswith(f"{LOCAL}.")


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@contextlib.contextmanager
def record_start(folder: Path, start: LastStart) -> Iterator[None]:
    """Record a start that the block makes; if it fails, what was recorded before stays."""
    path = folder / _FILE
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_private(path, json.dumps(dataclasses.asdict(cast(Any, start))) + "\n")
    try:
        yield
    except TimedOut:  # the server is still starting
        raise
    except Exception:
        if before is None:
            path.unlink()
        else:
            write_private(path, before)
        raise
    (folder / _OLD_FILE).unlink(missing_ok=True)


def kept_line(request: StartRequest, options: LocalOptions) -> str:
    """Return a line about what a start kept from the last one although the settings differ; may be empty."""
    now, wanted = options.values(), request.options.values()
    kept = [
        f"{SETTINGS.get(name, name)}={format_value(value)}"
        for name, value in now.items()
        if name != "port" and value != wanted.get(name)
    ]
    hint = (
        f"`{command('cluster.stop')}` and `{command('cluster.start', '--fresh')}` use your settings instead"
    )
    return f"kept from its last start: {', '.join(kept)}; {hint}" if kept else ""


def running_options(running: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a running server by name, from the facts that it has written."""
    of_engine = running.get("engine_options", {})  # a server of an older version has none
    return {**running, **{f"{LOCAL}.{name}": value for name, value in of_engine.items()}}


def differing_lines(request: StartRequest, last: LastStart, running: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each option that differs from that of the running server: the next start uses it."""
    facts = running_options(running)
    for name, wanted in request.merged(last).values().items():
        now = _value(facts.get(name))
        if name != "port" and now is not None and now != wanted and wanted != AUTO:
            setting, restart = SETTINGS.get(name, name), command("cluster.restart")
            before, after = format_value(now), format_value(wanted)
            yield f"{setting} is still {before}; it changes to {after} after `{restart}`"


def format_value(value: Any) -> str:
    """Return a value as users write it in settings."""
    if isinstance(value, tuple):
        return ",".join(value) or "empty"
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"
