"""The load of a cluster over time, from its list of jobs."""

import pytest

from openpai_tasks import sdk
from openpai_tasks.protocol.models import job_from_summary

HOUR = 3_600_000


def job(begun, ended=None, gpus=2, state=None):
    return job_from_summary(
        {
            "name": "x",
            "username": "alice",
            "state": state or ("RUNNING" if ended is None else "SUCCEEDED"),
            "launchedTime": begun,
            "completedTime": ended,
            "totalGpuNumber": gpus,
        }
    )


def over_time(*jobs):
    return sdk.clusters.jobs_over_time(jobs, 10 * HOUR, 14 * HOUR, 4, lambda one: float(one.gpus))


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], [0, 0, 0, 0]),
        ([job(10 * HOUR, 14 * HOUR)], [2, 2, 2, 2]),
        ([job(5 * HOUR, 12 * HOUR)], [2, 2, 0, 0]),
        ([job(13 * HOUR)], [0, 0, 0, 2]),
        ([job(11.5 * HOUR, 12.5 * HOUR)], [0, 1, 1, 0]),
        ([job(11.5 * HOUR, 12.5 * HOUR), job(10 * HOUR, gpus=4)], [4, 5, 5, 4]),
        ([job(1 * HOUR, 2 * HOUR), job(20 * HOUR), job(15 * HOUR, 16 * HOUR)], [0, 0, 0, 0]),
        ([job(None), job(11 * HOUR, None, state="FAILED"), job(13 * HOUR, 11 * HOUR)], [0, 0, 0, 0]),
    ],
)
def test_running_jobs_count_for_as_long_as_they_ran(jobs, expected):
    assert over_time(*jobs) == pytest.approx(expected)
