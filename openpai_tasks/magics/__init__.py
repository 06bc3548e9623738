"""Commands and tables in notebooks, loaded by ``%load_ext openpai_tasks``.

``%pai`` runs a command, ``%%pai_sub`` runs the cell's code as a job, ``submit_this_notebook()`` the whole
notebook; jobs are shown as tables. IPython is no dependency: every notebook has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.magics.cells import submit_cell
from openpai_tasks.magics.commands import Failed, TableView, run
from openpai_tasks.magics.lines import split_line
from openpai_tasks.magics.this_notebook import submit_this_notebook
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.render import html

__all__ = ["Failed", "load", "submit_this_notebook", "unload"]

JOBS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit_code", "retries")
FUNCTIONS = {"submit_this_notebook": submit_this_notebook}


def load(shell: Any) -> None:
    """Add our magics and formatters to an IPython shell."""
    from IPython.core.magic import no_var_expand

    magics = Magics(shell)
    for function in (Magics.pai, Magics.pai_sub):
        no_var_expand(function)  # lines.py expands names in lines
    shell.register_magic_function(magics.pai, "line", "pai")
    shell.register_magic_function(magics.pai_sub, "cell", "pai_sub")
    shell.push(FUNCTIONS, interactive=False)
    pictures = shell.display_formatter.formatters["text/html"]
    pictures.for_type(JobInfo, html.status)
    lists = pictures.for_type(list)
    pictures.for_type(list, Lists(lists.otherwise if isinstance(lists, Lists) else lists))


def unload(shell: Any) -> None:
    """Remove our magics and formatters."""
    for kind, name in (("line", "pai"), ("cell", "pai_sub")):
        shell.magics_manager.magics[kind].pop(name, None)
    shell.drop_by_id(FUNCTIONS)
    pictures = shell.display_formatter.formatters["text/html"]
    pictures.pop(JobInfo, None)
    lists = pictures.for_type(list)
    if isinstance(lists, Lists):
        pictures.pop(list)
        pictures.for_type(list, lists.otherwise)


class Lists:
    """Formatter that shows lists of jobs as tables, and leaves other lists to the previous formatter."""

    def __init__(self, otherwise: Callable[[Any], str | None] | None) -> None:
        self.otherwise = otherwise

    def __call__(self, items: list[Any]) -> str | None:
        if items and all(isinstance(item, JobInfo) for item in items):
            return html.table(items, JOBS)
        return self.otherwise(items) if self.otherwise else None


class Rows(list[dict[str, Any]]):
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

    def pai(self, line: str) -> Rows | None:
        """Run a command of `pai`, such as `%pai job.list`; its table is the value: `jobs = %pai job.list`."""
        shown = run(self._words(line) or ["--list"], self._publish)
        return Rows(shown, self._shell) if shown else None

    def pai_sub(self, line: str, cell: str) -> None:
        """Run the cell's code as a job and show its output: `%%pai_sub --gpu 1`; flags as in job.sub."""
        submit_cell(self._words(line), cell, self._shell.transform_cell, self._publish)

    def _words(self, line: str) -> list[str]:
        return split_line(line, self._shell.user_ns)
