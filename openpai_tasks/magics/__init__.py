"""Commands and tables in notebooks, loaded by ``%load_ext openpai_tasks``.

``%pai`` runs a command, ``%%pai_sub`` runs the cell's code as a job, ``submit_this_notebook()`` the whole
notebook; jobs are shown as tables. IPython is no dependency: every notebook has it.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from openpai_tasks import exits
from openpai_tasks.magics.commands import Failed, Publish, TableView, run, settings
from openpai_tasks.magics.this_notebook import submit_this_notebook
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.render import html
from openpai_tasks.storage.job_files.sources import collect

__all__ = ["Failed", "load", "submit_this_notebook", "unload"]

JOBS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit_code", "retries")
FUNCTIONS = {"submit_this_notebook": submit_this_notebook}
CELL_FILE = "pai_cell.py"
"""The name of a cell's code in the job's working folder, and in its tracebacks."""
CELL_JOB = "cell-$"
"""The default name of a cell's job."""
_FIELD = re.compile(r"(?<!\$)\{(\{)?([A-Za-z_]\w*(?:\.\w+|\[[^\[\]{}]*\])*)(?(1)\})\}")


def load(shell: Any) -> None:
    """Add our magics and formatters to an IPython shell."""
    from IPython.core.magic import no_var_expand

    magics = Magics(shell)
    for function in (Magics.pai, Magics.pai_sub):
        no_var_expand(function)  # split_line expands names in lines
    shell.register_magic_function(magics.pai, "line", "pai")
    shell.register_magic_function(magics.pai_sub, "cell", "pai_sub")
    shell.push(FUNCTIONS, interactive=False)
    formatters = shell.display_formatter.formatters["text/html"]
    formatters.for_type(JobInfo, html.status)
    lists = formatters.for_type(list)
    formatters.for_type(
        list, JobListFormatter(lists.fallback if isinstance(lists, JobListFormatter) else lists)
    )


def unload(shell: Any) -> None:
    """Remove our magics and formatters."""
    for kind, name in (("line", "pai"), ("cell", "pai_sub")):
        shell.magics_manager.magics[kind].pop(name, None)
    shell.drop_by_id(FUNCTIONS)
    formatters = shell.display_formatter.formatters["text/html"]
    formatters.pop(JobInfo, None)
    lists = formatters.for_type(list)
    if isinstance(lists, JobListFormatter):
        formatters.pop(list)
        formatters.for_type(list, lists.fallback)


class JobListFormatter:
    """Formatter that shows lists of jobs as tables, and leaves other lists to the previous formatter."""

    def __init__(self, fallback: Callable[[Any], str | None] | None) -> None:
        self.fallback = fallback

    def __call__(self, items: list[Any]) -> str | None:
        if items and all(isinstance(item, JobInfo) for item in items):
            return html.table(items, JOBS)
        return self.fallback(items) if self.fallback else None


class TableRows(list[dict[str, Any]]):
    """The rows of a command's table, not displayed again by the cell that ran the command."""

    def __init__(self, shown: TableView, shell: Any) -> None:
        super().__init__(shown.rows)
        self._data, self._shell, self._cell = shown.data, shell, shell.execution_count

    def _ipython_display_(self) -> None:
        if self._shell.execution_count != self._cell:
            self._shell.display_pub.publish(self._data)


class Magics:
    """The commands of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._publish = shell.display_pub.publish

    def pai(self, line: str) -> TableRows | None:
        """Run a command of `pai`, such as `%pai job.list`; its table is the value: `jobs = %pai job.list`."""
        shown = run(self._words(line) or ["--list"], self._publish)
        return TableRows(shown, self._shell) if shown else None

    def pai_sub(self, line: str, cell: str) -> None:
        """Run the cell's code as a job and show its output: `%%pai_sub --gpu 1`; flags as in job.sub."""
        submit_cell(self._words(line), cell, self._shell.transform_cell, self._publish)

    def _words(self, line: str) -> list[str]:
        return split_line(line, self._shell.user_ns)


def submit_cell(line: Sequence[str], cell: str, transform: Callable[[str], str], publish: Publish) -> None:
    """Run the code as a job with the flags of `job.sub`; words after ``--`` are arguments of the code."""
    _check_cell(cell, transform)
    flags, rest = list(line), list[str]()
    if "--" in flags:
        cut = flags.index("--")
        flags, rest = flags[:cut], flags[cut + 1 :]
    given = settings()
    python = _flag_value(flags, "--python") or given.python
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, CELL_FILE)
        file.write_text(cell, encoding="utf-8")
        sources = () if _flag_value(flags, "--sources", "--src") else given.sources
        collect(sources, Path.cwd())  # checks links in a project's sources, which flags would not
        taken = [word for source in (str(file), *sources) for word in ("--sources", source)]
        command = shlex.join([python, "-u", CELL_FILE, *rest])
        run(["job.sub", command, *taken, "--job-name", CELL_JOB, *flags, "--follow"], publish)


def _check_cell(cell: str, transform: Callable[[str], str]) -> None:
    """Raise for code that would fail in the job, perhaps after hours in a queue."""
    if not cell.strip():
        raise Failed("the cell is empty; nothing was submitted", exits.BAD_INPUT)
    problem = _problem(cell)
    if problem is None:
        return
    if _problem(transform(cell)) is None:
        message = "the cell uses IPython syntax (!, % or ?), but jobs run plain Python"
    else:
        version = ".".join(map(str, sys.version_info[:2]))
        message = f"the cell is not valid Python {version}: line {problem.lineno}: {problem.msg}"
    raise Failed(f"{message}; nothing was submitted", exits.BAD_INPUT)


def _problem(code: str) -> SyntaxError | None:
    try:
        compile(code, CELL_FILE, "exec", dont_inherit=True)
    except SyntaxError as err:
        return err
    except ValueError as err:  # a character that is not allowed in source code
        return SyntaxError(str(err))
    return None


def _flag_value(flags: Sequence[str], *names: str) -> str:
    """Return the value of a flag; empty if it is not given."""
    for number, word in enumerate(flags, 1):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(flags[number : number + 1])
    return ""


def split_line(line: str, namespace: Mapping[str, Any]) -> list[str]:
    """Split a line with shell quoting, and fill in the notebook's values of ``{name}``, ``{rows[0][name]}``.

    IPython's own expansion would also replace ``$name``, which belongs to the job's shell, and would leave
    the whole line as it is if one name is unknown.
    """
    try:
        found = shlex.split(line)
    except ValueError as err:
        raise Failed(f"cannot parse the line: {str(err).lower()}", exits.BAD_INPUT) from None
    return [word for given in found for word in _fill_in(given, namespace)]


def _fill_in(word: str, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Fill in values; a list that is a whole word becomes a word per item, and ``{{name}}`` is ``{name}``."""
    alone = _FIELD.fullmatch(word)
    value = None if alone is None or alone[1] else _value(alone[2], namespace)
    if isinstance(value, (list, tuple)):
        yield from map(str, value)
    else:
        yield _FIELD.sub(lambda match: _text(match, namespace), word)


def _text(match: re.Match[str], namespace: Mapping[str, Any]) -> str:
    if match[1]:
        return match[0][1:-1]
    value = _value(match[2], namespace)
    return match[0] if value is None else str(value)


def _value(field: str, namespace: Mapping[str, Any]) -> Any:
    """Return the value of a field in the notebook's namespace; None if there is none."""
    try:
        return Formatter().get_field(field, (), namespace)[0]
    except (LookupError, AttributeError, TypeError, ValueError):
        return None
