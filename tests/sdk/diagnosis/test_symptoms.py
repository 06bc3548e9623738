"""What lines of output and events of the platform mean."""

import time

import pytest

from openpai_tasks.sdk.diagnosis.symptoms import in_events, in_output


@pytest.mark.parametrize(
    "line, word",
    [
        ("ModuleNotFoundError: No module named 'cv2'", "cv2"),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "GPU ran out of memory",
        ),
        ("RuntimeError: CUDA error: out of memory", "GPU ran out of memory"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "could not use a GPU"),
        ("python3: can't open file '/x/train.py': [Errno 2] No such file or directory", "a file"),
        ("bash: line 3: nvcc: command not found", "nvcc"),
        ("sh: 1: nvcc: not found", "nvcc"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("OSError: [Errno 98] Address already in use", "port"),
        ("bash: ./run.sh: Permission denied", "permission was denied"),
        ("script: line 2: HOMES: unbound variable", "set -u"),
        ("sh: 1: HOMES: parameter not set", "set -u"),
        ("    SyntaxError: invalid syntax", "invalid syntax"),
        ("error: the sources are damaged: /mnt/home/sources/5.tar.gz has sha256 6", "sources are damaged"),
        ("error: cannot fetch the sources from http://pai/webhdfs/api/v1/x?op=OPEN", "cannot fetch"),
        ("error: cannot keep the output: sending it to http://pai/x failed", "output could not be sent"),
    ],
)
def test_known_error_line_is_explained(line, word):
    meaning, advice = in_output(["epoch 1", line, "done with errors"])
    assert word in meaning and advice


def test_python_that_is_missing_is_not_like_another_missing_program():
    assert "write `python3`" in in_output(["x/command: line 3: python: command not found"])[1]
    assert "write" not in in_output(["sh: 1: my-python: not found"])[1]


def test_ordinary_output_has_no_explanation():
    assert in_output(["epoch 1 loss 0.3", "saved to model.pt", "0 errors found"]) is None
    assert in_output([]) is None and in_events([]) is None


def test_last_of_several_error_lines_is_explained():
    meaning, _ = in_output(["No module named 'a'", "No module named 'b'"])
    assert meaning.endswith("module b")


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
    """`job.why` and the portal read the last lines of a job, of any length."""
    for text in ("a", "more than ", "CUDA ", "/a", "a: ", " "):
        begun = time.thread_time()
        assert in_output([text * (400_000 // len(text))]) is None
        in_events([text * (400_000 // len(text))])
        assert time.thread_time() - begun < 1  # of CPU time; the first took 40 minutes
