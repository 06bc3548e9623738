"""Rules of ignore files mean what they mean to git."""

import subprocess

from openpai_tasks.storage.job_files.ignore_rules import IgnoreRules

TEXT_OF_RULES = r"""
a  /a  a/  /a/  a/b  /a/b  a/b/  a//b  ./a  *  *.py  /*.py  a*  *a  a*b  *a*b*  ?  a?  *.*  *.  .*  a.b  é  *é
A  **  **/  /**  a/**  **/b  **/b/  a/**/b  /a/**/b  **/a/**  a/**/**/b  a/*  a/*/b  */b  /  //
[ab]  [!a]  [^a]  [a-c].py  []a]  [!]a]  [a  [[:digit:]]  [[:alpha:]]*  [[:nope:]]  [A-Z]  [a-]  [-a]  [.]
\*  \#x  \!x  #x  !x  a\  \a  \?  a-b  a.+  (a|b)  ^a$
"""
RULES = [*TEXT_OF_RULES.split(), "x ", "x\\ ", " x", "", " "]
TEXT_OF_PATHS = r"""
a  b  a/a  a/b  b/a  a/a/b  a/x/y/b  x/a/b  x/b  x/y/a/z  a/b/c  z  a.py  x/a.py  c.py  ab  axb  xaxbx  aéb
A  5  #x  !x  x  *  ?  ]  -  a.b  a.  .a  a-b  ^a$  a.+  (a|b)  a\  [a
"""
PATHS = [*TEXT_OF_PATHS.split(), "x ", " x"]


def git_verdicts(folder):
    """Return whether git ignores each path under each rule; each rule has a folder of its own."""
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    for number, rule in enumerate(RULES):
        (folder / str(number)).mkdir()
        (folder / str(number) / ".gitignore").write_text(rule + "\n")
    names = [f"{number}/{path}" for number in range(len(RULES)) for path in PATHS]
    ran = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(names).encode(),
        capture_output=True,
        cwd=folder,
    )
    ignored = set(ran.stdout.decode().split("\0"))
    return [[f"{number}/{path}" in ignored for path in PATHS] for number in range(len(RULES))]


def is_ignored(rules, path):
    """Return whether a file is ignored, or a folder above it."""
    names = path.split("/")
    folders = ("/".join(names[:count]) for count in range(1, len(names)))
    return any(rules.verdict(folder, True) for folder in folders) or bool(rules.verdict(path, False))


def test_each_rule_ignores_what_git_ignores(tmp_path):
    expected = git_verdicts(tmp_path)
    wrong = [
        (rule, path, verdict)
        for rule, verdicts in zip(RULES, expected, strict=True)
        for path, verdict in zip(PATHS, verdicts, strict=True)
        if is_ignored(IgnoreRules([rule]), path) != verdict
    ]
    assert not wrong
