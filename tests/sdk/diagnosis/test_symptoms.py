"""What events of the platform mean."""

import time

import pytest

from openpai_tasks.sdk.diagnosis.symptoms import in_events


@pytest.mark.parametrize(
    "note, word",
    [
        ("FailedScheduling: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "not free"),
        ("Failed: Back-off pulling image: ImagePullBackOff", "pulled"),
        ("FailedMount: MountVolume.SetUp failed for volume", "mounted"),
        ("Queued: waits behind job ann~big in virtual cluster default", "queued behind"),
        ("FailedScheduling: Slurm does not answer: Unable to contact slurm controller", "does not answer"),
        ("FailedScheduling: needs 8 GPUs, more than this machine (2 GPUs) has: it cannot start", "never"),
    ],
)
def test_platform_event_is_explained(note, word):
    meaning, advice = in_events(["Normal: nothing", note])
    assert word in meaning and advice


def test_no_line_keeps_a_command_busy():
    """`job.why` and the portal read events of any length."""
    for text in ("a", "more than ", "CUDA ", "/a", "a: ", " "):
        begun = time.thread_time()
        in_events([text * (400_000 // len(text))])
        assert time.thread_time() - begun < 1  # of CPU time; the first took 40 minutes
