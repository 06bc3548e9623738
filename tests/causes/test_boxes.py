"""Tracebacks and errors in boxes, as rich and Typer really draw them."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from openpai_tasks.causes import find_cause
from openpai_tasks.causes.boxes import without_boxes
from tests.needs import needs

SEVERAL = (
    "the configuration of the experiment has no dataset, and no default of the project can be used either"
)
PROGRAM = f"""
def load(config):
    try:
        config["dataset"]
    except KeyError as err:
        raise RuntimeError("{SEVERAL}") from err
"""
RICH = "from rich.traceback import install\ninstall(show_locals=True)\n" + PROGRAM + "load({})\n"
CAUSE = f"RuntimeError: {SEVERAL} (boom.py, line {{}})"
TYPER = f"import typer\n{PROGRAM}\n\ndef main(lr: float):\n    load({{}})\n\n\ntyper.run(main)\n"


def run(folder, program, *words, **environment):
    (folder / "boom.py").write_text(program)
    given = {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **environment}
    done = subprocess.run(
        [sys.executable, "boom.py", *words], capture_output=True, text=True, cwd=folder, env=given
    )
    assert done.returncode
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_tracebacks_of_rich_have_a_place_and_a_whole_message(tmp_path, columns, encoding):
    lines = run(tmp_path, RICH, COLUMNS=columns, PYTHONIOENCODING=encoding)
    assert "Traceback (most recent call last) " in "".join(lines)
    found = find_cause(lines, 1)
    assert (found.headline, found.file) == (CAUSE.format(8), "boom.py")
    assert find_cause([f"[rank1]: {line}" for line in lines], 1) == found
    assert find_cause([*lines, "cleaning up"], 1) == found


def test_paths_that_are_folded_are_read(tmp_path):
    folder = tmp_path / ("x" * 100) / "0123456789"
    folder.mkdir(parents=True)
    assert find_cause(run(folder, RICH), 1).headline == CAUSE.format(8)


def test_a_path_that_fills_a_row_is_read():
    with tempfile.TemporaryDirectory() as parent:  # its path is shorter than that of tmp_path may be
        folder = Path(parent, "x" * 30)
        folder.mkdir()
        row = f"│ {folder}/boom.py:8 │"
        lines = run(folder, RICH, COLUMNS=str(len(row)))
    assert row in lines and find_cause(lines, 1).headline == CAUSE.format(8)


def test_syntax_errors_have_a_second_box(tmp_path):
    program = "from rich.traceback import install\ninstall()\nimport broken\n"
    (tmp_path / "broken.py").write_text("x = (\n")
    cause = find_cause(run(tmp_path, program), 1).headline
    assert cause.startswith("SyntaxError: '(' was never closed (boom.py, line 3)")


@needs("typer")
def test_errors_of_typer_are_read(tmp_path):
    assert find_cause(run(tmp_path, TYPER, "1"), 1).headline == CAUSE.format(7)
    assert find_cause(run(tmp_path, TYPER), 2).headline.upper() == "ERROR: MISSING ARGUMENT 'LR'."


def test_an_error_in_a_box_is_a_line(tmp_path):
    """Typer prints wrong arguments so."""
    program = (
        "from rich.panel import Panel; from rich import print; import sys\n"
        "text = \"Invalid value for '--lr': 'x' is not a valid float.\"\n"
        "print(Panel(text, title='Error', title_align='left'))\n"
        "sys.exit(2)\n"
    )
    for columns in ("30", "80"):
        found = find_cause(run(tmp_path, program, COLUMNS=columns), 2)
        assert found.headline == "Error: Invalid value for '--lr': 'x' is not a valid float."
        assert found.advice == "correct the command, and submit it again"


def test_other_lines_and_open_boxes_stay_as_they_are():
    top = "╭─ Error ─────╮"
    for lines in (["a", "+----+", "| x |", "+----+"], [top, "│ lost        │"], [top] * 1000):
        assert without_boxes(lines) == lines
