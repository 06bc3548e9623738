"""The Python examples of the documentation run, and print what they say."""

import re
import sys
from pathlib import Path

import pytest

from openpai_tasks import Cluster, Job
from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.pai.flat_names import CLASSIC
from tests.notices import without_resources

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ["python.md", "from-openpaisdk.md"]
ADDRESS = "https://pai.example.org"
BLOCK = re.compile(r"(<!-- pytest -->\n)?```python\n(.*?)```", re.S)


def page(name):
    return (DOCS / name).read_text()


def examples(name, is_test=False):
    """Return the Python blocks of a page: those to run, or those for pytest."""
    return [code for mark, code in BLOCK.findall(page(name)) if bool(mark) == is_test]


def printed(code):
    """Return what the comments behind calls of ``print`` say."""
    return re.findall(r"^ *print\(.*\)  # (.*)$", code, re.M)


@pytest.mark.parametrize("name", PAGES)
def test_examples_print_what_the_page_says(shell, name):
    run_examples(shell, name)


def run_examples(shell, name, **environment):
    """Run a page's examples; the cluster at the example address is the embedded one, with its own user."""
    access = shell.ok("cluster.credentials", "-o", "json").json()
    code = "\n".join(examples(name)).replace(ADDRESS, access["uri"]).replace('"ann"', repr(access["user"]))
    (shell.project / "example.py").write_text(code)
    ran = shell.run(sys.executable, "example.py", LAB_PASSWORD=access["password"], **environment)
    assert (ran.code, without_resources(ran.err)) == (0, "")
    assert printed(code) and ran.out.splitlines() == printed(code)


def test_the_table_of_commands_is_complete_and_correct():
    text = page("from-openpaisdk.md")
    named = set(re.findall(r"`pai (\w+\.[\w-]+)", text))
    assert named <= namespace().task_names.keys()
    old = set(re.findall(r"`pai ([a-z]+(?:-[a-z]+)*)[` ]", text))
    assert {name for name in CLASSIC if "-" in name} - {"stop-job"} <= old


def test_the_table_of_python_names_is_correct():
    """Every method that the table gives as new exists."""
    rows = re.findall(r"^\| .* \| (.*) \|$", page("from-openpaisdk.md").partition("## Commands")[0], re.M)
    named = [found for row in rows for found in re.findall(r"(?<!\[)`(job|cluster)\.(\w+)", row)]
    classes = {"job": Job, "cluster": Cluster}
    assert len(named) > 10 and not [(who, name) for who, name in named if not hasattr(classes[who], name)]
