"""The cause of a failure, found in the output of a program."""

import subprocess
import sys
import time

import pytest

from openpai_tasks.sdk.diagnosis.causes import find_cause

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
    assert find_cause(text.splitlines()) == cause


PROGRAMS = {
    "import json\n\n\ndef run():\n    json.loads('{')\n\n\nrun()\n": "line 5)",
    "def broken(:\n    pass\n": "line 1)",
    "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])\n": "line 1)",
    "import asyncio\n\n\nasync def go():\n    raise asyncio.TimeoutError\n\n\nasyncio.run(go())\n": "line 5)",
}


@pytest.mark.parametrize("program, place", PROGRAMS.items())
def test_tracebacks_of_this_python_are_read(tmp_path, program, place):
    if "Group" in program and sys.version_info < (3, 11):
        pytest.skip("exception groups are new in Python 3.11")
    file = tmp_path / "boom.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    cause = find_cause(done.stderr.splitlines())
    assert "Error" in cause or "several" in cause, done.stderr
    assert cause.endswith(f"(boom.py, {place}") or "Group" in program, cause


def test_long_and_hostile_output_takes_little_time():
    started = time.monotonic()
    for lines in (
        ["Traceback (most recent call last):"] * 1000,
        ['  File "a", line 1'] * 1000,
        ["x" * 1_000_000] * 10,
        ["a: " * 300_000] * 10,
        ["Traceback (most recent call last):", '  File "a", line 1', "name"] * 333,
    ):
        find_cause(lines)
    assert time.monotonic() - started < 5
