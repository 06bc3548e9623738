"""Files of a stranger's project that would take forever to read: refused in one line, at once."""

from __future__ import annotations

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs import records as job_records
from openpai_tasks.sdk.sweeps import records as sweep_records

ALIASES = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
)
TIMEOUT = 60  # seconds; some of these took minutes


@pytest.mark.parametrize(
    ("file", "text", "command", "message"),
    [
        (
            "invoke.yaml",
            f"openpai: &all\n  {ALIASES.replace(chr(10), chr(10) + '  ')}",
            "config.show",
            "aliases add",
        ),
        ("invoke.yaml", "[" * 100_000, "config.show", "nested deeper"),
        ("invoke.json", '{"a":' * 100_000, "config.show", "nested too deeply"),
        (".openpai/defaults.yaml", ALIASES, "config.show", "aliases add"),
        (".openpai/defaults.yaml", "cpu: 2026-99-99", "config.show", "month must be"),
        ("job_templates/x.yaml", ALIASES, "job.new x", "aliases add"),
        ("job_templates/x.yaml", "{" * 5000, "job.new x", "nested deeper"),
        ("rows.yaml", ALIASES, "job.sub true --sweep-file rows.yaml --preview", "rows.yaml"),
        ("rows.json", "[" * 100_000, "job.sub true --sweep-file rows.json --preview", "rows.json"),
        ("a.ipynb", '{"a":' * 100_000, "notebook.run a.ipynb --preview", "a.ipynb"),
    ],
    ids=lambda value: value[:20],
)
def test_file_that_would_take_forever_is_refused(shell, file, text, command, message):
    (shell.project / "tasks.py").unlink()
    (shell.project / file).parent.mkdir(exist_ok=True)
    (shell.project / file).write_text(text)
    ran = shell.pai(*command.split(), timeout=TIMEOUT)
    assert ran.code and message in ran.err, ran
    assert ran.err.count("\n") <= 3 and "Traceback" not in ran.err, ran.err


@pytest.mark.parametrize("text", ['{"a":' * 100_000, "[]", "[" * 200 + "]" * 200, "1"])
def test_hostile_records_are_refused(tmp_path, text):
    for name in ("jobs/x/record.json", "sweeps/local/x.jsonl"):
        (tmp_path / ".openpai" / name).parent.mkdir(parents=True)
        (tmp_path / ".openpai" / name).write_text(text + "\n")
    with pytest.raises(ConfigError, match="not a valid record of a submission; remove it"):
        job_records.find_record(tmp_path, "x")
    if "a" in text or len(text) > 100:  # as the last line of an interrupted run
        assert not sweep_records.load(tmp_path, "local", "x").points
    else:
        with pytest.raises(ConfigError, match="not a valid record of a sweep; remove it"):
            sweep_records.load(tmp_path, "local", "x")


def test_clusters_file_that_would_take_forever_is_refused(shell):
    shell.ok("config.set", "clusters-in-local=true", "--is-global")
    (shell.project / ".openpai").mkdir(exist_ok=True)
    (shell.project / ".openpai" / "clusters.yaml").write_text(f"- {ALIASES.replace(chr(10), chr(10) + '  ')}")
    ran = shell.pai("cluster.list", timeout=TIMEOUT)
    assert ran.code and "clusters.yaml" in ran.err and ran.err.count("\n") <= 3, ran
