"""Notebooks before they are sent and after they have run: what is read, refused, put in, told."""

import ast
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol import scripts
from openpai_tasks.sdk import brought, notebook_resubmit, notebook_results, notebooks
from openpai_tasks.sdk import notebook_progress as progress
from openpai_tasks.sdk import notebook_runner as runner
from openpai_tasks.sdk.notebook_values import read_value
from openpai_tasks.sdk.notebooks import Mark, Options
from tests.notebook_files import PYTHON, cell, notebook, outputs, text, write

JULIA = {"kernelspec": {"name": "julia-1.9", "language": "julia", "display_name": "Julia"}}

# Reading


@pytest.fixture
def read(tmp_path):
    def read(name="n.ipynb", *cells, **options):
        write(tmp_path / name, *(cells or ("1",)), **options)
        return notebooks.read(name, tmp_path)

    return read


BROKEN = {
    "": "not JSON, line 1",
    "{\n oops": "not JSON, line 2",
    "[1]": "does not say its format",
    "{}": "does not say its format",
    '{"nbformat": "4", "cells": []}': "does not say its format",
    '{"nbformat": 4, "metadata": [], "cells": []}': "does not say its format",
    '{"nbformat": 2, "worksheets": []}': "format 2: open and save it",
    '{"nbformat": 9, "cells": []}': "format 9: the newest known is 4",
    '{"nbformat": 4}': "it has no cells",
    '{"nbformat": 4, "cells": ["x"]}': "it has no cells",
    '{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}': "cell 1 has no source",
    '{"nbformat": 4, "cells": [{"cell_type": "poem", "source": ""}]}': "cell 1 has no type",
    '{"nbformat": 4, "cells": [{"cell_type": "raw", "source": "", "metadata": 1}]}': "cell 1 has metadata",
    "[" * 100_000: "not JSON",
}


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: BROKEN[content])
def test_what_is_no_notebook_is_told_in_one_line(tmp_path, content):
    (tmp_path / "bad.ipynb").write_text(content)
    with pytest.raises(PathError) as caught:
        notebooks.read("bad.ipynb", tmp_path)
    assert BROKEN[content] in str(caught.value) and "'bad.ipynb'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_told_too(tmp_path):
    (tmp_path / "latin.ipynb").write_bytes(b'{"nbformat": "\xe9"}')
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        ".": "a folder",
        "no.ipynb": "No such file",
        "latin.ipynb": "UTF-8",
        "pipe": "no file",
    }.items():
        with pytest.raises(PathError, match=words):
            notebooks.read(name, tmp_path)


def test_a_notebook_is_named_as_it_lies_below_the_folder(tmp_path):
    write(tmp_path / "sub" / "größe 1.ipynb", "1")
    write(tmp_path / "out.ipynb", "1")
    assert notebooks.read("sub/../sub/größe 1.ipynb", tmp_path).name == "sub/größe 1.ipynb"
    assert notebooks.read("../out.ipynb", tmp_path / "sub").name == "out.ipynb"
    assert notebooks.read(str(tmp_path / "out.ipynb"), tmp_path / "sub").stem == "out"


def test_a_byte_order_mark_is_no_hindrance(tmp_path):
    (tmp_path / "n.ipynb").write_bytes(b"\xef\xbb\xbf" + json.dumps(notebook("1")).encode())
    assert notebooks.read("n.ipynb", tmp_path).as_sent().startswith(b"{")


def test_it_is_sent_without_what_an_earlier_run_left(read):
    old = [{"output_type": "stream", "name": "stdout", "text": "x" * 1_000_000}]
    left = {**PYTHON, "widgets": {"state": "x" * 1_000_000}, runner.STATE: {"state": "done"}}
    full = read("full.ipynb", cell("1", outputs=old, execution_count=7), text("*t*"), metadata=left)
    bare = read("bare.ipynb", cell("1"), text("*t*"))
    assert full.as_sent() == bare.as_sent()
    assert len(full.as_sent()) < 2000


def test_kernel_and_language_are_what_it_says(read):
    assert (read().kernel, read().language) == ("python3", "python")
    assert read(metadata=JULIA).language == "julia"
    nothing = read(metadata={})
    assert (nothing.kernel, nothing.language) == ("", "python")
    assert read(metadata={"language_info": {"name": "R"}}).language == "R"
    assert read(metadata={"kernelspec": "odd"}).kernel == ""


# Parameters

VALUES = {
    "1": 1,
    "-3": -3,
    "1e-3": 0.001,
    "1.": 1.0,
    ".5": 0.5,
    "-.inf": -math.inf,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "": "",
    "yes": "yes",
    "012": "012",
    "0x10": "0x10",
    "1_000": "1_000",
    "2024-01-31": "2024-01-31",
    "12:30": "12:30",
    "@x": "@x",
    "*x": "*x",
    "a: b": "a: b",
    " two  words # ": " two  words # ",
    '"12"': "12",
    "'it''s'": "it's",
    "[1, 2.5, a, yes, null]": [1, 2.5, "a", "yes", None],
    "{lr: 1e-4, names: [x]}": {"lr": 0.0001, "names": ["x"]},
}


@pytest.mark.parametrize("typed", VALUES)
def test_values_are_typed_as_yaml_has_them(typed):
    value = read_value(typed, "-p x")
    assert value == VALUES[typed] and type(value) is type(VALUES[typed])


@pytest.mark.parametrize(
    "typed", ["[1,", "{a", "'tis", "{1: a}", "[!!binary aGk=]", "[&a [*a]]", "[!!set {a}]"]
)
def test_a_value_that_cannot_travel_is_refused(typed):
    with pytest.raises(ConfigError, match=r"-p x: .* is not a value in YAML"):
        read_value(typed, "-p x")


@pytest.mark.parametrize("name", ["1x", "a-b", "a.b", "", "class", "None", "a b", "x;import os"])
def test_a_name_must_be_one_of_a_python_variable(name):
    with pytest.raises(ConfigError, match="cannot be the name of a Python variable"):
        notebooks.parameters([f"{name}=1"])


def test_a_parameter_is_a_name_and_a_value_and_is_given_once():
    assert notebooks.parameters(["größe=a=b", " n = 1"]) == {"größe": "a=b", "n": 1}
    with pytest.raises(ConfigError, match="'n' is given twice"):
        notebooks.parameters(["n=1", "n=2"])
    with pytest.raises(ConfigError, match="name=value, got 'n'"):
        notebooks.parameters(["n"])


def test_parameters_of_other_languages_are_refused(read):
    with pytest.raises(ConfigError, match=r"Python notebooks only, and n.ipynb is in julia"):
        notebooks.remarks(read(metadata=JULIA), Options({"x": 1}))
    assert notebooks.remarks(read(metadata=JULIA), Options()) == []


def test_what_is_odd_is_remarked(read):
    told = read("n.ipynb", cell("lr = 1\nfor n in range(3): pass", "parameters"))
    assert notebooks.remarks(told, Options({"lr": 2, "n": 3})) == []
    assert "sets no 'rate' (it sets: lr, n)" in notebooks.remarks(told, Options({"rate": 2}))[0]
    assert "no cell of n.ipynb is tagged" in notebooks.remarks(read(), Options({"rate": 2}))[0]
    assert "names no kernel; python3" in notebooks.remarks(read(metadata={}), Options())[0]
    assert notebooks.remarks(read(metadata={}), Options(kernel="ir")) == []


def ran(source):
    names: dict = {}
    exec(source, names)
    return names


def test_parameters_go_behind_the_cell_that_is_tagged():
    book = notebook("a = 0", cell("lr = 1", "other", "parameters"), "b = 0")
    values = {"lr": 0.5, "t": "it's\n\\", "l": [1, None, True, math.nan], "d": {"k": -math.inf}}
    assert runner.inject(book, values)
    sources = [one["source"] for one in book["cells"]]
    assert sources[:2] == ["a = 0", "lr = 1"] and sources[3] == "b = 0"
    injected = book["cells"][2]
    assert injected["metadata"]["tags"] == ["injected-parameters"] and injected["id"]
    names = ran(injected["source"])
    assert names["lr"] == 0.5 and names["t"] == values["t"] and names["d"] == values["d"]
    assert names["l"][:3] == [1, None, True] and math.isnan(names["l"][3])


def test_parameters_go_on_top_where_no_cell_is_tagged_and_replace_those_of_an_earlier_run():
    book = notebook("a = 0")
    assert not runner.inject(book, {"x": 1})
    assert not runner.inject(book, {"x": 2})
    assert [one["source"] for one in book["cells"]] == ["# Parameters\nx = 2", "a = 0"]


def test_older_formats_get_a_cell_without_an_id():
    book = {**notebook("a = 0"), "nbformat_minor": 4}
    runner.inject(book, {"x": 1})
    assert "id" not in book["cells"][0]


# The job


def test_formats_are_chosen_by_name():
    assert notebooks.chosen_formats([]) == ("html",)
    assert notebooks.chosen_formats(["html,pdf", "SCRIPT", "html"]) == ("html", "pdf", "script")
    assert notebooks.chosen_formats(["ipynb"]) == ()
    with pytest.raises(ConfigError, match="one of ipynb, html, pdf, script, got 'doc'"):
        notebooks.chosen_formats(["doc"])


GIVEN = Options({"t": "it's; $(rm)", "n": [1]}, ("pdf",), "ir", 90, True)


def test_the_runner_understands_what_the_command_says():
    python, own, *words = shlex.split(notebooks.command("/opt/my python", "-odd 'name'.ipynb", GIVEN))
    assert (python, own) == ("/opt/my python", notebooks.RUNNER)
    read = runner.arguments(words)
    assert read.file == "./-odd 'name'.ipynb" and read.parameters == GIVEN.parameters
    assert (read.to, read.kernel, read.timeout_per_cell, read.allow_errors) == (["pdf"], "ir", 90, True)
    plain = runner.arguments([*Options().words(), "x.ipynb"])
    assert (plain.to, plain.kernel, plain.timeout_per_cell, plain.allow_errors) == (["html"], "", None, False)
    assert runner.arguments([*Options(formats=()).words(), "x.ipynb"]).to == []


def test_a_job_tells_its_notebook():
    for options in (GIVEN, Options(), Options(formats=())):
        document = {"extras": {notebooks.MARK: notebooks.mark("a/b.ipynb", options)}}
        assert notebooks.mark_of(json.loads(json.dumps(document))) == Mark("a/b.ipynb", options)
    for odd in (
        {},
        {"extras": []},
        {"extras": {notebooks.MARK: 1}},
        {"extras": {notebooks.MARK: {"file": ""}}},
    ):
        assert notebooks.mark_of(odd) is None


def test_names_of_jobs_come_from_the_notebook():
    assert notebooks.job_word("My Analysis (2)") == "my-analysis-2"
    assert notebooks.job_word("分析") == "notebook"


@pytest.mark.parametrize("limit", [None, 60])
def test_the_command_of_a_job_is_changed_wherever_it_stands(limit):
    before, after = Mark("a b.ipynb", GIVEN), Mark("a b.ipynb", Options({"t": "don't"}))
    text = notebooks.command("python3", before.file, before.options)
    wanted = notebooks.command("python3", after.file, after.options)
    if limit:
        text, wanted = scripts.limited(text, limit), scripts.limited(wanted, limit)
    assert notebook_resubmit._called(text, before, after) == wanted


# What it tells


def test_the_log_tells_how_far_it_is():
    read = progress.read
    assert read(b"notebook: cell 2 of 5: x = 'a: b'\n") == progress.Step(2, 5, "x = 'a: b'")
    assert read(b"notebook: cell 2 of 5 failed: E: no\n") == progress.Failure(2, 5, "E: no")
    assert read(b"notebook: 5 cells, kernel python3\r\n") == progress.Said("5 cells, kernel python3")
    assert read(b"notebook| 1/0\n") == progress.Detail("1/0")
    assert read(b"notebook|\n") == progress.Detail("")
    assert read(b"\x1b[2Jother \xff\n") == progress.Said("\\x1b[2Jother �")
    assert str(progress.Step(2, 5, "x")) == "cell 2 of 5: x"


def test_the_first_line_of_a_cell_is_short_and_cannot_steer():
    assert runner.first_line(cell("\n\n  x = 1\ny = 2")) == "x = 1"
    assert len(runner.first_line(cell("x" * 1000))) == runner.WIDTH
    assert runner.visible("a\tb\x1b[31m\x07\n\u202e") == "a    b\\x1b[31m\\x07\\n\\x202e"


def test_a_huge_traceback_leaves_its_end_in_the_log(capfdbinary):
    runner.detail("\n".join(f"line {number}" for number in range(100_000)))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == "notebook| ..." and lines[-1] == "notebook| line 99999"
    assert len(lines) == runner.LINES + 1


def test_colours_are_kept_for_terminals_and_nothing_else_is():
    coloured = "\x1b[0;31mError\x1b[0m: \x1b]0;title\x07a\x1b[2Jb\x07"
    assert notebook_results.plain(coloured, has_colours=False) == "Error: ab\\x07"
    assert notebook_results.plain(coloured, has_colours=True) == "\x1b[0;31mError\x1b[0m: ab\\x07"


def test_a_notebook_that_is_damaged_tells_nothing(tmp_path):
    for content in ("{", "{}", '{"metadata": {"openpai_run": {"index": 7}}, "cells": []}'):
        (tmp_path / "n.ipynb").write_text(content)
        assert notebook_results.told([notebook_results.Result(str(tmp_path / "n.ipynb"), 1)]) is None
    assert notebook_results.told([]) is None


# The runner on its own


def test_the_runner_is_one_file_that_old_pythons_read():
    source = Path(runner.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(ValueError), runner.replacing(path) as file:
        file.write(b"new")
        raise ValueError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x"]
    with runner.replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["x"]


def wheel(folder, name):
    """A package that pip can install without a network."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", "HERE = __file__\n")
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A python with nothing installed, not even pip."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def ensured(bare, folder, modules, **environment):
    code = f"import notebook_runner as r; r.ensure({modules!r}); import tinypart; print(tinypart.HERE)"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [str(bare), "-c", code],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(Path(runner.__file__).parent), "PIP_NO_INDEX": "1", **environment},
        capture_output=True,
        text=True,
    )


def test_what_is_missing_is_installed_beside_the_job_even_without_pip(bare, tmp_path):
    wheel(tmp_path, "tinypart")
    done = ensured(
        bare, tmp_path, {"json": "json", "tinypart": "tinypart"}, PIP_FIND_LINKS=str(tmp_path), PIP_USER="1"
    )
    said, where = done.stdout.splitlines()
    assert done.returncode == 0, done
    assert said == "notebook: installing tinypart, which this image lacks"
    assert where == str(tmp_path / runner.PACKAGES / "tinypart.py")


def test_what_cannot_be_installed_is_one_clear_line(tmp_path):
    done = ensured(sys.executable, tmp_path, {"tinypart": "tinypart"}, PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == runner.CANNOT and done.stderr == ""
    last = done.stdout.splitlines()[-1]
    assert last.startswith("notebook: error: tinypart cannot be installed: ERROR: ") and "image" in last


def test_what_is_there_needs_no_installer(bare, tmp_path):
    (tmp_path / "tinypart.py").write_text("HERE = 'there'\n")
    done = ensured(bare, tmp_path, {"tinypart": "tinypart"}, PATH="/nowhere")
    assert (done.stdout, done.returncode) == ("there\n", 0)
    assert not (tmp_path / runner.PACKAGES).exists()


def test_a_pdf_that_cannot_be_made_is_refused_before_the_first_cell(tmp_path):
    write(tmp_path / "n.ipynb", "1")
    done = subprocess.run(
        [sys.executable, runner.__file__, "n.ipynb", "--to", "pdf"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path), "PAI_OUTPUT_DIR": str(tmp_path / "out")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == runner.CANNOT and os.listdir(tmp_path / "out") == []
    assert done.stdout.splitlines()[-1].startswith("notebook: error: a PDF needs chromium or xelatex")


# The runner with a kernel

WRITES = (
    "import os\nfor e in ('html', 'py', 'ipynb'):\n"
    "    open(os.path.join(os.environ['PAI_OUTPUT_DIR'], 'n.' + e), 'w').write('mine')"
)
BAR = "for i in range(300): print(f'\\r{i} done', end='', flush=True)"
SUFFIXES = ("html", "py", "ipynb")


def started(folder, name, *words):
    return subprocess.Popen(
        [sys.executable, runner.__file__, name, *words],
        cwd=folder,
        env={**os.environ, "PAI_OUTPUT_DIR": str(folder / "out")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def executed(folder, name, *words):
    process = started(folder, name, *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.splitlines(), err


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_what_the_notebook_itself_writes_stays_even_when_the_job_is_tried_again(tmp_path):
    write(tmp_path / "n.ipynb", WRITES, BAR, "print('a')\ndisplay(1)\nprint('b')")
    out, results = tmp_path / "out", {f"n.pai-run.{suffix}" for suffix in SUFFIXES}
    for _attempt in range(2):
        code, said, err = executed(tmp_path, "n.ipynb", "--to", "html,script")
        assert (code, err) == (0, ""), said
        stays = "was written by the notebook itself and stays; the result has another name"
        assert [line for line in said if "n.html" in line and stays in line]
        assert set(os.listdir(out)) == results | {f"n.{suffix}" for suffix in SUFFIXES}
        assert {(out / f"n.{suffix}").read_text() for suffix in SUFFIXES} == {"mine"}
    assert outputs(out / "n.pai-run.ipynb") == ["", "299 done", "a\n1b\n"]
    cells = json.loads((out / "n.pai-run.ipynb").read_text())["cells"]
    kinds = [[one["output_type"] for one in cell["outputs"]] for cell in cells]
    assert kinds == [[], ["stream"], ["stream", "display_data", "stream"]]
    assert "298 done" not in (out / "n.pai-run.html").read_text()


def test_results_of_an_earlier_attempt_are_replaced(tmp_path):
    for number in (1, 2):
        write(tmp_path / "n.ipynb", f"print({number})")
        assert executed(tmp_path, "n.ipynb")[0] == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["n.html", "n.ipynb"]
    assert outputs(tmp_path / "out" / "n.ipynb") == ["2\n"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_running_cell_shows_is_saved_meanwhile(tmp_path, number):
    write(tmp_path / "n.ipynb", "import os, time\nprint('began', os.getpid(), flush=True)\ntime.sleep(600)")
    process = started(tmp_path, "n.ipynb", "--to", "ipynb")
    saved = tmp_path / "out" / "n.ipynb"
    kernel = 0
    try:
        until(saved.exists)
        until(lambda: outputs(saved)[0].startswith("began"))
        kernel = int(outputs(saved)[0].split()[1])
        assert notebook_results.told([notebook_results.Result(str(saved), 1)]).state == "running"
    finally:
        process.send_signal(number)
        if number == signal.SIGKILL and kernel:
            os.kill(kernel, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert (process.returncode, err) == (runner.STOPPED, "")
    assert outputs(saved) == [f"began {kernel}\n"]


def test_a_notebook_that_says_no_minor_version_is_run_and_shown(tmp_path):
    content = {key: value for key, value in notebook("print(1)").items() if key != "nbformat_minor"}
    (tmp_path / "n.ipynb").write_text(json.dumps(content))
    assert json.loads(notebooks.read("n.ipynb", tmp_path).as_sent())["nbformat_minor"] == 5
    code, said, err = executed(tmp_path, "n.ipynb")
    assert (code, err) == (0, "") and said[-1] == "notebook: wrote n.ipynb, n.html"


def test_an_old_notebook_that_cannot_be_converted_is_one_line(tmp_path):
    sheet = {"cells": [{"cell_type": "code"}]}
    broken = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [sheet]}
    (tmp_path / "n.ipynb").write_text(json.dumps(broken))
    code, said, err = executed(tmp_path, "n.ipynb")
    assert (code, err) == (runner.CANNOT, "")
    assert len(said) == 1 and said[0].startswith("notebook: error: n.ipynb cannot be read as a notebook: ")


def test_progress_bars_are_shown_as_they_end():
    assert runner.settled("a\r\nb\n") == "a\nb\n"
    assert runner.settled("x\n10%\r100%\rok\n") == "x\nok0%\n"
    assert runner.settled("50%\b\b\b\r60%\r") == "60%"


# What is brought


def test_of_two_files_the_one_with_the_mark_is_the_result():
    ours = notebook_results._ours
    files = [
        "n.ipynb",
        "n.pai-run.ipynb",
        "n.html",
        "n.pai-run-2.html",
        "n.pai-run.html",
        "n.pdf",
        "s/n.html",
    ]
    assert ours(files, Mark("n.ipynb")) == ["n.pai-run.ipynb", "n.pai-run-2.html"]
    script = Mark("a/n.ipynb", Options(formats=("script",)))
    assert ours(["n.ipynb", "n.html", "n.py"], script) == ["n.ipynb", "n.py"]
    assert ours(["n.ipynb", "n.html"], Mark("n.ipynb"), is_over=False) == ["n.ipynb"]


def test_only_files_that_are_as_they_were_brought_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    path, beside = tmp_path / "n.j.ipynb", tmp_path / "n.j.remote.ipynb"
    assert brought.place(path) == path
    path.write_text("mine")
    assert brought.place(path) == beside
    beside.write_text("theirs")
    brought.note([beside])
    assert brought.place(path) == beside
    beside.write_text("theirs, changed")
    assert brought.place(path) == tmp_path / "n.j.remote-2.ipynb"
    path.unlink()
    path.symlink_to(beside)
    brought.note([path])
    assert brought.place(path) != path
    assert (tmp_path / "home" / "brought.json").stat().st_mode & 0o777 == 0o600


def test_the_address_is_the_one_of_what_shows_best(tmp_path):
    made = [notebook_results.Result(f"{tmp_path}/n{end}", 1) for end in (".py", ".ipynb", ".pdf", ".html")]
    ends = [notebook_results.page(made[:count]).rpartition("/")[2] for count in (1, 2, 3, 4)]
    assert ends == ["", "n.ipynb", "n.pdf", "n.html"]
    assert not notebook_results.is_for_browsers(notebook_results.page(made[:2]))
