"""Secrets are in the script of a task while it runs, and in no other visible place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from openpai_tasks.server.scheduling.task_end import mask_secrets
from tests.leaks import files_with
from tests.server.workshop import Workshop, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
SECRET = "s3cret $value, with spaces"
DIGEST = 'printf %s "$word" | cksum'


def holders(folder: Path) -> list[Path]:
    """Return the files below the folder, except the database, that contain the secret."""
    return [path for path in files_with(SECRET, folder) if not path.name.startswith("cluster.db")]


def command() -> str:
    return "word=$(cat <<'END'\n<% $secrets.word %>\nEND\n); " + DIGEST


def test_secret_reaches_the_task_unchanged_and_leaves_no_trace(workshop: Make) -> None:
    here = workshop()
    gate = here.folder / "gate"
    waits = f"; until test -e {gate}; do sleep 0.01; done"
    key = here.submit("secret", command() + waits, secrets={"word": SECRET})
    here.wait(key, "RUNNING")
    scripts = until(lambda: holders(here.folder))
    assert [path.name for path in scripts] == ["command"]
    assert {path.stat().st_mode & 0o777 for path in scripts} == {0o600}
    gate.touch()
    job = here.wait(key, "SUCCEEDED")
    until(lambda: not holders(here.folder))
    assert len(here.output(key).split()) == 2
    assert SECRET not in job.config and "******" in job.config
    shown = [here.state.attempts(key), here.tasks(key), here.state.events(key), here.state.document(key)]
    assert SECRET not in repr([job, *shown])
    modes = {path.stat().st_mode & 0o777 for path in here.folder.glob("cluster.db*")}
    assert modes == {0o600}


def test_a_job_with_secrets_can_be_started_again(workshop: Make) -> None:
    here = workshop()
    key = here.submit("again", command(), secrets={"word": SECRET})
    here.wait(key, "SUCCEEDED")
    first = here.output(key)
    here.close()
    here.open()
    here.state.set_execution(key, "START")
    until(lambda: here.job(key).attempt == 1)
    assert here.wait(key).state == "SUCCEEDED"
    assert here.output(key) == first
    assert holders(here.folder) == []


def test_secret_in_the_log_of_a_failed_task_is_masked_in_its_record(workshop: Make) -> None:
    here = workshop()
    failing = "echo 'ImportError: <% $secrets.word %>'; exit 1"
    job = here.run("leak", failing, secrets={"word": "open-sesame"})
    attempt = here.state.attempts(job.key)[0]
    assert (attempt.matched, attempt.log_end) == ("ImportError: ******", "ImportError: ******")


def test_a_stopped_task_that_never_ran_leaves_no_secret(workshop: Make) -> None:
    here = workshop(cpus=1)
    first = here.submit("first", "sleep 600")
    second = here.submit("second", command(), secrets={"word": SECRET})
    here.state.set_execution(second, "STOP")
    here.wait(second, "STOPPED")
    assert holders(here.folder) == []
    here.state.set_execution(first, "STOP")


def test_secrets_of_every_type_are_masked_in_texts() -> None:
    secrets = json.loads('{"a": "word", "b": {"c": ["longer word", 12345]}, "d": "x", "e": null}')
    assert mask_secrets("a longer word, a word, 12345, x", secrets) == "a ******, a ******, ******, x"
