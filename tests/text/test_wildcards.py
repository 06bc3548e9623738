"""Wildcards of shells, of PaddleCloud's server and of ignore files: equally quick with many stars."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.server.paddlecloud.pfs.tree import compile_name
from openpai_tasks.storage.job_files.ignore_rules import IgnoreRules
from openpai_tasks.storage.job_files.sources import collect
from openpai_tasks.text import wildcards

PACKAGE = Path(__file__).parents[2] / "openpai_tasks"
STARS = "*a" * 100 + "*b"


def shell(name: str, pattern: str) -> bool:
    return wildcards.matches(name, pattern)


def pfs(name: str, pattern: str) -> bool:
    return compile_name(pattern).fullmatch(name) is not None


def ignored(name: str, pattern: str) -> bool:
    return IgnoreRules([pattern]).verdict(name, False) is not None


@pytest.mark.parametrize("matches", [shell, pfs, ignored])
def test_many_stars_are_no_slower_than_few(matches):
    begun = time.thread_time()
    assert not matches("a" * 250, STARS) and matches("a" * 250 + "b", STARS)
    assert not matches("a" * 250, "*?a" * 80 + "b") and not matches("a" * 250, "*[ab]a" * 80 + "b")
    assert time.thread_time() - begun < 0.5  # plain translations take years


@pytest.mark.parametrize("matches", [shell, pfs, ignored])
def test_a_star_matches_any_text(matches):
    for name, pattern in (
        ("abcabc", "*bc"),
        ("abc", "a*b*c*"),
        ("axbxc", "a*x*c"),
        ("a", "a*"),
        ("a", "**a"),
    ):
        assert matches(name, pattern)
    for name, pattern in (("ab", "*ab*ab"), ("aba", "ab*ba"), ("abc", "*b"), ("", "a*"), ("ba", "a*")):
        assert not matches(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a", "x/y/a", True),
        ("/a", "x/a", False),
        ("x/*", "x/a", True),
        ("x/*", "x/a/b", False),
        ("**/a/b", "a/b", True),
        ("**/a/b", "x/y/a/b", True),
        ("x/**/b", "x/b", True),
        ("x/**/b", "x/y/z/b", True),
        ("x/**", "x/y/z", True),
        ("x/**", "x", False),
        ("a/", "a", None),
        ("!a", "a", False),
        (r"\!a", "!a", True),
        (r"\#a", "#a", True),
        ("#a", "#a", None),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("[!a-c]x", "dx", True),
        ("[^a-c]x", "ax", None),
        ("[[:digit:]]x", "1x", True),
        ("[]-]x", "]x", True),
        ("[", "[", None),
        ("a\\", "a\\", None),
        ("/", "a", None),
    ],
)
def test_rules_of_ignore_files(pattern, path, expected):
    assert (IgnoreRules([pattern]).verdict(path, False) or None) == (expected or None)
    if expected is False and pattern.startswith("!"):
        assert IgnoreRules([pattern]).verdict(path, False) is False


def test_deep_paths_and_many_double_stars_are_quick():
    begun = time.thread_time()
    assert IgnoreRules(["**/a/" * 100 + "b"]).verdict("a/" * 2000 + "a", False) is None
    assert IgnoreRules(["**/*a*a/" * 50 + "b"]).verdict("aaa/" * 1000 + "a", False) is None
    assert time.thread_time() - begun < 1


def test_named_folder_that_is_ignored_sends_only_what_a_rule_includes(tmp_path):
    for name in ("out/x", "out/keep", "out/sub/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("out/\n!out/keep\n")
    assert [source.name for source in collect(["out"], tmp_path).files] == ["out/keep"]


def test_huge_ignore_file_and_huge_line_are_refused_in_one_line(tmp_path):
    with (tmp_path / ".paiignore").open("w") as file:
        file.truncate(10 << 30)  # sparse
    with pytest.raises(PathError, match=r"\.paiignore: it is larger than 1 MB"):
        collect(["."], tmp_path)
    (tmp_path / ".paiignore").write_text("x\n" + "*a" * 5000)
    with pytest.raises(PathError, match=r"\.paiignore, line 2: longer than 4096 characters; shorten it"):
        collect(["."], tmp_path)


def test_only_one_module_translates_wildcards():
    """The others use it: a plain translation to a regular expression can take forever."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import|from) (fnmatch|pathspec)", path.read_text(), re.M)
    }
    assert found == {"text/wildcards.py"}
