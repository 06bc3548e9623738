"""A cell's code as a job: it travels as a file among the sources, never on the command line."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from openpai_tasks.magics.commands import Failed, Publish, run, settings
from openpai_tasks.storage.job_files.sources import collect

NAME = "pai_cell.py"
"""What the code is called in the job's working folder, and in its tracebacks."""

JOB = "cell-$"
"""What its job is called, unless a flag says otherwise."""

REFUSED = 120


def submit_cell(line: Sequence[str], cell: str, transform: Callable[[str], str], publish: Publish) -> None:
    """Run the code as a job with the flags of `job.sub`; words behind ``--`` are arguments of the code."""
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
        collect(sources, Path.cwd())  # behind the fence of a project's settings, which a flag has not
        taken = [word for source in (str(file), *sources) for word in ("--sources", source)]
        command = shlex.join([python, "-u", NAME, *rest])
        run(["job.sub", command, *taken, "--job-name", JOB, *flags, "--follow"], publish)


def check(cell: str, transform: Callable[[str], str]) -> None:
    """Refuse here what would fail there, maybe after hours in a queue."""
    if not cell.strip():
        raise Failed("the cell is empty: nothing was submitted", REFUSED)
    problem = _problem(cell)
    if problem is None:
        return
    if _problem(transform(cell)) is None:
        said = "the job runs plain Python, and the cell has IPython's own syntax (!, % or ?)"
    else:
        version = ".".join(map(str, sys.version_info[:2]))
        said = f"the cell is no valid Python {version}: line {problem.lineno}: {problem.msg}"
    raise Failed(f"{said}; nothing was submitted", REFUSED)


def _problem(code: str) -> SyntaxError | None:
    try:
        compile(code, NAME, "exec", dont_inherit=True)
    except SyntaxError as err:
        return err
    except ValueError as err:  # a character that no source may have
        return SyntaxError(str(err))
    return None


def _value(flags: Sequence[str], *names: str) -> str:
    """The value that a flag is given, if it is."""
    for number, word in enumerate(flags, 1):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(flags[number : number + 1])
    return ""
