"""The documentation is correct: its commands run, its links work, its tables are complete."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest

from docsite import commands as commands_page
from docsite import troubleshooting
from openpai_tasks import namespace
from openpai_tasks.causes import CAUSES
from openpai_tasks.errors import ConfigError

pytestmark = pytest.mark.timeout(300)  # many commands, one after the other
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text):
    """Return the shell commands of the blocks that are marked as runnable."""
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```", text, re.S)
    return [line for block in blocks for line in block.splitlines()]


def test_readme_commands_run_in_order(shell):
    (shell.project / "tasks.py").unlink()  # `pai` works without it
    for line in commands(README):
        ran = shell.run("sh", "-c", line)
        assert ran.code == 0, (line, ran)
        assert "Traceback" not in ran.err
        assert line != "pai storage.ls pai://local/home" or "answer.txt" in ran.out


@pytest.mark.parametrize("name", ["containers.md", "images.md", "paddlecloud.md", "portal.md"])
def test_page_commands_run_in_order(shell, name):
    lines = commands((ROOT / "docs" / name).read_text())
    assert lines
    for line in lines:
        ran = shell.run("sh", "-c", line)
        assert ran.code == 0, (line, ran)


def test_first_readme_command_prints_hello(shell):
    first = next(line for line in README.splitlines() if line.startswith("python3 -m venv"))
    words = shlex.split(first.rpartition("&&")[2])
    assert Path(words[0]).name == "inv"
    for name in ("tasks.py", "invoke.yaml"):
        shutil.copy(ROOT / name, shell.project / name)
    assert shell.ok(*words[1:]).out == "hello from a job\n"


def test_ci_runs_the_test_command_in_the_readme():
    command = next(line for line in README.splitlines() if ".venv/bin/pytest" in line)
    assert command.replace("python3 ", '"$python" ', 1) in (ROOT / ".ci" / "run").read_text()


def test_building_the_site_without_its_packages_names_the_extra(monkeypatch):
    spec = importlib.util.spec_from_file_location("tasks_of_this_project", ROOT / "tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape("pip install -e '.[docs]'")):
        module._mkdocs(None, "build")


def test_the_page_of_error_messages_is_current():
    page = troubleshooting.FILE.read_text()
    assert page == troubleshooting.page(), "write it again: inv docs.troubleshooting"
    assert all(f"\n### {row.title}\n" in page for row in CAUSES)


def test_the_list_of_commands_is_current():
    assert commands_page.FILE.read_text() == commands_page.overview(), "write it again: inv docs.commands"
    listed = set(re.findall(r"^\| `(\w+\.[\w-]+)` \|", commands_page.FILE.read_text(), re.M))
    assert listed == set(namespace().task_names)


def test_commands_are_written_with_pai():
    """Only the pages about a project's own tasks use `inv`, which needs a tasks.py."""
    others = [page for page in PAGES if page.name not in ("customising.md", "performance.md")]
    written = {page.name: re.findall(r"^(?:\$ )?inv .*", page.read_text(), re.M) for page in others}
    assert not {name: lines for name, lines in written.items() if lines}


def test_links_point_to_existing_files():
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)#]+)\)", page.read_text())]
    files = [(page.name, page.parent / target) for page, target in links if not target.startswith("https://")]
    assert len(files) > 50 and not [(name, file) for name, file in files if not file.exists()]


def test_every_guide_links_to_a_next_step():
    reference = {"architecture.md", "commands.md", "performance.md", "troubleshooting.md"}
    guides = [page for page in PAGES if page.name not in reference]
    ends = re.compile(r"^(Next: .*\]\(|## Next steps$)", re.M)
    assert not [page.name for page in guides if not ends.search(page.read_text())]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/extending.md"])
def test_files_named_in_developer_docs_exist(page):
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", (ROOT / page).read_text())
    tops = (ROOT, ROOT / "openpai_tasks")
    assert named and not [name for name in named if not any((top / name).exists() for top in tops)]
