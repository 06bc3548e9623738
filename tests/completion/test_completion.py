"""Completion in real shells: a person types, presses TAB and Enter, and the command sees its words.

No program can be found in these shells, so whatever is completed was completed without starting one.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.completion import Command, script
from tests.conftest import make_shell
from tests.needs import needs, require
from tests.test_docs import ROOT, commands

TASKS = """
from openpai_tasks.tasks import namespace, task

@task
def train_model(c, cluster_alias=None):
    "Train it."

ns = namespace(train_model)
"""
LISTS = {
    "clusters": "local\nlab\nlab-2\n",
    "virtual-clusters": "default\nresearch\nvc;echo>pwned\n",
    "storages": "home\nteam\n",
    "jobs/local": "train-1\ntrain-2\nbob~x\n",
    "jobs/lab": "other-1\n",
    "templates": "hello\npytorch-ddp\n",
    "paths": "pai://lab/nfs/data/a.txt\npai://lab/nfs/data/b c.txt\npai://lab/nfs/out/\npai://lab-2/x\npai://x/$(echo>pwned)\n",
}
HOSTILE = [
    "run$(echo>pwned)",
    "tick`echo>pwned`",
    "next;echo>pwned",
    "both&echo>pwned",
    "into>pwned",
    "quote'; echo>pwned; '",
    'double"; echo>pwned; "',
    "slash\\; echo>pwned",
    "fish(echo>pwned)",
    "home~$HOME",
    "~root",
    "bang!!",
    "# hash",
    "*",
]
"""Names of templates in a stranger's folder."""
COPY = {"storage.copy": Command(words=("paths", "paths"))}

TYPED = {
    "pai job.statu": ["job.status"],
    "pai select-c": ["select-cluster"],
    "pai --vers": ["--version"],
    "pai config.set --is": ["config.set", "--is-global"],
    "pai set --is": ["set", "--is-global"],
    "pai config.set ima": ["config.set", "image="],
    "pai config.unset ima": ["config.unset", "image"],
    "pai config.completion fi": ["config.completion", "fish"],
    "pai cluster.select loc": ["cluster.select", "local"],
    "pai job.list -o js": ["job.list", "-o", "json"],
    "pai job.list --output=js": ["job.list", "--output=json"],
    "pai job.list --vc res": ["job.list", "--vc", "research"],
    "pai job.list --limit 3 cluster.sel": ["job.list", "--limit", "3", "cluster.select"],
    "pai job.status oth": ["job.status", "other-1"],
    "pai job.status -a lab ": ["job.status", "-a", "lab", "other-1"],
    "pai job.status --cluster-alias=lab-": ["job.status", "--cluster-alias=lab-2"],
    "pai job.status --cluster-alias=lab ": ["job.status", "--cluster-alias=lab", "other-1"],
    "pai job.stop train-1 bob": ["job.stop", "train-1", "bob~x"],
    "pai job.new pyt": ["job.new", "pytorch-ddp"],
    "pai job.new our": ["job.new", "our-own"],
    "pai job.submit our-j": ["job.submit", "our-job.yaml"],
    "pai job.validate a our-j": ["job.validate", "a", "our-job.yaml"],
    "pai job.submit --file=our-j": ["job.submit", "--file=our-job.yaml"],
    "pai storage.select te": ["storage.select", "team"],
    "pai storage.add x --type azureb": ["storage.add", "x", "--type", "azureblob"],
    "inv train-m": ["train-model"],
    "inv train-model --cluster-alias loc": ["train-model", "--cluster-alias", "local"],
    "invoke job.wait other": ["job.wait", "other-1"],
    "copy storage.copy pai://lab/n": ["storage.copy", "pai://lab/nfs/"],
    "copy storage.copy pai://lab/nfs/d": ["storage.copy", "pai://lab/nfs/data/"],
    "copy storage.copy x pai://lab/nfs/data/b": ["storage.copy", "x", "pai://lab/nfs/data/b c.txt"],
    "copy storage.copy pai:": ["storage.copy", "pai://"],
    "copy storage.copy pai://x/": ["storage.copy", "pai://x/$(echo>pwned)"],
    "pai job.list --vc vc": ["job.list", "--vc", "vc;echo>pwned"],
    "pai job.list --vc=vc": ["job.list", "--vc=vc;echo>pwned"],
}


class Terminal:
    """A shell at a terminal, with somebody typing."""

    END = "END\r\n"

    def __init__(self, argv: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:  # the child, which becomes the shell
            os.chdir(folder)
            os.execvpe(argv[0], argv, environment)

    def type(self, keys: str) -> str:
        """Type the keys and return what the terminal shows up to the end marker."""
        os.write(self.file, keys.encode())
        shown, deadline = b"", time.monotonic() + 60
        while self.END.encode() not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([self.file], [], [], 0.2)[0]:
                shown += os.read(self.file, 65536)
        return shown.decode()

    def close(self) -> None:
        os.write(self.file, b"\x15\x04")  # nothing on the line, and the end
        os.close(self.file)
        os.waitpid(self.pid, 0)


class Readline:
    """bash or zsh: the completed line is run, and the command shows its words."""

    def __init__(self, argv: list[str], begin: str, folder: Path, environment: dict[str, str]) -> None:
        self.terminal = Terminal(argv, folder, environment)
        shown = "{ printf '<%s>' \"$@\"; printf 'EN''D\\n'; }"
        commands = "; ".join(f"{name}() {shown}" for name in ("pai", "inv", "invoke", "copy"))
        (folder / "begin").write_text(f"{begin}\n{commands}\nPATH=/nowhere\n")
        self.terminal.type(". ./begin; echo EN''D\n")

    def complete(self, line: str) -> list[str]:
        shown = self.terminal.type(f"{line}\t\n")
        last = shown[: shown.rindex(Terminal.END)].splitlines()[-1]
        return last[last.index("<") + 1 : last.rindex(">")].split("><")

    def close(self) -> None:
        self.terminal.close()


class Fish:
    """fish: it lists its candidates, and completes the line with the only one."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def complete(self, line: str) -> list[str]:
        sources = "source pai.fish; source inv.fish; source copy.fish; set -gx PATH /nowhere"
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{sources}; complete -C '{line}'"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        found = [row.partition("\t")[0] for row in done.stdout.splitlines()]
        assert len(found) == 1, found
        words = line.split(" ")
        return [*words[1:-1], found[0]]

    def complete_quoted(self, line: str) -> list[str]:
        """Return the words of the line with its only completion, as it is inserted, when fish runs it."""
        begin = "source pai.fish; set -gx PATH /nowhere; function pai; printf '<%s>' $argv; end"
        insert = r"string join '' -- (string replace -r '\S*$' '' -- $TYPED) (complete --escape -C $TYPED)"
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{begin}; eval ({insert})"],
            cwd=self.folder,
            env={**self.environment, "TYPED": line},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout[1:-1].split("><")

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project with its scripts for every shell, and a home with lists of names."""
    shell = make_shell(tmp_path_factory.mktemp("completion"))
    (shell.project / "tasks.py").write_text(TASKS)
    (shell.project / "our-job.yaml").write_text("")
    (shell.project / "job_templates").mkdir()
    for template in ("our-own", *HOSTILE, "escape\x1b[2J"):
        (shell.project / "job_templates" / f"{template}.yaml").write_text("")
    for name, lines in LISTS.items():
        path = shell.home / "cache" / "names" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines)
    for name in ("bash", "zsh", "fish"):
        for binary in ("pai", "inv"):
            ran = shell.run(binary, "config.completion", name)
            assert ran.code == 0, ran
            (shell.project / f"{binary}.{name}").write_text(ran.out)
        (shell.project / f"copy.{name}").write_text(script(name, ["copy"], COPY, Command()))
    return shell


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def typist(request: pytest.FixtureRequest, scripted: Any) -> Any:
    name = request.param
    require(name)
    environment = {**scripted.environment, "TERM": "dumb", "HOME": str(scripted.home), "PS1": "> "}
    sources = "\n".join(f". ./{binary}.{name}" for binary in ("pai", "inv", "copy"))
    made: Any
    if name == "bash":
        made = Readline(["bash", "--norc", "--noprofile", "-i"], sources, scripted.project, environment)
    elif name == "zsh":
        begin = f"autoload -U compinit; compinit -D -u\n{sources}"
        made = Readline(["zsh", "-f", "-i"], begin, scripted.project, environment)
    else:
        made = Fish(scripted.project, environment)
    yield made
    made.close()


@pytest.mark.parametrize("line, words", TYPED.items(), ids=TYPED)
def test_tab_completes_the_line(typist, line, words):
    assert typist.complete(line) == words


@pytest.mark.parametrize("name", HOSTILE)
def test_tab_does_not_insert_what_the_shell_would_run(typist, scripted, name):
    complete = getattr(typist, "complete_quoted", typist.complete)
    for typed in BEGINNINGS.get(name, (name[:2],)):
        assert complete(f"pai job.new {typed}") == ["job.new", name]
    assert not (scripted.project / "pwned").exists()


BEGINNINGS = {"*": (r"\*",), "# hash": (r"\#",), "~root": (r"\~",)}


def bash(scripted: Any, *words: str) -> list[str]:
    """Everything that bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f". ./pai.bash; COMP_WORDS=(pai {quoted}); COMP_CWORD={len(words)}; "
        f"_pai_complete; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    path = shutil.which("bash") or "bash"
    environment = {"PATH": "/nowhere", "OPENPAI_HOME": str(scripted.home)}
    done = subprocess.run(
        [path, "-c", code], cwd=scripted.project, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_jobs_of_all_clusters_are_offered_without_a_cluster_alias(scripted):
    assert bash(scripted, "job.logs", "") == ["other-1", "train-1", "train-2", "bob~x"]
    assert bash(scripted, "job.logs", "-a", "local", "") == ["train-1", "train-2", "bob~x"]


def test_names_with_control_characters_are_not_offered(scripted):
    assert bash(scripted, "job.new", "esc") == []
    assert bash(scripted, "job.new", "our") == ["our-own"]


def test_new_names_are_not_completed_with_existing_names(scripted):
    assert bash(scripted, "job.sub", "-j", "") == []
    assert bash(scripted, "cluster.add", "") == []


def test_classic_names_are_offered_as_the_first_word_only(scripted):
    assert "list-jobs" in bash(scripted, "")
    assert bash(scripted, "job.list", "list-") == []


def test_words_after_a_double_dash_are_not_completed(scripted):
    assert bash(scripted, "job.sub", "--", "job.") == []


def test_without_cached_names_nothing_is_offered(scripted, tmp_path):
    fresh = type(scripted)(scripted.project, tmp_path / "new")
    assert bash(fresh, "job.logs", "") == []
    assert bash(fresh, "cluster.select", "") == []


def test_completion_script_can_be_made_for_other_programs(scripted):
    made = scripted.pai("config.completion", "bash", "--program", "p-a-i", "--program", "inv").out
    assert made.rstrip().endswith("complete -o default -F _p_a_i_complete p-a-i inv")


def test_error_for_an_unknown_shell_names_the_known_shells(scripted):
    for binary in ("pai", "inv"):
        ran = scripted.run(binary, "config.completion", "tcsh")
        assert (ran.code, ran.err) == (120, "error: no completion for 'tcsh' (known: bash, fish, zsh)\n")


@needs("zsh")
def test_zsh_finds_the_script_in_a_function_folder(scripted, tmp_path):
    shutil.copy(scripted.project / "pai.zsh", tmp_path / "_pai")
    environment = {**scripted.environment, "TERM": "dumb", "HOME": str(scripted.home), "PS1": "> "}
    begin = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -D -u"
    typist = Readline(["zsh", "-f", "-i"], begin, scripted.project, environment)
    try:
        assert typist.complete("pai cluster.select loc") == ["cluster.select", "local"]
        assert typist.complete("pai cluster.select loc") == ["cluster.select", "local"]
    finally:
        typist.close()


@pytest.mark.parametrize("page", ["completion.md", "editors.md"])
def test_commands_of_the_documentation_page_run(shell, page):
    (shell.project / "tasks.py").unlink()
    for line in commands((ROOT / "docs" / page).read_text()):
        ran = shell.run("sh", "-c", line, HOME=str(shell.home))
        assert (ran.code, ran.err) == (0, ""), (line, ran)
