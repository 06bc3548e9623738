"""Job templates: documents that can be submitted as they are or with other parameters.

A project's ``job_templates/`` comes before the folder of this package. A parameter is a key of the document's
``parameters``; the comment beside it is its description. YAML anchors carry values to fields that cannot hold
``<% %>``, such as ``instances``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError, InvalidOption, PathError, ProtocolError
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.problems import closest
from openpai_tasks.protocol.yaml import values
from openpai_tasks.sdk import ssh
from openpai_tasks.sdk.jobs import options as job_options
from openpai_tasks.sdk.jobs.options import Ask, JobOptions
from openpai_tasks.sdk.templates import rewriting
from openpai_tasks.settings import ownership
from openpai_tasks.settings.config import Settings
from openpai_tasks.text.hints import command, option

FOLDER = "job_templates"
SUFFIXES = (".yaml", ".yml")
LONGEST_DEFAULT = 24
OPTION_PARAMETERS = {
    "command": ("command",),
    "image": ("image",),
    "instances": ("nodes", "workers", "instances"),
    "cpu": ("cpus", "cpu"),
    "gpu": ("gpus", "gpu"),
    "memoryMB": ("memory", "memoryMB"),
    "shm": ("shm", "shmMB"),
}
"""Parameter names that each option may set; the first that the template has counts."""

log = logging.getLogger("openpai_tasks")

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a template, with its default and description."""

    name: str
    default: Any
    about: str = ""

    @property
    def text(self) -> str:
        """The default as a user would type it."""
        return _as_text(self.default)

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        return f"{self.name}={text if len(text) <= LONGEST_DEFAULT else text[: LONGEST_DEFAULT - 1] + '…'}"


@dataclass(frozen=True)
class Template:
    """A template; ``problem`` is the reason if it cannot be used."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    path: Path
    problem: str = ""


def packaged_folder() -> Path:
    """Return the folder of our templates: in the package, or beside it in a checkout."""
    package = Path(__file__).parents[2]
    inside = package / FOLDER
    return inside if inside.is_dir() else package.parent / FOLDER


def folders(project: Path) -> list[Path]:
    """Return the template folders: the nearest one from ``project`` upwards, then ours."""
    start = project.absolute()
    above = (folder / FOLDER for folder in (start, *start.parents))
    nearest = next((folder for folder in above if os.path.isdir(folder)), None)
    return [nearest, packaged_folder()] if nearest and _is_trusted(nearest) else [packaged_folder()]


@functools.cache
def _is_trusted(folder: Path) -> bool:
    """Return whether no other user can write the templates, which become jobs; warn once if so."""
    problem = ownership.tree_problem(folder)
    if problem:
        log.warning("warning: ignoring %s: %s", folder, problem)
    return not problem


def list_templates(project: Path) -> list[Template]:
    """Return all templates, the first of each name, including unusable ones."""
    return [_load(path) for _, path in sorted(_paths(project).items())]


def find_template(name: str, project: Path) -> Template:
    """Return the template of that name or file path."""
    template = _load(_path(name, project))
    if template.problem:
        raise ProtocolError(f"{template.path}: {template.problem}")
    return template


def fill(template: Template, parameters: Mapping[str, Any], name: str | None = None) -> str:
    """Return the job text with these parameters and name, comments included."""
    changes: dict[rewriting.Path, Any] = {}
    known = {parameter.name: parameter for parameter in template.parameters}
    for key, value in parameters.items():
        if key not in known:
            names = ", ".join(known) or "none"
            hint = closest(key, known)
            raise ConfigError(f"template {template.name!r} has no parameter {key!r} (known: {names}){hint}")
        changes["parameters", key] = _check_value(template, known[key], value)
    if name:
        changes["name",] = name
    text = rewriting.replace_values(_read(template.path), changes)
    protocol.validate(text)
    return text


@dataclass(frozen=True)
class WrittenJobFile:
    """A job file written from a template."""

    file: str
    template: str
    name: str


def write_job_file(
    template: Template, target: Path | None, parameters: Mapping[str, Any], force: bool
) -> WrittenJobFile:
    """Write a job file from the template, with the job named after the file."""
    path = target or Path()
    if os.path.isdir(path):
        path /= f"{template.name}{SUFFIXES[0]}"
    name = None if path.stem == template.name else re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)
    text = fill(template, parameters, name)
    _write(path, text, force)
    return WrittenJobFile(str(path), template.name, protocol.validate(text).name)


def _path(name: str, project: Path) -> Path:
    file = project / name
    if file.suffix in SUFFIXES and file.is_file():
        return file
    if "/" in name:
        raise PathError(f"no template file {name!r}; list the templates with `{command('job.templates')}`")
    found = _paths(project)
    try:
        return found[name.removesuffix(".yaml").removesuffix(".yml")]
    except KeyError:
        known = ", ".join(sorted(found))
        raise ConfigError(f"no template named {name!r} (known: {known}){closest(name, found)}") from None


def _paths(project: Path) -> dict[str, Path]:
    """Return the files of all templates by name; the first folder that has a name counts."""
    found: dict[str, Path] = {}
    for folder in folders(project):
        try:
            paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
        except OSError as err:
            raise PathError(f"cannot read the templates in {folder}: {err.strerror}") from err
        found = {path.stem: path for path in reversed(paths)} | found
    return found


def _load(path: Path) -> Template:
    try:
        text = _read(path)
        data = protocol.validate(text).data
    except (ProtocolError, PathError) as err:
        return Template(path.stem, "", (), path, str(err))
    places = rewriting.find_values(text)
    parameters = tuple(
        Parameter(name, default, places["parameters", name].remark)
        for name, default in (data.get("parameters") or {}).items()
        if ("parameters", name) in places  # absent if it comes from a YAML merge
    )
    return Template(path.stem, " ".join(data.get("description", "").split()), parameters, path)


def _read(path: Path) -> str:
    try:
        return read_limited(path)
    except (OSError, UnicodeDecodeError) as err:
        raise PathError(f"cannot read template {path}: {reason(err)}") from err


def _check_value(template: Template, parameter: Parameter, value: Any) -> Any:
    """Convert the value to the type of the default, or raise."""
    kind = type(parameter.default)
    if isinstance(value, str) and kind is not str:
        value = _parse_value(value, kind)
    elif kind is str and not isinstance(value, str):
        value = _as_text(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {bool: isinstance(value, bool), int: values.is_whole(value), float: is_number}
    if not fits.get(kind, kind not in (list, dict) or isinstance(value, kind)):
        where = f"template {template.name!r}: parameter {parameter.name!r}"
        raise ConfigError(f"{where} must be {_KINDS[kind]}, got {value!r}")
    return value


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (list, dict)) else values.text_of(value)


def _parse_value(text: str, kind: type) -> Any:
    if kind not in (list, dict):
        return values.plain(text)
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _write(path: Path, text: str, force: bool) -> None:
    """Write the file atomically; ``force`` allows overwriting."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        import tempfile

        with tempfile.TemporaryDirectory(prefix=".job-new-", dir=path.parent) as staging:
            draft = Path(staging, path.name)
            draft.write_text(text, encoding="utf-8")
            if force:
                os.replace(draft, path)
            else:
                _link(draft, path)
    except OSError as err:
        if isinstance(err, FileExistsError) and path.parent.is_dir():
            raise PathError(f"{str(path)!r} exists; choose another file, or replace it with --force") from err
        raise PathError(f"cannot write {str(path)!r}: {err.strerror}") from err


def _link(draft: Path, path: Path) -> None:
    """Give the draft its final name, unless a file of that name exists by now."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        with path.open("x", encoding="utf-8") as file:
            file.write(draft.read_text(encoding="utf-8"))


# Options of `job.sub` in a template


def build_request(options: JobOptions, settings: Settings, ask: Ask, here: Path) -> JobRequest:
    """Build the request of ``job.sub``, with its template and the key for ssh logins."""
    request = dataclasses.replace(
        job_options.build_request(options, settings, ask),
        ssh_key=ssh.public_key(settings) if options.needs_ssh else "",
        base=fill_template(options, here),
    )
    job_options.check_commands(request)
    return request


def build_changes(options: JobOptions, settings: Settings, ask: Ask) -> JobRequest:
    """Build the request of ``job.resubmit``, with the hooks of every job and the key for ssh logins."""
    return dataclasses.replace(
        job_options.build_changes(options, ask),
        hooks=job_options.request_hooks(options, settings),
        ssh_key=ssh.public_key(settings) if options.needs_ssh else "",
    )


def fill_template(options: JobOptions, here: Path) -> dict[str, Any] | None:
    """Return the template's document, filled from the other options and its parameters."""
    if not options.template:
        if options.parameter:
            raise InvalidOption("parameter", f"needs {option('template')}")
        return None
    template = find_template(options.template, here)
    text = fill(template, {**_choose_parameters(template, options), **options.parameter})
    filled: dict[str, Any] = protocol.read(text).value
    return filled


def _choose_parameters(template: Template, options: JobOptions) -> dict[str, Any]:
    known = [one.name for one in template.parameters]
    chosen: dict[str, Any] = {}
    for name, parameters in OPTION_PARAMETERS.items():
        value = getattr(options, name)
        if value in (None, ""):
            continue
        parameter = next((name for name in parameters if name in known), None)
        if parameter is None:
            what, names = "a command" if name == "command" else option(name), ", ".join(known) or "none"
            raise ConfigError(f"template {template.name!r} has no parameter for {what} (it has: {names})")
        chosen[parameter] = value
    return chosen
