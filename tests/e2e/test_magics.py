"""`%load_ext openpai_tasks` in a real kernel, against the embedded cluster."""

import contextlib
import json

import nbformat
import pytest

from tests.kernels import kernel_in

SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(60)"


@pytest.fixture(scope="module")
def kernel(cluster):
    with kernel_in(cluster) as kernel:
        kernel.ok("%load_ext openpai_tasks")
        yield kernel


def state(cluster, name):
    return cluster.ok("job.status", name, "-o", "json").json()["state"]


@pytest.fixture(scope="module")
def tabled(cluster):
    """A job that has ended, for tests that show it."""
    cluster.ok("job.sub", "true", "--job-name", "tabled")
    cluster.ok("job.wait", "tabled")


def test_table_is_shown_as_html_and_as_text(kernel, tabled):
    shown = kernel.ok("%pai job.list")
    (picture,) = shown.pictures
    assert set(picture) == {"text/plain", "text/html"}
    assert picture["text/plain"].startswith("NAME ") and "tabled" in picture["text/plain"]
    assert "<table>" in picture["text/html"] and "SUCCEEDED</strong>" in picture["text/html"]
    assert shown.out == ""


def test_rows_of_a_table_can_be_assigned_and_shown_again(kernel):
    kernel.ok("rows = %pai config.show")
    assert kernel.ok("print(next(row['value'] for row in rows if row['name'] == 'gpu'))").out == "0\n"
    assert "<td" in kernel.ok("rows").html
    assert (
        kernel.ok("%pai config.show").html.count("<table>") == 1
    )  # not shown twice as the value of the cell


def test_empty_table_shows_none(kernel):
    assert "<em>none</em>" in kernel.ok("%pai job.list --keyword nosuchjob").html


def test_the_status_of_a_job_shows_its_tasks(cluster, kernel):
    cluster.ok("job.sub", "exit 3", "--job-name", "broken")
    assert cluster.inv("job.wait", "broken").code == 3
    html = kernel.ok("%pai job.status broken").html
    assert html.count("<table>") >= 2 and "FAILED</strong>" in html and "because: " in html


def test_variables_are_substituted_into_the_line(kernel, tabled):
    kernel.ok("name = 'tabled'")
    assert "tabled" in kernel.ok("%pai job.status {name}").html


def test_other_formats_are_printed_unchanged(kernel, tabled):
    shown = kernel.ok("%pai job.list --keyword tabled -o json")
    assert [job["name"] for job in json.loads(shown.out)] == ["tabled"]
    assert shown.pictures == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%pai job.status nosuch", "no job named 'nosuch' on cluster 'local'"),
        ("%pai job.lst", "no task named 'job.lst', did you mean job.list? (exit code 120)"),
        ("%pai job.list 'x", "cannot parse the line: no closing quotation"),
        ("%pai job.list --limit two", "--limit needs a whole number"),
        ("%%pai_sub --nosuch 1\nprint(1)", "job.sub has no flag --nosuch"),
        ("%%pai_sub\n \n", "the cell is empty"),
        ("%%pai_sub\nx = 1\n!ls", "the cell uses IPython syntax"),
        ("%%pai_sub\nx = 1\nx =", "line 2: invalid syntax; nothing was submitted"),
        ("%%pai_sub\nawait something()", "nothing was submitted"),
    ],
)
def test_error_of_a_magic_is_one_line(kernel, line, message):
    shown = kernel.run(line)
    assert message in shown.error[0]
    assert shown.error[1] == f"error: {shown.error[0]}"
    assert "Traceback" not in shown.err and shown.error[0] not in shown.err


def test_logs_stream_into_the_notebook(cluster, kernel):
    cluster.ok("job.sub", "echo one; sleep 0.3; echo two", "--job-name", "talking")
    assert kernel.ok("%pai job.logs talking -f").out == "one\ntwo\n"


def test_a_job_that_fails_fails_the_cell_with_its_exit_code(cluster, kernel):
    shown = kernel.run("%%pai_sub --job-name failing\nimport sys\nprint('so far')\nsys.exit(7)")
    assert shown.out == "so far\n"
    assert shown.error[0].startswith("job 'failing' failed: ") and "exit code 7" in shown.error[0]
    assert shown.error[1] == f"error: {shown.error[0]}"


def test_code_of_a_cell_is_sent_as_a_file(cluster, kernel):
    code = "import sys, pathlib\nprint(sys.argv[1:])\nprint('ünï \"quoted\" $HOME')\nprint(__name__)"
    shown = kernel.ok(f"%%pai_sub --job-name travelling -- 'a b' c\n{code}")
    assert shown.out == "['a b', 'c']\nünï \"quoted\" $HOME\n__main__\n"
    document = cluster.ok("job.config", "travelling").out
    assert "pai_cell.py" in document and "quoted" not in document


def test_traceback_names_the_line_of_the_cell(kernel):
    shown = kernel.run("%%pai_sub\nx = 1\nx / 0")
    assert shown.error[0].startswith("job 'cell-")
    assert 'File "' in shown.out and "pai_cell.py" in shown.out and "line 2" in shown.out
    assert "(exit code 1)" in shown.error[0]


def test_cell_is_sent_with_its_sources(cluster, kernel):
    (cluster.project / "answers.py").write_text("ANSWER = 42\n")
    assert kernel.ok("%%pai_sub --sources answers.py\nimport answers\nprint(answers.ANSWER)").out == "42\n"


def test_cell_is_sent_with_the_configured_sources(cluster, kernel):
    (cluster.project / "always.txt").write_text("always\n")
    cluster.ok("config.set", "sources=always.txt")
    try:
        assert kernel.ok("%%pai_sub\nprint(open('always.txt').read(), end='')").out == "always\n"
    finally:
        cluster.ok("config.unset", "sources")


def test_an_interrupt_leaves_the_job_running_and_says_how_to_stop_it(cluster, kernel):
    shown = kernel.interrupt_when(f"%%pai_sub --job-name kept\n{SLOW}", "begun")
    assert shown.error[1] == "error: interrupted"
    assert "job kept continues" in shown.err and "job.stop kept" in shown.err
    assert state(cluster, "kept") == "RUNNING"
    kernel.ok("%pai job.stop kept")
    assert cluster.inv("job.wait", "kept").code == 143


def test_untrusted_text_is_escaped_in_html(cluster, kernel):
    evil = "<script>alert(1)</script>"
    cluster.ok("job.sub", f"echo '{evil}'; exit 4", "--job-name", "evil", "--tag", "<b>tag</b>")
    assert cluster.inv("job.wait", "evil").code == 4
    assert "<script>" not in kernel.ok("%pai job.status evil").html
    html = kernel.ok(f"rows = %pai config.set image='{evil}'\n%pai config.show").html
    cluster.ok("config.unset", "image")
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_missing_display_pipe_is_ignored(cluster):
    ran = cluster.ok("config.show", OPENPAI_DISPLAY="99")
    assert ran.out.startswith("NAME ")


def test_jobs_of_the_python_binding_are_shown_as_tables(kernel, tabled):
    kernel.ok("from openpai_tasks.settings.config import Settings\nfrom openpai_tasks.sdk import clusters")
    kernel.ok("client = clusters.connect(Settings.load())")
    assert "tabled" in kernel.ok("client.jobs()").html
    assert "tabled" in kernel.ok("client.jobs(keyword='tabled')[0]").html
    assert kernel.ok("[1, 2]").html == ""


# This notebook


def saved(folder, *sources, name="mine.ipynb", tagged=""):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for cell in cells:
        cell.metadata.tags = ["parameters"] if cell.source == tagged else []
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = folder / name
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return path


PARAMETERS = "{'n': 20, 'm': float('inf'), 't': '\\x07'}"
SUBMIT = f"job = submit_this_notebook(parameters={PARAMETERS}, job_name='whole', to=['ipynb'])"


def test_notebook_submits_itself_without_the_cells_that_use_the_cluster_and_unloads(cluster, tmp_path):
    path = saved(
        *(tmp_path, "%load_ext openpai_tasks", "n = 1", "print('twice', 2 * n, m, repr(t))", SUBMIT),
        tagged="n = 1",
    )
    with kernel_in(cluster, tmp_path, JPY_SESSION_NAME=str(path)) as kernel:
        kernel.ok("%load_ext openpai_tasks\n%reload_ext openpai_tasks")
        messages = kernel.ok(SUBMIT).err
        assert "2 cells that use the cluster are not run" in messages and "notebook.fetch whole" in messages
        assert "<table>" in kernel.ok("job").html
        kernel.ok("%pai notebook.fetch whole --follow --no-browser")
        kernel.ok("%unload_ext openpai_tasks")
        gone = "'pai' in get_ipython().magics_manager.magics['line'], 'submit_this_notebook' in globals()"
        assert kernel.ok(f"print({gone})").out == "False False\n"
    (made,) = tmp_path.glob("mine.whole.ipynb")
    cells = nbformat.read(made, as_version=4).cells
    assert [cell.cell_type for cell in cells].count("raw") == 2
    assert "twice 40 inf '\\x07'\n" in [out.text for cell in cells for out in cell.get("outputs", ())]


@contextlib.contextmanager
def variable(kernel, name, value):
    """Set an environment variable of the kernel until the end of the block."""
    kernel.ok(f"import os\nos.environ[{name!r}] = {value!r}")
    try:
        yield
    finally:
        kernel.ok(f"del os.environ[{name!r}]")


def test_unsaved_notebook_is_not_submitted(kernel, tmp_path):
    path = saved(tmp_path, "print(1)")
    with variable(kernel, "JPY_SESSION_NAME", str(path)):
        shown = kernel.run("submit_this_notebook()")
        assert "mine.ipynb does not contain this cell as it is now; save the notebook" in shown.error[0]
        assert shown.error[1] == f"error: {shown.error[0]}"
        path.unlink()
        assert "when its kernel started" in kernel.run("submit_this_notebook()").error[0]


def test_notebook_with_an_unknown_file_asks_for_its_name(kernel):
    error = kernel.run("submit_this_notebook()").error[0]
    assert error.startswith("cannot find out which file this notebook is in; name it")
    shown = kernel.run("submit_this_notebook('nosuch.ipynb')")
    assert shown.error[0].startswith("cannot read notebook 'nosuch.ipynb'")


def test_variable_of_vs_code_names_the_notebook_file(cluster, kernel):
    path = saved(cluster.project, "print('from vs code')", name="vs code.ipynb")
    code = "job = submit_this_notebook(job_name='vs')"
    kernel.ok(f"__vsc_ipynb_file__ = {str(path)!r}")
    assert "vs code.ipynb does not contain this cell" in kernel.run(code).error[0]
    kernel.ok("job = submit_this_notebook(job_name='vs', unsaved=True)\ndel __vsc_ipynb_file__")
    cluster.ok("job.stop", "vs")


def test_notebook_that_runs_in_a_job_does_not_submit_itself_again(cluster, kernel, tmp_path):
    path = saved(tmp_path, "submit_this_notebook()")
    before = len(cluster.ok("job.list", "-o", "json").json())
    with variable(kernel, "PAI_JOB_NAME", "ann~mine"):
        shown = kernel.ok(f"submit_this_notebook({str(path)!r})")
    assert "running in job ann~mine itself: nothing is submitted" in shown.err
    assert len(cluster.ok("job.list", "-o", "json").json()) == before


def test_parameters_that_cannot_be_sent_are_refused(cluster, kernel):
    path = saved(cluster.project, "n = 1", name="sent.ipynb")
    for given, expected in (
        ("{'n': object()}", "the parameter 'n': cannot send a value of type object"),
        ("{'n': {1: 2}}", "the parameter 'n': keys of a mapping must be strings, got 1"),
        ("{'not a name': 1}", "'not a name' is not a valid name for a Python variable"),
    ):
        shown = kernel.run(f"submit_this_notebook({str(path)!r}, parameters={given}, unsaved=True)")
        assert expected in shown.error[0]


def test_submit_this_notebook_takes_the_arguments_of_the_command(cluster, kernel, tabled):
    path = saved(cluster.project, "import os\nprint(os.environ['MINE'])", name="flags.ipynb")
    given = "secret='MINE', shm='64m', retries=2, tag=['t1', 't2'], after='tabled', memoryMB='256m', cpu=1"
    call = f"job = submit_this_notebook({str(path)!r}, unsaved=True, job_name='flags', {given})"
    assert "secret 'MINE' is not in the environment" in kernel.run(call).error[0]
    with variable(kernel, "MINE", "value of mine"):
        kernel.ok(call)
    assert sorted(cluster.ok("job.status", "flags", "-o", "json").json()["tags"]) == ["t1", "t2"]
    document = cluster.ok("job.config", "flags").out
    for text in ("jobRetryCount: 2", "shmMB: 64", "memoryMB: 256", "$secrets.MINE"):
        assert text in document
    cluster.ok("job.stop", "flags")


def test_unknown_argument_is_reported_in_one_line(kernel):
    shown = kernel.run("submit_this_notebook(gpus=1)")
    assert shown.error[0] == "submit_this_notebook has no argument 'gpus', did you mean gpu?"
    assert shown.error[1] == f"error: {shown.error[0]}"


def test_notebook_run_also_skips_cells_that_use_the_cluster(cluster):
    saved(
        cluster.project, "%load_ext openpai_tasks", "%pai job.list", "print('computed')", name="mixed.ipynb"
    )
    ran = cluster.ok("notebook.run", "mixed.ipynb", "-j", "mixed", "--to", "ipynb", "--cpu", "1")
    assert "note: 2 cells that use the cluster are not run" in ran.err
    cells = nbformat.read(cluster.project / "mixed.mixed.ipynb", as_version=4).cells
    assert [cell.cell_type for cell in cells] == ["raw", "raw", "code"]
    again = cluster.ok("notebook.resubmit", "mixed.ipynb", "--preview")
    assert "note: 2 cells that use the cluster are not run" in again.err
