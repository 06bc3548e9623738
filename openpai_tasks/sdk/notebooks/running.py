"""Plan a job that runs a notebook: read the file, check the options, build the submission."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import json
import keyword
import numbers
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest, fields
from openpai_tasks.protocol.document.template import OPEN
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.yaml import limited
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.submission import Submission, prepare, short_name
from openpai_tasks.sdk.notebooks.cluster_cells import (
    describe_cluster_cells,
    parse_cell,
    without_cluster_cells,
)
from openpai_tasks.sdk.notebooks.notebook_file import Notebook
from openpai_tasks.sdk.notebooks.origins import safe_notebook_name
from openpai_tasks.sdk.payloads import notebook_runner as runner
from openpai_tasks.storage.job_files.sources import SourceFile
from openpai_tasks.text import durations

MARK = "openpaiNotebook"
"""Key in a job's extras with the notebook it runs and its options."""
RUNNER = ".pai-notebook.py"
"""Name of the runner in the job's working folder."""
FORMATS = ("ipynb", *runner.FORMATS)
WARNING = "warning: "


@dataclass(frozen=True)
class RunOptions:
    """Options for a notebook run."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = ("html",)
    kernel: str = ""
    cell_seconds: int | None = None
    allow_errors: bool = False

    def words(self) -> list[str]:
        """Return the runner's flags."""
        words: list[str] = []
        if self.parameters:
            words += ["--parameters", parameters_json(self.parameters)]
        if self.formats != ("html",):
            words += ["--to", ",".join(self.formats)]
        if self.kernel:
            words += ["--kernel", self.kernel]
        if self.cell_seconds is not None:
            words += ["--timeout-per-cell", str(self.cell_seconds)]
        return words + (["--allow-errors"] if self.allow_errors else [])


@dataclass(frozen=True)
class RunMark:
    """The notebook and options in a job's extras."""

    file: str
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def stem(self) -> str:
        return Path(self.file).stem


# Options


def run_options(
    given: Mapping[str, Any],
    formats: Iterable[str] = (),
    kernel: str = "",
    cell_time: str = "",
    allow_errors: bool = False,
) -> RunOptions:
    """Build options from flags."""
    return RunOptions(
        given,
        parse_formats(formats),
        kernel,
        amounts.read("timeout_per_cell", durations.seconds, cell_time) if cell_time else None,
        allow_errors,
    )


def parse_parameters(texts: Iterable[str]) -> dict[str, Any]:
    """Parse ``name=value`` texts into typed values; refuse duplicate names."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigError(f"-p needs name=value, got {text!r}")
        _check_name(name, "-p")
        if name in found:
            raise ConfigError(f"-p: {name!r} is given twice")
        found[name] = parse_value(value, f"-p {name}")
    return found


def check_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check parameters that are Python values, and make them plain JSON values."""
    for name in values:
        _check_name(name, "parameters")
    return {name: plain_value(value, f"the parameter {name!r}") for name, value in values.items()}


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f"{where}: {name!r} is not a valid name for a Python variable")
    if name.startswith("__") and name.endswith("__"):
        raise ConfigError(f"{where}: {name!r} is reserved by Python and cannot be a parameter")


def parse_formats(names: Iterable[str]) -> tuple[str, ...]:
    """Return the formats to convert to, besides the notebook itself."""
    wanted = [part.strip().lower() for name in names for part in name.split(",") if part.strip()]
    for name in wanted:
        if name not in FORMATS:
            raise ConfigError(f"--to must be one of {', '.join(FORMATS)}, got {name!r}")
    return tuple(dict.fromkeys(name for name in wanted if name != "ipynb")) if wanted else ("html",)


def remarks(notebook: Notebook, given: RunOptions) -> list[str]:
    """Return notes and warnings to show before sending; refuse parameters for other languages than Python."""
    is_own_kernel = given.kernel in ("", notebook.kernel)  # with another kernel, the job checks the language
    if given.parameters and is_own_kernel and notebook.language.lower() != "python":
        language = f"{notebook.name} is in {notebook.language}"
        raise ConfigError(f"-p works for Python notebooks only, and {language}")
    lines = describe_cluster_cells(notebook)
    if notebook.version == 3:
        lines.append(f"{notebook.name} has notebook format 3; the job converts it to format 4")
    if not notebook.kernel and not given.kernel:
        lines.append(f"{notebook.name} names no kernel; using python3 (choose another with --kernel NAME)")
    hidden = [name for name in given.parameters if hasattr(builtins, name)]
    lines += [f"parameter {name!r} hides the Python builtin of the same name" for name in hidden]
    return lines + (_parameter_remarks(notebook, given) if given.parameters and notebook.version == 4 else [])


def as_line(remark: str) -> str:
    """Return a remark as it is shown: as a note unless it is a warning."""
    return remark if remark.startswith(WARNING) else f"note: {remark}"


def _parameter_remarks(notebook: Notebook, given: RunOptions) -> list[str]:
    """Say where the values are set, and warn about those that do not count."""
    cells = [
        (number, cell)
        for number, cell in enumerate(without_cluster_cells(notebook).cells, 1)
        if runner.INJECTED not in runner.tags_of(cell)  # which is replaced
    ]
    code = [runner.source_of(cell) for _, cell in cells if cell["cell_type"] == "code"]
    unused = [name for name in given.parameters if not re.search(rf"\b{name}\b", "\n".join(code))]
    place = runner.parameters_cell([cell for _, cell in cells], given.parameters)
    lines = [_place_remark(notebook, cells[place - 1] if place else None)]
    if place and not lines[0]:
        known = _assigned_names(runner.source_of(cells[place - 1][1]))
        lost = [name for name in given.parameters if known and name not in known and name not in unused]
        which = f"the cell tagged {runner.PARAMETERS!r}"
        lines += [f"{which} does not set {name!r} (it sets: {', '.join(known)})" for name in lost]
    lines += [f"{WARNING}nothing in {notebook.name} uses the parameter {name!r}" for name in unused]
    return [*filter(None, lines), *_reset_warnings(cells[place:], given.parameters)]


def _place_remark(notebook: Notebook, place: tuple[int, dict[str, Any]] | None) -> str:
    """Say where the values are set if no cell is tagged."""
    untagged = f"no cell of {notebook.name} is tagged {runner.PARAMETERS!r}: the values are set"
    if place is None:
        return f"{untagged} at the top"
    number, cell = place
    if runner.PARAMETERS in runner.tags_of(cell):
        return ""
    return f"{untagged} after cell {number} ({runner.first_line(cell)})"


def _reset_warnings(cells: Iterable[tuple[int, dict[str, Any]]], names: Iterable[str]) -> list[str]:
    """Warn about parameters that a later cell sets again."""
    found: dict[str, int] = {}
    for number, cell in cells:
        tree = parse_cell(runner.source_of(cell)) if cell["cell_type"] == "code" else None
        for name in _reset_names(tree.body if tree else []):
            found.setdefault(name, number)
    return [
        f"{WARNING}cell {found[name]} sets {name!r} again: the parameter counts only before it"
        for name in names
        if name in found
    ]


def _reset_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements set whatever happens, and not from their own values."""
    found: set[str] = set()
    for one in body:
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found |= _names(targets, ast.Store) - _names([one.value], ast.Load)
        elif isinstance(one, ast.For):
            found |= _names([one.target], ast.Store) - _names([one.iter], ast.Load)
        if isinstance(one, (ast.For, ast.While, ast.With)):
            found |= _reset_names(one.body)
    return found


def _names(nodes: Iterable[ast.AST], use: type[ast.expr_context]) -> set[str]:
    """Return the names that are read or set."""
    found = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return {name.id for name in found if isinstance(name.ctx, use)}


def _assigned_names(source: str) -> list[str]:
    """Return the variables that a cell sets; empty if it is not plain Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Store)))


# Values of parameters: YAML without its pitfalls

_NULL = re.compile(r"null|Null|NULL|~|None")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_KINDS = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT))


class _Loader(limited.Loader):
    """YAML loader in which `1e-3` is a number, and `yes`, `012` and `2024-01-31` are strings."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - declared so by PyYAML


for _kind, _pattern in _KINDS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_pattern.pattern})$"), None)


def parse_value(text: str, where: str) -> Any:
    """Parse a number, boolean, null, list or mapping; return any other text unchanged."""
    word = text.strip()
    is_scalar = any(pattern.fullmatch(word) for _, pattern in _KINDS)
    if not is_scalar and word[:1] not in ("[", "{", '"', "'"):
        return text
    try:
        value = limited.load(word, _Loader)
    except limited.InvalidYaml as err:
        raise ConfigError(
            f"{where}: {text!r} is not valid YAML ({err.problem}); quote text that begins with a bracket"
        ) from err
    return plain_value(value, where)


def plain_value(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types, or raise."""
    try:
        return _plain(value, where)
    except RecursionError:
        raise ConfigError(f"{where}: the value contains itself or is nested too deeply") from None


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str(value), where)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, Mapping):
        return {_name(name, where): _plain(item, where) for name, item in value.items()}
    kinds = "numbers, booleans, None, strings, and lists and mappings of these"
    raise ConfigError(f"{where}: cannot send a value of type {type(value).__name__}; allowed are {kinds}")


def _name(name: Any, where: str) -> str:
    """Check a mapping's key, which must be a string in JSON."""
    if isinstance(name, str):
        return _text(str(name), where)
    raise ConfigError(f"{where}: keys of a mapping must be strings, got {name!r}; put it in quotes")


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: {text!r} is not valid Unicode") from None
    return text


# The job


def runner_call(file: str, given: RunOptions) -> str:
    """Return the runner and its arguments, with ``<%`` escaped so that it is not a template hole."""
    name = f"./{file}" if file.startswith("-") else file
    return shlex.join([RUNNER, name, *given.words()]).replace(OPEN, "''".join(OPEN))  # shlex always quotes it


def parameters_json(parameters: Mapping[str, Any]) -> str:
    """Encode parameters as a JSON string, as servers reformat numbers in a document."""
    return json.dumps(parameters, ensure_ascii=False).replace(OPEN, "\\u003c%")


def plan_run(
    client: Backend,
    notebook: Notebook,
    given: RunOptions,
    request: JobRequest,
    here: Path,
    mounts: Mounts = (),
) -> Submission:
    """Prepare the job that runs the notebook, with the runner and the sources; send nothing."""
    request = dataclasses.replace(
        request,
        command=f"{shlex.quote(request.python)} {runner_call(notebook.name, given)}",
        name=request.name or f"{job_name_stem(notebook.stem)}-$",
        extras={MARK: run_mark(notebook.name, given)},
    )
    made = prepare(client, request, here, mounts, job_files(notebook))
    return add_source(made, os.path.relpath(notebook.path, here))


def add_source(made: Submission, path: str) -> Submission:
    """Record one more source: the notebook, which is sent as a modified copy."""
    assert made.origin is not None
    sources = (*made.origin.sources, path)
    return dataclasses.replace(made, origin=dataclasses.replace(made.origin, sources=sources))


def job_files(notebook: Notebook) -> list[SourceFile]:
    """Return the notebook as it is sent, and the runner."""
    sent = without_cluster_cells(notebook).as_sent()
    own = source_file(Path(runner.__file__), RUNNER)
    return [SourceFile.from_bytes(sent, notebook.name, notebook.path), own]


def source_file(path: Path, name: str) -> SourceFile:
    """Return a file of this machine as a source with this name in the job."""
    return SourceFile(path, name, path.stat().st_size)


def job_name_stem(stem: str) -> str:
    """Return the notebook's name as the start of a job name."""
    return short_name(stem) if re.search(r"[A-Za-z0-9]", stem) else "notebook"


def run_mark(file: str, given: RunOptions) -> dict[str, Any]:
    """Build the mark for the job's extras."""
    mark: dict[str, Any] = {"file": file, "formats": list(given.formats)}
    if given.parameters:
        mark["parameters"] = parameters_json(given.parameters)
    if given.kernel:
        mark["kernel"] = given.kernel
    if given.cell_seconds is not None:
        mark["cellSeconds"] = given.cell_seconds
    return mark | ({"allowErrors": True} if given.allow_errors else {})


def read_run_mark(document: Mapping[str, Any]) -> RunMark | None:
    """Read the mark from a job's document; None if the job runs no notebook."""
    mark = fields.mapping(fields.mapping(document.get("extras")).get(MARK))
    file = safe_notebook_name(mark.get("file"))
    options = RunOptions(
        parameters=_parameters(mark.get("parameters")),
        formats=tuple(name for name in fields.texts(mark.get("formats")) if name in FORMATS),
        kernel=fields.text(mark.get("kernel")),
        cell_seconds=fields.whole(mark.get("cellSeconds")),
        allow_errors=bool(mark.get("allowErrors")),
    )
    return RunMark(file, options) if file else None


def _parameters(mark: Any) -> dict[str, Any]:
    try:
        return fields.mapping(parse(mark, float) if isinstance(mark, str) else mark)
    except ValueError:
        return {}
