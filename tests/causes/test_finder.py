"""The cause of a failure, found in the output of a program."""

import subprocess
import sys
import time

import pytest

from openpai_tasks.causes import CAUSES, find_cause
from openpai_tasks.causes.table import MISSING_FILE, distribution

FOLDER = "/x/local/jobs/me~boom/0/main-0-0/work"
BOOM = f"""\
Traceback (most recent call last):
  File "{FOLDER}/boom.py", line 9, in <module>
    main()
  File "{FOLDER}/src/model.py", line 6, in main
    fit(1 / 0)
  File "/usr/lib/python3.11/site-packages/torch/nn.py", line 70, in fit
    return a / b
           ~~^~~
ZeroDivisionError: division by zero
"""
CAUSE = "ZeroDivisionError: division by zero (src/model.py, line 6)"
CHAINED = f"""\
Traceback (most recent call last):
  File "{FOLDER}/load.py", line 3, in <module>
    open("x")
FileNotFoundError: [Errno 2] No such file or directory: 'x'

During handling of the above exception, another exception occurred:

{BOOM}"""
NOISY = BOOM.replace(
    "           ~~^~~\n", "INFO: a worker goes on\nepoch 3\n           ~~^~~\n100%|####| 3/3\n"
)


def headline(lines, exit_code=1):
    found = find_cause(lines, exit_code)
    return found.headline if found else ""


@pytest.mark.parametrize(
    "text, cause",
    [
        (BOOM, CAUSE),
        (CHAINED, CAUSE),
        (NOISY, CAUSE),
        (f"epoch 1\n{BOOM}cleaning up\n", CAUSE),
        ("".join(f"[rank0]: {line}\n[rank1]: hi\n" for line in BOOM.splitlines()), CAUSE),
        (
            BOOM.replace("ZeroDivisionError: division by zero", "app.Stop: enough"),
            "app.Stop: enough (src/model.py, line 6)",
        ),
        (BOOM.replace(": division by zero", ""), "ZeroDivisionError (src/model.py, line 6)"),
        (f"{BOOM}bash: line 3: nvcc: command not found\n", "nvcc: command not found"),
        (f"bash: line 3: nvcc: command not found\n{BOOM}", CAUSE),
        ("sh: 1: nvcc: not found\n", "nvcc: not found"),
        ("bash: ./run.sh: No such file or directory\n", "./run.sh: No such file or directory"),
        (
            "python3: can't open file '/x/a.py': [Errno 2] No such file\n",
            "can't open file '/x/a.py': [Errno 2] No such file",
        ),
        ("exit code 124: the time limit of 60 s was reached\n", "the time limit of 60 s was reached"),
        ('Traceback (most recent call last):\n  File "a.py", line 1\n', ""),
        ("epoch 1: loss 0.1\nall is well\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_in_the_output_is_the_cause(text, cause):
    assert headline(text.splitlines()) == cause


PROGRAMS = {
    "import json\n\n\ndef run():\n    json.loads('{')\n\n\nrun()\n": "line 5)",
    "def broken(:\n    pass\n": "line 1)",
    "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])\n": "line 1)",
    "import asyncio\n\n\nasync def go():\n    raise asyncio.TimeoutError\n\n\nasyncio.run(go())\n": "line 5)",
    "from multiprocessing import Pool\n\n\ndef work(x):\n    return 1 / x\n\n\nif __name__ == '__main__':\n"
    "    with Pool(1) as pool:\n        pool.map(work, [0])\n": "line 5)",
}


@pytest.mark.parametrize("program, place", PROGRAMS.items())
def test_tracebacks_of_this_python_are_read(tmp_path, program, place):
    if "Group" in program and sys.version_info < (3, 11):
        pytest.skip("exception groups are new in Python 3.11")
    file = tmp_path / "boom.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    cause = headline(done.stderr.splitlines())
    assert "Error" in cause or "several" in cause, done.stderr
    assert cause.endswith(f"(boom.py, {place}") or "Group" in program, cause


def test_long_and_hostile_output_takes_little_time():
    started = time.process_time()
    for lines in (
        ["Traceback (most recent call last):"] * 1000,
        ['  File "a", line 1'] * 1000,
        ["x" * 1_000_000] * 10,
        ["a: " * 300_000] * 10,
        ["Traceback (most recent call last):", '  File "a", line 1', "name"] * 333,
    ):
        find_cause(lines)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.title)
def test_each_row_recognises_its_examples(row):
    for line in row.examples:
        found = find_cause(["epoch 1", line, *(["done"] if row is not CAUSES[-1] else [])], 1)
        assert found.row is row and found.advice and "{" not in found.advice.replace("${", "")
    for code in row.codes:
        assert find_cause([], code).row is row


@pytest.mark.parametrize(
    "last",
    [
        "no GPU found",
        "data/train.csv has no column 'label'",
        "[rank1]: CUDA_VISIBLE_DEVICES is not set",
        "usage: train.sh DATA",
        "batch size 7 must be a multiple of 8",
    ],
)
def test_a_program_may_end_with_a_message_alone(last):
    """As with sys.exit("..."), whose message is the last line."""
    assert headline(["epoch 1", last, ""]) == last
    assert headline([last, "epoch 1 loss 0.3"]) == headline([last], None) == headline([last], 0) == ""
    assert headline([*BOOM.splitlines(), last]) == CAUSE
    assert headline([last], 137) == "killed by SIGKILL (exit code 137)"


@pytest.mark.parametrize(
    "last",
    [
        "epoch 4 loss 0.4",
        " 50%|█████     | 3/6 [00:01<00:01, 2.10it/s]",
        "INFO: no improvement, 3 epochs left",
        "WARNING train: the cache is empty",
        '  warnings.warn("x is not found in y")',
        '{"error_rate": 0.2, "missing": 3}',
        "0 errors, 3 files are not changed",
        "finished without failures, as expected",
        "failed",
    ],
)
def test_other_last_lines_are_no_cause(last):
    assert headline(["epoch 1", last]) == ""


def test_a_program_that_python_cannot_start_is_not_a_file_to_send(tmp_path):
    for name, word in (("no-such-program", "spelling of no-such-program"), ("./train", "--sources")):
        code = f"import subprocess\nsubprocess.run([{name!r}])\n"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
        assert word in find_cause(done.stderr.splitlines(), 1).advice, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        'Can\'t open perl script "x.pl": No such file or directory',
        "sh: 0: cannot open x.pl: No such file",
        "head: cannot open 'x.pl' for reading: No such file or directory",
        "head: cannot open \u2018x.pl\u2019 for reading: No such file or directory",
        "cp: cannot stat \u2018x.pl\u2019: No such file or directory",
        "awk: cannot open x.pl (No such file or directory)",
        "tar: x.pl: Cannot open: No such file or directory",
        "unzip:  cannot find or open x.pl, x.pl.zip or x.pl.ZIP.",
        "cc1: fatal error: x.pl: No such file or directory",
    ],
)
def test_the_missing_file_is_found_in_messages_of_programs(line):
    found = find_cause([line], 2)
    assert found.row is MISSING_FILE and found.groups[0] == "x.pl"


def test_repositories_and_libraries_are_not_files_to_send():
    for line in (
        "fatal: repository '/x' does not exist",
        "ld: cannot find -lblas: No such file or directory",
    ):
        assert "--sources" not in find_cause([line], 1).advice
    line = "python3: Error while finding module specification for 'a.b' (ModuleNotFoundError: {})"
    assert headline([line.format("No module named 'a'")]) == "No module named 'a'"


def test_ordinary_output_has_no_cause():
    lines = [
        "epoch 1 loss 0.3",
        "saved to model.pt",
        "0 errors found",
        "WARNING: Connection refused, retrying",
    ]
    assert find_cause(lines, 3) is None and find_cause([], 1) is None


def test_a_traceback_is_older_than_a_crash():
    assert headline(BOOM.splitlines(), 137) == "killed by SIGKILL (exit code 137)"


def test_an_exception_that_reports_another_one_is_not_the_cause():
    parent = BOOM.replace("ZeroDivisionError: division by zero", "subprocess.CalledProcessError: Command 'x'")
    assert headline(f"{BOOM}{parent}".splitlines()) == CAUSE
    assert headline(parent.splitlines()).startswith("subprocess.CalledProcessError")


LONG = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of"
    " 139.80 GiB of which 10.29 GiB is free. Including non-PyTorch memory, this process has 129.00 GiB memory"
    " in use. Of the allocated memory 128.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


def test_a_long_message_leaves_room_for_its_place():
    cause = headline(BOOM.replace("ZeroDivisionError: division by zero", LONG).splitlines())
    assert cause.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert cause.endswith("… (src/model.py, line 6)") and len(cause) <= 300


def test_the_error_of_a_worker_process_is_the_cause():
    """As PyTorch's DataLoader and pools of processes report it, behind or before the one that waited."""
    waited = BOOM.replace("src/model.py", "train.py")
    loader = waited.replace("division", "Caught ZeroDivisionError in DataLoader worker process 0.\nOriginal")
    loader = loader.replace("Original by zero\n", f"Original {BOOM}")
    assert headline(loader.splitlines()) == CAUSE
    again = "The above exception was the direct cause of the following exception:"
    pool = f'multiprocessing.pool.RemoteTraceback: \n"""\n{BOOM}"""\n\n{again}\n\n{waited}'
    assert headline(pool.splitlines()) == CAUSE
    own = waited.replace("ZeroDivisionError: division by zero", "RuntimeError: no model")
    chained = headline(f"{pool}\n{again}\n\n{own}".splitlines())
    assert chained == "RuntimeError: no model (train.py, line 6)"


TORCHRUN = """\
{}
W1118 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 799 closing signal SIGTERM
E1118 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: {}) local_rank: 1 (pid: 800)
Traceback (most recent call last):
  File "/opt/torch/.venv/bin/torchrun", line 10, in <module>
    sys.exit(main())
  File "/opt/torch/.venv/lib/python3.12/site-packages/torch/distributed/launcher/api.py", line 317, in launch
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
=====================================================
train.py FAILED
Failures:
[1]:
  exitcode  : -15 (pid: 799)
  traceback : Signal 15 (SIGTERM) received by PID 799
Root Cause (first observed failure):
[0]:
  exitcode  : {} (pid: 800)
  traceback : {} received by PID 800
====================================================="""


def test_what_happened_to_the_workers_of_a_launcher_is_the_cause():
    def caused(output, code, signal):
        return headline(TORCHRUN.format(output, code, code, signal).splitlines())

    assert caused("epoch 1", -9, "Signal 9 (SIGKILL)") == "a worker process was killed by SIGKILL"
    watchdog = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"
    assert caused(watchdog, -6, "Signal 6 (SIGABRT)") == watchdog
    unknown = caused("epoch 1", 1, "To enable traceback see: https://pytorch.org")
    assert unknown == "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


def test_marked_frames_of_loguru_count():
    marked = BOOM.replace(f'  File "{FOLDER}/src', f'\n> File "{FOLDER}/src')
    assert marked != BOOM and headline(marked.splitlines()) == CAUSE


def test_an_exception_may_have_no_traceback():
    """As with rich's own tracebacks, and in Node.js."""
    lines = ["│ ❱ 4   1 / 0   │", "╰───────╯", "ZeroDivisionError: division by zero"]
    assert headline(lines) == "ZeroDivisionError: division by zero"
    assert headline(lines, 137) == "killed by SIGKILL (exit code 137)"


def test_a_program_that_env_does_not_find_is_not_a_file_to_send():
    found = find_cause(["/usr/bin/env: \u2018nvcc\u2019: No such file or directory"], 127)
    assert "spelling of nvcc" in found.advice and "--sources" not in found.advice


def test_the_distribution_of_a_module_may_have_another_name():
    assert [distribution(name) for name in ("cv2", "PIL", "yaml", "sklearn.svm", "torch.nn")] == [
        *("opencv-python", "pillow", "PyYAML", "scikit-learn", "torch")
    ]
