"""Run a cell's code as a job; the code is uploaded as a source file, never put on the command line."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from openpai_tasks import exits
from openpai_tasks.magics.commands import Failed, Publish, run, settings
from openpai_tasks.storage.job_files.sources import collect

NAME = "pai_cell.py"
"""The name of the code's file in the job's working folder, and in its tracebacks."""

JOB = "cell-$"
"""The default name of the job."""


def submit_cell(line: Sequence[str], cell: str, transform: Callable[[str], str], publish: Publish) -> None:
    """Run the code as a job with the flags of `job.sub`; words after ``--`` are arguments of the code."""
    check(cell, transform)
    flags, rest = list(line), list[str]()
    if "--" in flags:
        cut = flags.index("--")
        flags, rest = flags[:cut], flags[cut + 1 :]
    given = settings()
    python = _value(flags, "--python") or given.python
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, NAME)
        file.write_text(cell, encoding="utf-8")
        sources = () if _value(flags, "--sources", "--src") else given.sources
        collect(sources, Path.cwd())  # checks links in a project's sources, which flags would not
        taken = [word for source in (str(file), *sources) for word in ("--sources", source)]
        command = shlex.join([python, "-u", NAME, *rest])
        run(["job.sub", command, *taken, "--job-name", JOB, *flags, "--follow"], publish)


def check(cell: str, transform: Callable[[str], str]) -> None:
    """Refuse code that would fail in the job, perhaps after hours in a queue."""
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
        compile(code, NAME, "exec", dont_inherit=True)
    except SyntaxError as err:
        return err
    except ValueError as err:  # a character that is not allowed in source code
        return SyntaxError(str(err))
    return None


def _value(flags: Sequence[str], *names: str) -> str:
    """Return the value of a flag; empty if it is not given."""
    for number, word in enumerate(flags, 1):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(flags[number : number + 1])
    return ""
