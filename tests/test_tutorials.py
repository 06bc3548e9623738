"""The tutorials work: each runs from its first cell to its last, with a real kernel and cluster."""

import re
import shutil
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from openpai_tasks.sdk.payloads.notebook_runner import private_transport
from tests.conftest import make_shell
from tests.test_docs import commands

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = pytest.mark.timeout(300)  # many commands, one after the other

EXPECTED = {
    "1-set-up.ipynb": ("hello from ", "<table>", "'cpu': 1"),
    "2-submit-and-query.ipynb": ("step 5: loss", "the rate is too large", '{"loss": 0.237}', "0.166"),
    "3-run-a-notebook.ipynb": ("ipynb True", "the sum is 30", "cell 2 of 4"),
    "4-python-binding.ipynb": ("hello world", "('SUCCEEDED', 0)", "2 FAILED", "n,square", "no job named"),
}
"""Text that each tutorial must display."""


def displayed_text(notebook):
    """Return all text that the cells displayed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = [output.get("text", "") + "".join(output.get("traceback", ())) for output in outputs]
    pictures = ["\n".join(output.get("data", {}).values()) for output in outputs]
    return "\n".join(["".join(texts), *pictures])  # printed text may come in chunks of any size


def test_folder_holds_the_four_tutorials():
    assert [path.name for path in TUTORIALS] == sorted(EXPECTED)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Somebody new, who reads one tutorial after the other: a shell without a cluster, and a home folder."""
    shell, home = make_shell(tmp_path_factory.mktemp("reader")), tmp_path_factory.mktemp("user")
    (shell.project / "tasks.py").unlink()  # a new user has no tasks.py
    startup = home / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "0.py").write_text(
        "import sys\nsys.modules['rfc3987_syntax'] = None\n"
    )  # see tests/__init__.py
    yield shell, home
    shell.pai("cluster.stop")


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_to_the_end(reader, path):
    shell, home = reader
    shutil.copy(path, shell.project)
    notebook = nbformat.read(shell.project / path.name, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:  # another process may take a port before the kernel does
        client = NotebookClient(
            notebook,
            config=Config(KernelManager=private_transport(sockets)),
            timeout=100,
            startup_timeout=100,
            iopub_timeout=100,  # less may lose outputs of a busy machine
            resources={"metadata": {"path": str(shell.project)}},
            extra_arguments=["--log-level=ERROR"],
        )
        client.execute(env={**shell.environment, "HOME": str(home), "IPYTHONDIR": str(home / "ipython")})
    for text in EXPECTED[path.name]:
        assert text in displayed_text(notebook), text


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_is_stored_without_outputs_or_local_paths(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert not re.search(r"(?<![\w.:/])/(?:home|root|tmp|work|usr|Users)/", path.read_text())


def test_tutorial_links_point_to_existing_files():
    cells = [cell for path in TUTORIALS for cell in nbformat.read(path, as_version=4).cells]
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    for target in re.findall(r"\]\(([^)#]+)\)", "\n".join(texts)):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


def test_paddlecloud_tutorial_trains_and_fetches_its_model(shell):
    folder = FOLDER / "paddlecloud"
    shutil.copytree(folder, shell.project, dirs_exist_ok=True)
    printed = ""
    for line in commands((folder / "README.md").read_text()):
        ran = shell.run("sh", "-c", line)
        assert ran.code == 0, (line, ran)
        printed += ran.out
    assert "[trainer-0] wrote job_word_emb_model/vectors.npz" in printed
    closest = re.search(r"^closest: (.*)$", printed, re.M)
    assert closest and set(closest[1].split()) == {"dog", "horse", "cow"}


def test_paddlecloud_tutorial_links_point_to_existing_files():
    page = FOLDER / "paddlecloud" / "README.md"
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
