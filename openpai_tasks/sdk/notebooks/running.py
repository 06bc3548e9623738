"""A notebook as a job: what it is, what it is run with, and the submission made of both."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import json
import keyword
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol import JobRequest, fields
from openpai_tasks.protocol.document.template import OPEN
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.submission import Submission, prepare, short_name
from openpai_tasks.sdk.notebooks import cells as notebook_cells
from openpai_tasks.sdk.notebooks.origins import notebook_name
from openpai_tasks.sdk.notebooks.travelling import staying, travelling
from openpai_tasks.sdk.notebooks.values import plain_value, read_value
from openpai_tasks.sdk.payloads import notebook_runner as runner
from openpai_tasks.storage.job_files.sources import SourceFile

MARK = "openpaiNotebook"
"""The key of a job's extras that says which notebook it runs, and with what."""
RUNNER = ".pai-notebook.py"
"""What the runner is called in the job's working folder."""
FORMATS = ("ipynb", *runner.FORMATS)
SUFFIX = ".ipynb"


@dataclass(frozen=True)
class Notebook:
    """A notebook here, and the relative name it gets in the job's working folder."""

    path: Path
    name: str
    content: dict[str, Any] = field(repr=False)

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def version(self) -> int:
        return int(self.content["nbformat"])

    @property
    def kernel(self) -> str:
        """The one it names; empty if it names none."""
        spec = self.content["metadata"].get("kernelspec")
        return str(spec.get("name") or "") if isinstance(spec, dict) else ""

    @property
    def language(self) -> str:
        """As it says itself; Python if it says nothing."""
        for key, name in (("kernelspec", "language"), ("language_info", "name")):
            told = self.content["metadata"].get(key)
            if isinstance(told, dict) and told.get(name):
                return str(told[name])
        return "python"

    @property
    def cells(self) -> list[dict[str, Any]]:
        return list(self.content.get("cells", ()))

    def as_sent(self) -> bytes:
        """Its text without outputs, which the run makes anew: they may be large, and they change the hash."""
        sent = runner.cleared(self.content) if self.version == 4 else self.content
        return json.dumps(sent, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


@dataclass(frozen=True)
class Options:
    """What a notebook is run with."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = ("html",)
    kernel: str = ""
    cell_seconds: int | None = None
    allow_errors: bool = False

    def words(self) -> list[str]:
        """The flags of the runner."""
        words: list[str] = []
        if self.parameters:
            words += ["--parameters", as_text(self.parameters)]
        if self.formats != ("html",):
            words += ["--to", ",".join(self.formats)]
        if self.kernel:
            words += ["--kernel", self.kernel]
        if self.cell_seconds is not None:
            words += ["--timeout-per-cell", str(self.cell_seconds)]
        return words + (["--allow-errors"] if self.allow_errors else [])


@dataclass(frozen=True)
class Mark:
    """What a job says of its notebook."""

    file: str
    options: Options = field(default_factory=Options)

    @property
    def stem(self) -> str:
        return Path(self.file).stem


# The notebook


def read_notebook(file: str, here: Path) -> Notebook:
    """The notebook in a file, or one line that says why there is none."""
    path = Path(os.path.normpath(here / Path(file).expanduser()))
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise PathError(f"{file!r} is {what}; name a notebook ({SUFFIX})")
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogatepass")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise PathError(f"cannot read the notebook {file!r}: {reason}") from err
    name = os.path.relpath(path, here)
    name = path.name if name.startswith(os.pardir) else name
    return Notebook(path, name, _content(text, file))


def _content(text: str, file: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as err:
        where = f", line {err.lineno}" if isinstance(err, json.JSONDecodeError) else ""
        raise PathError(f"{file!r} is no notebook: it is not JSON{where}") from err
    version = found.get("nbformat") if isinstance(found, dict) else None
    if not isinstance(version, int) or not isinstance(found.get("metadata", {}), dict):
        raise PathError(f"{file!r} is no notebook: it is JSON, but does not say its format (nbformat)")
    if version not in (3, 4):
        hint = "open and save it with Jupyter" if version < 3 else "the newest known is 4"
        raise PathError(f"{file!r} is a notebook of format {version}: {hint}")
    found.setdefault("metadata", {})
    cells = found.get("cells" if version == 4 else "worksheets")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise PathError(f"{file!r} is no notebook: it has no cells")
    return notebook_cells.mended(found, f"{file!r} is no notebook") if version == 4 else dict(found)


# What it is run with


def run_options(
    given: Mapping[str, Any],
    formats: Iterable[str] = (),
    kernel: str = "",
    cell_time: str = "",
    allow_errors: bool = False,
) -> Options:
    """What the flags say."""
    return Options(
        given,
        chosen_formats(formats),
        kernel,
        amounts.parse_seconds(cell_time, "--timeout-per-cell") if cell_time else None,
        allow_errors,
    )


def parse_parameters(texts: Iterable[str]) -> dict[str, Any]:
    """``name=value`` as typed values; each name once."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigError(f"-p needs name=value, got {text!r}")
        _check_name(name, "-p")
        if name in found:
            raise ConfigError(f"-p: {name!r} is given twice")
        found[name] = read_value(value, f"-p {name}")
    return found


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that are values already, as far as a job can carry them."""
    for name in values:
        _check_name(name, "parameters")
    return {name: plain_value(value, f"the parameter {name!r}") for name, value in values.items()}


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f"{where}: {name!r} cannot be the name of a Python variable")
    if name.startswith("__") and name.endswith("__"):
        raise ConfigError(f"{where}: {name!r} is a name of Python itself, and cannot be a parameter")


def chosen_formats(names: Iterable[str]) -> tuple[str, ...]:
    """The formats beside the notebook itself, which is always there."""
    wanted = [part.strip().lower() for name in names for part in name.split(",") if part.strip()]
    for name in wanted:
        if name not in FORMATS:
            raise ConfigError(f"--to must be one of {', '.join(FORMATS)}, got {name!r}")
    return tuple(dict.fromkeys(name for name in wanted if name != "ipynb")) if wanted else ("html",)


def remarks(notebook: Notebook, given: Options) -> list[str]:
    """What a person should know before it is sent; what cannot be is refused."""
    is_as_it_says = given.kernel in ("", notebook.kernel)  # of another kernel the job looks at the language
    if given.parameters and is_as_it_says and notebook.language.lower() != "python":
        language = f"{notebook.name} is in {notebook.language}"
        raise ConfigError(f"-p can set variables of Python notebooks only, and {language}")
    said = staying(notebook)
    if notebook.version == 3:
        said.append(f"{notebook.name} is a notebook of format 3; the job converts it to format 4")
    if not notebook.kernel and not given.kernel:
        said.append(f"{notebook.name} names no kernel; python3 is taken (--kernel NAME for another one)")
    hidden = [name for name in given.parameters if hasattr(builtins, name)]
    said += [f"the parameter {name!r} hides what Python has by that name" for name in hidden]
    return said + (_of_parameters(notebook, given) if given.parameters and notebook.version == 4 else [])


def _of_parameters(notebook: Notebook, given: Options) -> list[str]:
    tagged = [cell for cell in notebook.cells if runner.PARAMETERS in runner.tags_of(cell)]
    if not tagged:
        return [f"no cell of {notebook.name} is tagged {runner.PARAMETERS!r}: the values are set at its top"]
    known = _assigned(runner.source_of(tagged[0]))
    lost = [name for name in given.parameters if known and name not in known]
    return [f"the cell with the parameters sets no {name!r} (it sets: {', '.join(known)})" for name in lost]


def _assigned(source: str) -> list[str]:
    """The variables that a cell sets; none where it is not plain Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    names = [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(names))


# The job


def command(python: str, file: str, given: Options) -> str:
    """What the job runs."""
    return f"{shlex.quote(python)} {call(file, given)}"


def call(file: str, given: Options) -> str:
    """The runner and its words, without the python that runs it; a ``<%`` in them is no hole to be filled."""
    name = f"./{file}" if file.startswith("-") else file
    return shlex.join([RUNNER, name, *given.words()]).replace(OPEN, "''".join(OPEN))  # which is always quoted


def as_text(parameters: Mapping[str, Any]) -> str:
    """Parameters as JSON that stays as it is: servers write the numbers of a document in their own way."""
    return json.dumps(parameters, ensure_ascii=False).replace(OPEN, "\\u003c%")


def plan_run(
    client: Backend,
    notebook: Notebook,
    given: Options,
    request: JobRequest,
    here: Path,
    mounts: Mounts = (),
) -> Submission:
    """The job that runs the notebook, with the runner and the sources; nothing is sent yet."""
    request = dataclasses.replace(
        request,
        command=command(request.python, notebook.name, given),
        name=request.name or f"{job_word(notebook.stem)}-$",
        extras={MARK: mark(notebook.name, given)},
    )
    with tempfile.TemporaryDirectory() as folder:
        made = prepare(client, request, here, mounts, files(notebook, Path(folder)))
    return with_source(made, os.path.relpath(notebook.path, here))


def with_source(made: Submission, path: str) -> Submission:
    """The submission with one more file among the sources on record: it travels in a form of ours."""
    assert made.origin is not None
    sources = (*made.origin.sources, path)
    return dataclasses.replace(made, origin=dataclasses.replace(made.origin, sources=sources))


def files(notebook: Notebook, folder: Path) -> list[SourceFile]:
    """The notebook as it is sent (a copy in ``folder``), and the runner."""
    copy, own = folder / "notebook", Path(runner.__file__)
    copy.write_bytes(travelling(notebook).as_sent())
    return [SourceFile(copy, notebook.name, copy.stat().st_size), SourceFile(own, RUNNER, own.stat().st_size)]


def job_word(stem: str) -> str:
    """The notebook's name as names of jobs have it."""
    return short_name(stem) if re.search(r"[A-Za-z0-9]", stem) else "notebook"


def mark(file: str, given: Options) -> dict[str, Any]:
    """What the job's extras say of its notebook."""
    told: dict[str, Any] = {"file": file, "formats": list(given.formats)}
    if given.parameters:
        told["parameters"] = as_text(given.parameters)
    if given.kernel:
        told["kernel"] = given.kernel
    if given.cell_seconds is not None:
        told["cellSeconds"] = given.cell_seconds
    return told | ({"allowErrors": True} if given.allow_errors else {})


def mark_of(document: Mapping[str, Any]) -> Mark | None:
    """Which notebook a job runs; nothing for a job that runs none."""
    extras = document.get("extras")
    told = extras.get(MARK) if isinstance(extras, dict) else None
    file = notebook_name(told.get("file")) if isinstance(told, dict) else ""
    if not isinstance(told, dict) or not file:
        return None
    seconds, formats = told.get("cellSeconds"), told.get("formats")
    return Mark(
        file,
        Options(
            parameters=_parameters(told.get("parameters")),
            formats=tuple(name for name in fields.texts(formats) if name in FORMATS),
            kernel=fields.text(told.get("kernel")),
            cell_seconds=fields.whole(seconds),
            allow_errors=bool(told.get("allowErrors")),
        ),
    )


def _parameters(told: Any) -> dict[str, Any]:
    try:
        return fields.mapping(parse(told, float) if isinstance(told, str) else told)
    except ValueError:
        return {}
