"""Notebooks before they are sent and after they have run: reading, parameters, progress, results."""

import ast
import contextlib
import json
import math
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.models import job_from_detail
from openpai_tasks.sdk.jobs import outputs as outputs_of
from openpai_tasks.sdk.jobs.provenance import Origin
from openpai_tasks.sdk.jobs.resubmission import Original
from openpai_tasks.sdk.notebooks import (
    downloads,
    progress,
    resubmission,
    running,
    serving,
)
from openpai_tasks.sdk.notebooks import (
    results as notebook_results,
)
from openpai_tasks.sdk.notebooks.notebook_file import read_notebook
from openpai_tasks.sdk.notebooks.running import RunMark, RunOptions
from openpai_tasks.sdk.payloads import notebook_runner as runner
from openpai_tasks.sdk.payloads import notebook_server
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.notebook_files import PYTHON, cell, notebook, outputs, text, too_deep, write
from tests.scripted import Reply, Scripted

JULIA = {"kernelspec": {"name": "julia-1.9", "language": "julia", "display_name": "Julia"}}
JOB = job_from_detail({"jobStatus": {"state": "SUCCEEDED"}}, "me~lab")

# Reading


@pytest.fixture
def read(tmp_path):
    def read(name="n.ipynb", *cells, **options):
        write(tmp_path / name, *(cells or ("1",)), **options)
        return read_notebook(name, tmp_path)

    return read


BROKEN = {
    "": "invalid JSON, line 1",
    "{\n oops": "invalid JSON, line 2",
    "[1]": "no valid nbformat",
    "{}": "no valid nbformat",
    '{"nbformat": "4", "cells": []}': "no valid nbformat",
    '{"nbformat": 4, "metadata": [], "cells": []}': "no valid nbformat",
    '{"nbformat": 2, "worksheets": []}': "format 2: open it in Jupyter",
    '{"nbformat": 9, "cells": []}': "format 9: the newest supported format is 4",
    '{"nbformat": 4}': "it has no cells",
    '{"nbformat": 4, "cells": ["x"]}': "it has no cells",
    '{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}': "cell 1 has no source",
    '{"nbformat": 4, "cells": [{"cell_type": "poem", "source": ""}]}': "cell 1 has an unknown cell_type",
    '{"nbformat": 4, "cells": [{"cell_type": "raw", "source": "", "metadata": 1}]}': "cell 1 has metadata",
    "[" * 100_000: "invalid JSON",
}


def test_an_invalid_notebook_is_refused_in_one_line(tmp_path):
    for content, expected in BROKEN.items():
        (tmp_path / "bad.ipynb").write_text(content)
        with pytest.raises(PathError) as caught:
            read_notebook("bad.ipynb", tmp_path)
        message = str(caught.value)
        assert expected in message and "'bad.ipynb'" in message and "\n" not in message, content[:80]


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    (tmp_path / "latin.ipynb").write_bytes(b'{"nbformat": "\xe9"}')
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        ".": "a folder",
        "no.ipynb": "No such file",
        "latin.ipynb": "UTF-8",
        "pipe": "not a regular file",
    }.items():
        with pytest.raises(PathError, match=words):
            read_notebook(name, tmp_path)


def test_notebook_is_named_relative_to_the_folder(tmp_path):
    write(tmp_path / "sub" / "größe 1.ipynb", "1")
    write(tmp_path / "out.ipynb", "1")
    assert read_notebook("sub/../sub/größe 1.ipynb", tmp_path).name == "sub/größe 1.ipynb"
    assert read_notebook("../out.ipynb", tmp_path / "sub").name == "out.ipynb"
    assert read_notebook(str(tmp_path / "out.ipynb"), tmp_path / "sub").stem == "out"


def test_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "n.ipynb").write_bytes(b"\xef\xbb\xbf" + json.dumps(notebook("1")).encode())
    assert read_notebook("n.ipynb", tmp_path).as_sent().startswith(b"{")


def test_notebook_is_sent_without_the_output_of_an_earlier_run(read):
    old = [{"output_type": "stream", "name": "stdout", "text": "x" * 1_000_000}]
    left = {**PYTHON, "widgets": {"state": "x" * 1_000_000}, runner.STATE: {"state": "done"}}
    full = read("full.ipynb", cell("1", outputs=old, execution_count=7), text("*t*"), metadata=left)
    bare = read("bare.ipynb", cell("1"), text("*t*"))
    assert full.as_sent() == bare.as_sent()
    assert len(full.as_sent()) < 2000


def test_kernel_and_language_are_read_from_the_metadata(read):
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


def test_parameter_values_are_typed_as_in_yaml():
    values = {typed: running.parse_value(typed, "-p x") for typed in VALUES}
    assert values == VALUES
    assert list(map(type, values.values())) == list(map(type, VALUES.values()))


REFUSED = {
    "[1,": "is not valid YAML",
    "{a": "is not valid YAML",
    "'tis": "is not valid YAML",
    "{1: a}": "keys of a mapping must be strings, got 1; put it in quotes",
    "[!!binary aGk=]": "cannot send a value of type bytes",
    "[&a [*a]]": "the value contains itself",
    "[!!set {a}]": "cannot send a value of type set",
}


def test_parameter_value_that_cannot_be_sent_is_refused():
    for typed, expected in REFUSED.items():
        with pytest.raises(ConfigError, match=f"^-p x: .*{expected}"):
            running.parse_value(typed, "-p x")


class Real(float):
    """A subclass of float, like numpy's numbers."""


def test_python_values_are_sent_unchanged():
    given = {"a": math.inf, "b": "bell \x07, null \x00, next \x85", "c": (1, Real(0.5)), "d": {"k": None}}
    found = running.check_parameters(given)
    assert found == {**given, "c": [1, 0.5]} and type(found["c"][1]) is float
    assert runner.arguments(["n.ipynb", *RunOptions(found).words()]).parameters == found


def test_python_values_that_cannot_be_sent_are_refused():
    for value in (object(), {1: 2}, [b"x"], "\ud800"):
        with pytest.raises(ConfigError, match=r"^the parameter 'x': "):
            running.check_parameters({"x": value})


def test_reserved_names_are_refused_and_builtins_are_warned_about(tmp_path):
    for wrong in ("__name__", "__builtins__"):
        with pytest.raises(ConfigError, match=f"{wrong}' is reserved by Python"):
            running.parse_parameters([f"{wrong}=3"])
        with pytest.raises(ConfigError, match=f"{wrong}' is reserved by Python"):
            running.check_parameters({wrong: 3})
    write(tmp_path / "n.ipynb", cell("print = 1\nlr = 1", "parameters"))
    warnings = running.remarks(read_notebook("n.ipynb", tmp_path), RunOptions({"print": 3, "lr": 1}))
    assert warnings == ["parameter 'print' hides the Python builtin of the same name"]


def test_parameter_name_must_be_a_valid_python_variable():
    for name in ("1x", "a-b", "a.b", "", "class", "None", "a b", "x;import os"):
        with pytest.raises(ConfigError, match="is not a valid name for a Python variable"):
            running.parse_parameters([f"{name}=1"])


def test_parameter_needs_a_name_and_a_value_and_is_given_once():
    assert running.parse_parameters(["größe=a=b", " n = 1"]) == {"größe": "a=b", "n": 1}
    with pytest.raises(ConfigError, match="'n' is given twice"):
        running.parse_parameters(["n=1", "n=2"])
    with pytest.raises(ConfigError, match="name=value, got 'n'"):
        running.parse_parameters(["n"])


def test_parameters_of_other_languages_are_refused(read):
    with pytest.raises(ConfigError, match=r"Python notebooks only, and n.ipynb is in julia"):
        running.remarks(read(metadata=JULIA), RunOptions({"x": 1}))
    with pytest.raises(ConfigError, match="is in julia"):
        running.remarks(read(metadata=JULIA), RunOptions({"x": 1}, kernel="julia-1.9"))
    assert running.remarks(read(metadata=JULIA), RunOptions()) == []
    tagged = read("n.ipynb", cell("x = 0", "parameters"), metadata=JULIA)
    assert running.remarks(tagged, RunOptions({"x": 1}, kernel="python3")) == []


def test_unusual_parameters_and_kernels_cause_remarks(read):
    tagged = read("n.ipynb", cell("lr = 1\nfor n in range(3): pass", "parameters"))
    assert running.remarks(tagged, RunOptions({"lr": 2, "n": 3})) == []
    assert (
        "nothing in n.ipynb uses the parameter 'rate'" in running.remarks(tagged, RunOptions({"rate": 2}))[0]
    )
    assert "no cell of n.ipynb is tagged" in running.remarks(read(), RunOptions({"rate": 2}))[0]
    assert "names no kernel; using python3" in running.remarks(read(metadata={}), RunOptions())[0]
    assert running.remarks(read(metadata={}), RunOptions(kernel="ir")) == []


def remarks(read, *cells, **values):
    return running.remarks(read("n.ipynb", *cells), RunOptions(values))


UNTAGGED = "no cell of n.ipynb is tagged 'parameters': the values are set"


@pytest.mark.parametrize(
    "defaults",
    ["lr = 0.1", "# defaults\n'text'\nlr: float = 1e-1\nn = [1, -2]\nt = 2 ** 3", "a = lr = 1; b = 'lr'"],
)
def test_values_replace_those_of_a_cell_that_only_sets_plain_ones(read, defaults):
    cells = ["import os  # lr is below", defaults, "print(lr)"]
    assert runner.inject(made := notebook(*cells), {"lr": 0.3})
    assert [runner.source_of(one) for one in made["cells"]][2] == "# Parameters\nlr = 0.3"
    (line,) = remarks(read, *cells, lr=0.3)
    assert line.startswith(f"{UNTAGGED} after cell 2 (")


@pytest.mark.parametrize("nested", ["(" * 3000, "-" * 10_000 + "1"])
def test_a_cell_that_is_nested_too_deeply_for_python_is_not_plain(nested):
    """Found by ``inv fuzz``."""
    assert runner.inject(made := notebook(nested, "lr = 0.1"), {"lr": 0.3})
    assert [runner.source_of(one) for one in made["cells"]][2] == "# Parameters\nlr = 0.3"


@pytest.mark.parametrize(
    "first",
    ["lr = 0.1\nprint(lr)", "lr = 0.1\nn = lr / 10", "lr, n = 0.1, 2", "lr = get()", "%time lr", "!f {lr}"],
)
def test_values_are_set_at_the_top_if_the_first_cell_that_has_them_does_more(read, first):
    cells = [first, "lr = 0.1"]
    assert not runner.inject(made := notebook(*cells), {"lr": 0.3})
    assert runner.source_of(made["cells"][0]) == "# Parameters\nlr = 0.3"
    number = 1 if "=" in first else 2
    warning = f"warning: cell {number} sets 'lr' again: the parameter counts only before it"
    assert remarks(read, *cells, lr=0.3) == [f"{UNTAGGED} at the top", warning]


@pytest.mark.parametrize(
    "later, is_set",
    [
        ("x = 1\n%matplotlib inline\nlr = 0.1", True),
        ("for lr in (1, 2):\n  pass", True),
        ("with open(f) as g:\n  n, (lr, *x) = 1, (2, 3)", True),
        ("%%time\nlr = 1", True),
        ("lr = lr / 2\nlr *= 3", False),
        ("if 'lr' not in globals():\n  lr = 1", False),
        ("def f():\n  lr = 1\n[lr for lr in x]\ncfg.lr = 1\nd['lr'] = 2", False),
        ("%%bash\nlr = 1", False),
        ("lr = (", False),
        ("%pai job.list\nlr = 1", False),
    ],
)
def test_a_cell_that_sets_a_parameter_again_is_warned_about(read, later, is_set):
    tagged = cell("lr = 1", "parameters")
    found = remarks(read, tagged, cell("lr = 2", "injected-parameters"), "print(lr)", later, lr=0.3)
    again = "warning: cell 4 sets 'lr' again: the parameter counts only before it"
    assert [line for line in found if "not run" not in line] == ([again] if is_set else [])


def test_a_parameter_that_nothing_uses_is_warned_about(read):
    found = remarks(read, cell("lr = 1", "parameters"), "!train {n}", "%pai sub {rate}", lr=1, n=2, rate=3)
    assert found[1:] == [
        "the cell tagged 'parameters' does not set 'n' (it sets: lr)",
        "warning: nothing in n.ipynb uses the parameter 'rate'",
    ]


def ran(source):
    names: dict = {}
    exec(source, names)
    return names


def test_parameters_are_injected_after_the_tagged_cell():
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


def test_parameters_go_first_without_a_tagged_cell_and_replace_earlier_ones():
    book = notebook("a = 0")
    assert not runner.inject(book, {"x": 1})
    assert not runner.inject(book, {"x": 2})
    assert [one["source"] for one in book["cells"]] == ["# Parameters\nx = 2", "a = 0"]


def test_older_formats_get_a_cell_without_an_id():
    book = {**notebook("a = 0"), "nbformat_minor": 4}
    runner.inject(book, {"x": 1})
    assert "id" not in book["cells"][0]


# The job


def test_a_time_limit_of_the_job_differs_from_one_in_its_command():
    assert scripts.time_limit(scripts.limit_time("python3 .pai-notebook.py n.ipynb", 5)) == 5
    assert scripts.time_limit("timeout 5 python3 .pai-notebook.py n.ipynb") is None


def test_formats_are_chosen_by_name():
    assert running.parse_formats([]) == ("html",)
    assert running.parse_formats(["html,pdf", "SCRIPT", "html"]) == ("html", "pdf", "script")
    assert running.parse_formats(["ipynb"]) == ()
    with pytest.raises(ConfigError, match="one of ipynb, html, pdf, script, got 'doc'"):
        running.parse_formats(["doc"])


GIVEN = RunOptions({"t": "it's; $(rm)", "n": [1]}, ("pdf",), "ir", 90, True)


def test_runner_parses_the_generated_command():
    own, *words = shlex.split(running.runner_call("-odd 'name'.ipynb", GIVEN))
    assert own == running.RUNNER
    read = runner.arguments(words)
    assert read.file == "./-odd 'name'.ipynb" and read.parameters == GIVEN.parameters
    assert (read.to, read.kernel, read.timeout_per_cell, read.allow_errors) == (["pdf"], "ir", 90, True)
    plain = runner.arguments([*RunOptions().words(), "x.ipynb"])
    assert (plain.to, plain.kernel, plain.timeout_per_cell, plain.allow_errors) == (["html"], "", None, False)
    assert runner.arguments([*RunOptions(formats=()).words(), "x.ipynb"]).to == []


HOLES = {"name": "<% $secrets.TOK %>", "<% x": ["\\<%# <<%"], "t": "'<%'"}


@pytest.mark.parametrize("limit", [None, 60])
def test_commands_and_marks_contain_no_template_tags(tmp_path, limit):
    given, file = RunOptions(HOLES, kernel="<% $secrets.TOK %>"), "<% $secrets.TOK %>'<%.ipynb"
    text = f"shown {running.runner_call(file, given)}"
    text = scripts.limit_time(text, limit) if limit else text
    assert "<%" not in text and "<%" not in json.dumps(running.run_mark("n.ipynb", given)["parameters"])
    (tmp_path / "shown").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "shown").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", text], env={"PATH": path}, capture_output=True, text=True)
    own, *words = done.stdout.splitlines()
    read = runner.arguments(words)
    assert (own, read.file, read.parameters, read.kernel) == (running.RUNNER, file, HOLES, given.kernel)


def test_served_notebook_that_is_run_instead_contains_no_template_tags():
    command = f"python3 {serving.FOLDER}/{serving.SERVER.name} --idle 7200"
    role = {"resourcePerInstance": {"cpu": 1}, "commands": [command]}
    served = {"taskRoles": {"main": role}, "extras": {serving.MARK: {"file": "n.ipynb"}}}
    original = Original(None, "me", "lab", served, Origin(Path()))
    made = resubmission.run_instead_of_serve(original, "n.ipynb", RunOptions(HOLES)).document
    [text] = made["taskRoles"]["main"]["commands"]
    assert runner.arguments(shlex.split(text)[2:]).parameters == HOLES and "<%" not in json.dumps(made)


def as_javascript_writes(value):
    """The numbers of a document as servers give them back."""
    if isinstance(value, dict):
        return {name: as_javascript_writes(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(as_javascript_writes, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return None if math.isinf(value) else int(value) if float(value).is_integer() else value


def test_run_mark_is_read_back_and_invalid_marks_are_ignored():
    odd = RunOptions({"x": math.inf, "z": 12345678901234567890, "f": 1.0, "s": [1e300], **HOLES})
    for options in (GIVEN, odd, RunOptions(), RunOptions(formats=())):
        document = {"extras": {running.MARK: running.run_mark("a/b.ipynb", options)}}
        back = running.read_run_mark(as_javascript_writes(json.loads(json.dumps(document))))
        assert back == RunMark("a/b.ipynb", options)
        assert running.runner_call(back.file, back.options) == running.runner_call("a/b.ipynb", options)
    for odd in (
        {},
        {"extras": []},
        {"extras": {running.MARK: 1}},
        {"extras": {running.MARK: {"file": ""}}},
    ):
        assert running.read_run_mark(odd) is None
    for damaged in ("{", "1", 7, "[" * 100_000):
        mark = {"file": "n.ipynb", "parameters": damaged}
        assert running.read_run_mark({"extras": {running.MARK: mark}}).options.parameters == {}


def test_job_name_is_derived_from_the_notebook_name():
    assert running.job_name_stem("My Analysis (2)") == "my-analysis-2"
    assert running.job_name_stem("分析") == "notebook"


@pytest.mark.parametrize("limit", [None, 60])
def test_runner_command_is_replaced_with_and_without_a_time_limit(limit):
    before = RunMark("a b.ipynb", RunOptions({**GIVEN.parameters, **HOLES, "x": math.inf}))
    after = RunMark("a b.ipynb", RunOptions({"t": "don't", **HOLES}))
    text = f"python3 {running.runner_call(before.file, before.options)}"
    wanted = f"python3 {running.runner_call(after.file, after.options)}"
    if limit:
        text, wanted = scripts.limit_time(text, limit), scripts.limit_time(wanted, limit)
    document = {"taskRoles": {"main": {"commands": [text]}}}
    changed = resubmission._with_command(document, before, after)
    assert changed["taskRoles"]["main"]["commands"] == [wanted]
    assert running.read_run_mark(changed) == after
    with pytest.raises(ConfigError, match=r"was changed with -u"):
        resubmission._with_command({"taskRoles": {"main": {"commands": ["true"]}}}, before, after)
    unchanged = (
        RunMark("a b.ipynb", RunOptions({"x": math.nan})),
        RunMark("a b.ipynb", RunOptions({"x": float("nan")})),
    )
    assert resubmission._with_command(document, *unchanged)["taskRoles"] == document["taskRoles"]


# Progress


def test_progress_is_read_from_the_log():
    def read(line):
        event = progress.ProgressReader().read(line)
        return event.kind, event.text

    assert read(b"notebook: cell 2 of 5: x = 'a: b'\n") == (progress.CELL, "cell 2 of 5: x = 'a: b'")
    assert read(b"notebook: cell 2 of 5 failed: E: no\n") == (progress.FAILURE, "cell 2 of 5 failed: E: no")
    assert read(b"notebook: 5 cells, kernel python3\r\n") == (progress.NOTE, "5 cells, kernel python3")
    assert read(b"notebook| 1/0\n") == (progress.DETAIL, "1/0")
    assert read(b"notebook|\n") == (progress.DETAIL, "")
    assert read(b"notebook: error: no\n") == (progress.ERROR, "no")
    assert read(b"error: sub\n") == (progress.OTHER, "error: sub")
    assert read(b"\x1b[2Jother \xff\n") == (progress.OTHER, "\\x1b[2Jother �")


def test_only_cells_that_the_runner_announced_count_as_progress():
    reader = progress.ProgressReader()
    lost = progress.RunEvent(progress.CELL, "cell 7 of 9: x")  # the log lacks its beginning
    assert reader.read(b"notebook: cell 7 of 9: x\n") == lost
    reader.read(b"notebook: 2 cells, kernel python3\n")
    for spoofed in (b"notebook: cell 7 of 7: hoho\n", b"notebook: cell 3 of 2: hoho\n"):
        assert reader.read(spoofed) == progress.RunEvent(progress.OTHER, spoofed.decode().strip())
    huge = f"cell {'9' * 5000} of 2: hoho"
    assert reader.read(f"notebook: {huge}\n".encode()) == progress.RunEvent(progress.NOTE, huge)
    failed = "notebook: cell 1 of 3 failed: no"
    assert reader.read(failed.encode()) == progress.RunEvent(progress.OTHER, failed)
    assert reader.read(b"notebook: cell 2 of 2: y\n") == progress.RunEvent(progress.CELL, "cell 2 of 2: y")


def test_first_line_of_a_cell_is_short_and_cannot_control_a_terminal():
    assert runner.first_line(cell("\n\n  x = 1\ny = 2")) == "x = 1"
    assert len(runner.first_line(cell("x" * 1000))) == runner.WIDTH
    assert runner.visible("a\tb\x1b[31m\x07\n\u202e") == "a    b\\x1b[31m\\x07\\n\\x202e"


def test_only_the_end_of_a_huge_traceback_is_logged(capfdbinary):
    runner.say_detail("\n".join(f"line {number}" for number in range(100_000)))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == "notebook| ..." and lines[-1] == "notebook| line 99999"
    assert len(lines) == runner.LINES + 1


def test_only_colours_are_kept_and_only_for_terminals():
    coloured = "\x1b[0;31mError\x1b[0m: \x1b]0;title\x07a\x1b[2Jb\x07"
    assert notebook_results.plain_traceback(coloured, has_colours=False) == "Error: ab\\x07"
    assert notebook_results.plain_traceback(coloured, has_colours=True) == "\x1b[0;31mError\x1b[0m: ab\\x07"
    assert notebook_results.plain_traceback("\x1bca\x1b\x1b[1mb\x1b[", has_colours=False) == "ab["


def test_a_damaged_notebook_has_no_summary():
    for content in (b"", b"{", b"{}", b"[]", b'{"metadata": {"openpai_run": {"index": 7}}, "cells": []}'):
        assert notebook_results.read_summary(content) is None, content


# The runner without a kernel


@pytest.mark.parametrize("program", [runner, notebook_server], ids=["runner", "server"])
def test_payload_is_one_file_that_old_python_versions_can_read(program):
    source = Path(program.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


def test_file_is_replaced_completely_or_not_at_all(tmp_path):
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
    code = (
        f"import notebook_runner as r; r.install_missing(*{modules!r}); import tinypart; print(tinypart.HERE)"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [str(bare), "-c", code],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(Path(runner.__file__).parent), "PIP_NO_INDEX": "1", **environment},
        capture_output=True,
        text=True,
    )


def test_missing_packages_are_installed_beside_the_job_even_without_pip(bare, tmp_path):
    wheel(tmp_path, "tinypart")
    done = ensured(bare, tmp_path, ["json", "tinypart"], PIP_FIND_LINKS=str(tmp_path), PIP_USER="1")
    message, where = done.stdout.splitlines()
    assert done.returncode == 0, done
    assert message == f"notebook: installing tinypart, missing from {bare}"
    assert where == str(tmp_path / runner.PACKAGES / "tinypart.py")


def test_failed_installation_is_a_one_line_error(tmp_path):
    done = ensured(sys.executable, tmp_path, ["tinypart"], PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == runner.CANNOT_RUN and done.stderr == ""
    last = done.stdout.splitlines()[-1]
    assert last.startswith("notebook: error: cannot install tinypart: ERROR: ") and "image" in last


def test_installed_packages_need_no_installer(bare, tmp_path):
    (tmp_path / "tinypart.py").write_text("HERE = 'there'\n")
    done = ensured(bare, tmp_path, ["tinypart"], PATH="/nowhere")
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
    assert done.returncode == runner.CANNOT_RUN and os.listdir(tmp_path / "out") == []
    assert done.stdout.splitlines()[-1].startswith("notebook: error: a PDF needs chromium or xelatex")


def test_import_error_is_one_line_before_the_first_cell(tmp_path):
    write(tmp_path / "n.ipynb", "1")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "nbclient.py").write_text("from json import no_such_name\n")
    done = subprocess.run(
        [sys.executable, runner.__file__, "n.ipynb"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "broken"), "PAI_OUTPUT_DIR": str(tmp_path / "out")},
        capture_output=True,
        text=True,
    )
    expected = f"notebook: error: {sys.executable} cannot import nbclient: ImportError: cannot import name"
    assert done.returncode == runner.CANNOT_RUN and done.stdout.startswith(expected), done
    assert done.stdout.count("\n") == 1 and done.stderr == "" and os.listdir(tmp_path / "out") == []


# The job


def test_a_notebook_can_be_packed_again_for_another_storage(tmp_path):
    """As after the cluster has refused a job since its storage is gone."""
    nfs = {"name": "nfs", "share": True, "type": "nfs", "data": {"server": "h", "path": "/x"}}
    answers = {"storages": Reply({"storages": [{"name": "nfs", "share": True}]}), "storages/nfs": Reply(nfs)}
    server = Scripted({f"GET /rest-server/api/v2/{path}": reply for path, reply in answers.items()})
    client = Client(Cluster("lab", server.uri, user="ann", generation="1.8"), Credentials(token="t"))
    write(tmp_path / "n.ipynb", "1")
    with contextlib.closing(server):
        request = JobRequest("", image="i", python="python3")
        book, mounts = read_notebook("n.ipynb", tmp_path), (("h:/x", str(tmp_path)),)
        made = running.plan_run(client, book, RunOptions(), request, tmp_path, mounts)
        assert made.rebuild().archive == made.archive and "n.ipynb" in made.archive.files


# The runner with a kernel

WRITES = (
    "import os\nfor e in ('html', 'py', 'ipynb'):\n"
    "    open(os.path.join(os.environ['PAI_OUTPUT_DIR'], 'n.' + e), 'w').write('mine')"
)
BAR = "for i in range(300): print(f'\\r{i} done', end='', flush=True)"
SUFFIXES = ("html", "py", "ipynb")
ZMQ_NOISE = re.compile(  # a kernel's libzmq and tornado, now and then, at its end
    r"Assertion failed: .* \(src/signaler\.cpp:\d+\)\n"
    r"|ERROR:tornado\.general:.*\nTraceback .*\n(?: .*\n)+zmq\.error\.ZMQError: .*\n"
)


def started(folder, name, *words, program=runner.__file__, preexec_fn=None, **environment):
    return subprocess.Popen(
        [sys.executable, program, name, *words],
        cwd=folder,
        env={**os.environ, "PAI_OUTPUT_DIR": str(folder / "out"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec_fn,
    )


def executed(folder, name, *words, **options):
    process = started(folder, name, *words, **options)
    out, err = process.communicate(timeout=140)
    return process.returncode, out.splitlines(), ZMQ_NOISE.sub("", err)


def until(condition, seconds=100):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


TAKEN = ("secrets", "queue", "html", "tokenize", "random", "json", "asyncio", "nbclient", "argparse")


@pytest.fixture(scope="module")
def attempts(tmp_path_factory):
    """The folder of a job that ran twice, with odd sources, no minor version, and files like the results."""
    folder = tmp_path_factory.mktemp("attempts")
    (folder / running.RUNNER).write_bytes(Path(runner.__file__).read_bytes())
    for name in TAKEN:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} of the user')\n")
    (folder / "helper.py").write_text("FACTOR = 3\n")
    ends = []
    for number in (1, 2):
        calculates = f"import helper\nprint({number} * helper.FACTOR)"
        content = notebook(calculates, WRITES, BAR, "print('a')\ndisplay(1)\nprint('b')")
        del content["nbformat_minor"]
        (folder / "n.ipynb").write_text(json.dumps(content))
        ends.append(executed(folder, "n.ipynb", "--to", "html,script", program=running.RUNNER))
        files = {path.name: path.read_text() for path in (folder / "out").iterdir()}
        assert set(files) == {f"n{part}.{suffix}" for part in ("", ".pai-run") for suffix in SUFFIXES}
        assert {files[f"n.{suffix}"] for suffix in SUFFIXES} == {"mine"}
    return folder, ends


def test_files_written_by_the_notebook_are_kept_even_when_the_job_is_retried(attempts):
    folder, ends = attempts
    for code, output, err in ends:
        assert (code, err) == (0, ""), output
        assert "notebook: keeping n.html, which the notebook wrote; the result gets another name" in output
    executed_one = folder / "out" / "n.pai-run.ipynb"
    assert outputs(executed_one)[1:] == ["", "299 done", "a\n1b\n"]
    cells = json.loads(executed_one.read_text())["cells"]
    kinds = [[one["output_type"] for one in cell["outputs"]] for cell in cells]
    assert kinds == [["stream"], [], ["stream"], ["stream", "display_data", "stream"]]
    assert "298 done" not in (folder / "out" / "n.pai-run.html").read_text()


def test_notebook_without_a_minor_version_is_run_and_converted(attempts):
    folder, ends = attempts
    assert json.loads(read_notebook("n.ipynb", folder).as_sent())["nbformat_minor"] == 5
    wrote = "notebook: wrote n.pai-run.ipynb, n.pai-run.html, n.pai-run.py"
    assert [output[-1] for _, output, _ in ends] == [wrote, wrote]


def test_sources_named_like_modules_do_not_break_the_runner(attempts):
    folder, ends = attempts
    assert {(code, err) for code, _, err in ends} == {(0, "")}, ends
    assert outputs(folder / "out" / "n.pai-run.ipynb")[0] == "6\n"
    assert ">6\n" in (folder / "out" / "n.pai-run.html").read_text()


def test_results_of_an_earlier_attempt_are_replaced(tmp_path):
    executed_one = {**notebook("1"), "metadata": {runner.STATE: {"state": "done", "files": ["n.html"]}}}
    for attempt in ("first", "second"):
        kept = runner.ResultWriter(tmp_path, "n")
        document = json.dumps({**executed_one, "attempt": attempt}).encode()
        assert [kept.write(".ipynb", document), kept.write(".html", attempt.encode())] == [
            "n.ipynb",
            "n.html",
        ]
    assert sorted(os.listdir(tmp_path)) == ["n.html", "n.ipynb"]
    assert (tmp_path / "n.html").read_text() == "second" and b"second" in (tmp_path / "n.ipynb").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_output_of_a_running_cell_is_saved_meanwhile(tmp_path, number):
    write(tmp_path / "n.ipynb", "import os, time\nprint('began', os.getpid(), flush=True)\ntime.sleep(600)")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = started(tmp_path, "n.ipynb", "--to", "ipynb", TMPDIR=str(temporary))
    saved = tmp_path / "out" / "n.ipynb"
    kernel = 0
    try:
        until(saved.exists)
        until(lambda: outputs(saved)[0].endswith("\n"))  # a slow line is sent in pieces
        kernel = int(outputs(saved)[0].split()[1])
        assert notebook_results.read_summary(saved.read_bytes()).state == "running"
    finally:
        process.send_signal(number)
        if number == signal.SIGKILL and kernel:
            with contextlib.suppress(ProcessLookupError):  # it looks for its parent, too
                os.kill(kernel, signal.SIGKILL)
        _, err = process.communicate(timeout=100)
    if number == signal.SIGTERM:
        assert (process.returncode, ZMQ_NOISE.sub("", err)) == (runner.STOPPED, "")
    assert outputs(saved) == [f"began {kernel}\n"]
    assert list(temporary.glob("*.json")) == []  # with the key of the kernel


def test_output_that_arrives_long_after_the_end_of_its_cell_is_kept(tmp_path):
    delay = "import sys, time\nget_ipython().kernel.iopub_thread.schedule(lambda: time.sleep(6))\n"
    hurry = "sys.stdout.flush_timeout = sys.stderr.flush_timeout = 0\n"  # report the end of the cell before
    write(tmp_path / "n.ipynb", f"{delay}{hurry}display('late')", "display('next')")
    assert executed(tmp_path, "n.ipynb", "--to", "ipynb")[0] == 0
    assert outputs(tmp_path / "out" / "n.ipynb") == ["'late'", "'next'"]


AWAY = "import os, time\nout = os.environ['PAI_OUTPUT_DIR']\nos.rename(out, 'away')"
BACK = (
    "while not os.path.exists('failed'): time.sleep(0.1)\nos.makedirs(out)\n"
    "while not os.path.exists(out + '/n.ipynb'): time.sleep(0.1)\nprint(os.listdir(out))"
)


def test_failed_save_does_not_end_the_run_and_is_retried(tmp_path):
    write(tmp_path / "n.ipynb", AWAY, BACK)
    process = started(tmp_path, "n.ipynb", "--to", "ipynb")
    expected = "notebook: cannot save the notebook: No such file or directory; the run continues"
    assert any(line.startswith(expected) for line in process.stdout)
    (tmp_path / "failed").touch()
    output, err = process.communicate(timeout=100)
    assert (process.returncode, ZMQ_NOISE.sub("", err)) == (0, "")
    assert outputs(tmp_path / "out" / "n.ipynb") == ["", "['n.ipynb']\n"]
    assert expected not in output and "error:" not in output


def test_result_that_cannot_be_saved_is_one_line_with_its_own_exit_code(tmp_path):
    write(tmp_path / "n.ipynb", "print('x' * 1_000_000)", "open('ran', 'w').close()", "print('on')")

    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    code, output, err = executed(tmp_path, "n.ipynb", "--to", "ipynb", preexec_fn=small_files_only)
    assert (code, err) == (runner.NOT_SAVED, "") and (tmp_path / "ran").exists()
    assert output[-1] == "notebook: error: cannot save the result: File too large"
    assert (
        sum("error" in line for line in output) == 1
        and sum("the run continues" in line for line in output) == 1
    )
    assert os.listdir(tmp_path / "out") == ["n.ipynb"] and not any("failed" in line for line in output)


def test_output_folder_that_cannot_be_created_is_a_one_line_error(tmp_path):
    write(tmp_path / "n.ipynb", "1")
    (tmp_path / "out").write_text("a file")
    code, output, err = executed(tmp_path, "n.ipynb")
    assert (code, err) == (runner.CANNOT_RUN, "")
    assert output == ["notebook: error: cannot create the output folder: File exists"]


def test_parameters_are_refused_by_the_language_of_the_kernel(tmp_path):
    spec = tmp_path / "jupyter" / "kernels" / "odd"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": ["no"], "display_name": "Odd", "language": "R"}))
    write(tmp_path / "n.ipynb", "1")
    words = ("--kernel", "odd", "--to", "ipynb", "--parameters", '{"a": 1}')
    code, output, err = executed(tmp_path, "n.ipynb", *words, JUPYTER_PATH=str(tmp_path / "jupyter"))
    expected = "notebook: error: -p works for Python notebooks only, and kernel 'odd' is for R"
    assert (code, output, err) == (runner.CANNOT_RUN, [expected], "")


def test_notebook_that_cannot_be_converted_is_refused_before_the_first_cell(tmp_path):
    write(tmp_path / "n.ipynb", "open('ran', 'w')", cell("1", metadata={"collapsed": "no"}))
    code, output, _ = executed(tmp_path, "n.ipynb", "--to", "ipynb")
    assert code == runner.CANNOT_RUN and not (tmp_path / "ran").exists()
    expected = "notebook: error: cannot read n.ipynb as a notebook: NotebookValidationError: 'no' is not"
    assert output[-1].startswith(expected)


def test_old_notebook_that_cannot_be_converted_is_a_one_line_error(tmp_path):
    sheet = {"cells": [{"cell_type": "code"}]}
    broken = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [sheet]}
    (tmp_path / "n.ipynb").write_text(json.dumps(broken))
    code, output, err = executed(tmp_path, "n.ipynb", "--to", "ipynb")
    assert (code, err) == (runner.CANNOT_RUN, "")
    assert len(output) == 1 and output[0].startswith("notebook: error: cannot read n.ipynb as a notebook: ")


def test_progress_bars_are_shown_in_their_final_state():
    assert runner.render_text("a\r\nb\n") == "a\nb\n"
    assert runner.render_text("x\n10%\r100%\rok\n") == "x\nok0%\n"
    assert runner.render_text("50%\b\b\b\r60%\r") == "60%"


ON_TERMINALS = {
    "Downloading 10%\r\x1b[KDone": "Done",
    "\x1b[32mProgress 50%\x1b[0m\rOK\x1b[K": "OK",
    "\x1b[31mred\x1b[0m\rx": "x\x1b[31med\x1b[0m",
    "\x1b[1;31mred\n50%\r60%\x1b[0m on\nplain\rP": "\x1b[1;31mred\n60%\x1b[0m on\nPlain",
    "\x1b[0;31mab\x1b[m\r\x1b[0;32mc\x1b[m": "\x1b[0;32mc\x1b[0m\x1b[0;31mb\x1b[0m",
    "abc\r\x1b[2Kx": "x",
    "\x1b[1Aup\rx\n1\r2": "\x1b[1Aup\rx\n2",
    "half\r\x1b[3": "half\r\x1b[3",
    "\x1b[32ma\x1b[0m": "\x1b[32ma\x1b[0m",
}


def test_colours_stay_with_their_text_and_erased_text_is_dropped():
    assert {printed: runner.render_text(printed) for printed in ON_TERMINALS} == ON_TERMINALS


def test_long_progress_bars_are_rendered_quickly():
    bar = "".join(f"\r\x1b[32m{i}\x1b[0m |{'#' * 60}|" for i in range(5_000))
    began = time.process_time()  # a waiting machine does not count
    assert runner.render_text(bar) == f"\x1b[32m4999\x1b[0m |{'#' * 60}|"
    assert runner.render_text("\r" + "\x1b[32m.\x1b[0m," * 30_000).endswith("\x1b[32m.\x1b[0m,")
    assert time.process_time() - began < 10


# Downloaded results


def of_job(folder, name="n.ipynb"):
    """The results of a job that has written these files."""
    mark, place = RunMark(name), Location(LocalStore(), str(folder), str(folder))
    found = outputs_of.list_outputs("job", place)
    return notebook_results.Results(
        JOB, mark, found, notebook_results._executed_notebook(found.files, mark), False
    )


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The output folder of a job: an executed notebook, which lists its results, and other files."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    out = tmp_path / "out"
    made = {**PYTHON, "openpai_run": {"state": "done", "cell": 1, "of": 1}}
    made["openpai_run"]["files"] = ["n.pai-run.ipynb", "n.pai-run-2.html", "n.py", "gone.pdf", "../x.txt"]
    write(out / "n.pai-run.ipynb", "1", metadata=made)
    for own in ("n.ipynb", "n.html", "n.pai-run.html", "n.csv", "n.pt", "s/n.html"):
        (out / own).parent.mkdir(exist_ok=True)
        (out / own).write_text("mine")
    for name in ("n.pai-run-2.html", "n.py"):
        (out / name).write_text("made")
    (tmp_path / "here").mkdir()
    return out


def test_the_files_that_the_executed_notebook_lists_are_downloaded(written, tmp_path):
    downloaded = notebook_results.download_results(of_job(written), tmp_path / "here")
    names = ["n.lab.pai-run.ipynb", "n.lab.pai-run-2.html", "n.lab.py"]
    assert [Path(file.path).name for file in downloaded.files] == names
    assert sorted(os.listdir(tmp_path / "here")) == sorted(names) and downloaded.others == 6
    assert downloaded.summary.state == "done" and not downloaded.copied.failed


def test_a_notebook_that_lists_no_files_is_downloaded_alone(written, tmp_path):
    state = {**PYTHON, "openpai_run": {"state": "running", "cell": 1, "of": 1}}
    write(written / "n.pai-run.ipynb", "1", metadata=state)
    downloaded = notebook_results.download_results(of_job(written), tmp_path / "here")
    assert os.listdir(tmp_path / "here") == ["n.lab.pai-run.ipynb"] and downloaded.others == 8


def test_a_failed_download_affects_neither_the_other_files_nor_the_verdict(written, tmp_path):
    found = of_job(written)
    (written / "n.pai-run-2.html").unlink()
    downloaded = notebook_results.download_results(found, tmp_path / "here")
    assert [Path(file.path).name for file in downloaded.files] == ["n.lab.pai-run.ipynb", "n.lab.py"]
    [lost] = downloaded.copied.failed
    assert lost.path.endswith("n.pai-run-2.html") and downloaded.copied.files == 2
    assert downloaded.summary.state == "done"


def test_the_summary_is_read_remotely_if_the_notebook_cannot_be_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    state = {**PYTHON, "openpai_run": {"state": "failed", "cell": 1, "of": 1, "index": 0}}
    write(tmp_path / "out" / "n.ipynb", "1/0", metadata=state)
    downloaded = notebook_results.download_results(of_job(tmp_path / "out"), too_deep(tmp_path))
    assert (
        downloaded.files == [] and len(downloaded.copied.failed) == 1 and downloaded.summary.source == "1/0"
    )


def test_only_unchanged_downloads_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    path, beside = tmp_path / "n.j.ipynb", tmp_path / "n.j.remote.ipynb"
    assert downloads.free_path(path) == path
    path.write_text("mine")
    assert downloads.free_path(path) == beside
    beside.write_text("theirs")
    downloads.remember([beside])
    assert downloads.free_path(path) == beside
    beside.write_text("theirs, changed")
    assert downloads.free_path(path) == tmp_path / "n.j.remote-2.ipynb"
    path.unlink()
    path.symlink_to(beside)
    downloads.remember([path])
    assert downloads.free_path(path) != path
    assert (tmp_path / "home" / "downloads.json").stat().st_mode & 0o777 == 0o600


def test_best_page_is_html_then_pdf_then_the_notebook(tmp_path):
    made = [
        notebook_results.DownloadedFile(f"{tmp_path}/n{end}", 1) for end in (".py", ".ipynb", ".pdf", ".html")
    ]
    ends = [notebook_results.best_page(made[:count]).rpartition("/")[2] for count in (1, 2, 3, 4)]
    assert ends == ["", "n.ipynb", "n.pdf", "n.html"]
    assert not notebook_results.is_for_browsers(notebook_results.best_page(made[:2]))


DYING_KERNEL = """\
import os, pathlib, sys
starts = pathlib.Path(sys.argv[1])
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) <= int(sys.argv[2]):
    sys.exit(1)
os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *sys.argv[3:]])
"""


@pytest.mark.parametrize("deaths", [2, 3])
def test_kernel_that_dies_as_it_starts_is_started_again(tmp_path, deaths):
    spec = tmp_path / "jupyter" / "kernels" / "dying"
    spec.mkdir(parents=True)
    starts = [str(tmp_path / "starts"), str(deaths)]
    argv = [sys.executable, "-c", DYING_KERNEL, *starts, "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Dying", "language": "python"})
    )
    write(tmp_path / "n.ipynb", "print(1)")
    environment = {"JUPYTER_PATH": str(tmp_path / "jupyter")}
    code, output, _ = executed(tmp_path, "n.ipynb", "--kernel", "dying", "--to", "ipynb", **environment)
    assert (tmp_path / "starts").read_text() == "xxx"
    if deaths == 2:
        assert code == 0 and outputs(tmp_path / "out" / "n.ipynb") == ["1\n"]
    else:
        message = "notebook: error: cannot start kernel dying: Kernel died before replying to kernel_info"
        assert (code, output[-1]) == (2, message)
