"""Commands that hints suggest for a job."""

from types import SimpleNamespace

import pytest

from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs import lookup


@pytest.mark.parametrize(("user", "name"), [("ann", "train"), ("bob", "'bob~train'")])
def test_suggested_commands_name_the_user_of_another_users_job(user, name):
    job = JobInfo("train", user, "FAILED", "default", 1, 1, 1, 1, 1, 0, 0, 0, 1, ())
    suggested = lookup.command_for(SimpleNamespace(user="ann"), "job.logs", job, "--follow")
    assert suggested == f"pai job.logs {name} --follow"
