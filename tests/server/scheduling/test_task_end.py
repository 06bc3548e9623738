from __future__ import annotations

import time

import pytest

from openpai_tasks.server.scheduling.task_end import find_cause


@pytest.mark.parametrize(
    ("code", "log", "found"),
    [
        (127, "bash: line 1: trian: command not found", (220, "command not found")),
        (127, "sh: 1: trian: not found", (220, ": not found")),
        (1, "train: command not found", (255, "")),
        (127, "", (255, "")),
        (
            1,
            "tensorflow.python: ResourceExhaustedError: OOM when",
            (221, "tensorflow.python: ResourceExhaustedError: OOM when"),
        ),
        (
            1,
            "CUDA driver version is insufficient for CUDA runtime version",
            (224, "CUDA driver version is insufficient for CUDA runtime version"),
        ),
        (2, "x: Unknown option -z", (228, "Unknown option")),
        (1, "  SyntaxError: invalid syntax", (231, "SyntaxError: invalid syntax")),
        (1, "NameError: name 'x' is not defined", (231, "NameError: name 'x' is not defined")),
        (1, "ImportError: cannot import name 'y'", (232, "ImportError: cannot import name 'y'")),
        (1, "ModuleNotFoundError: No module named 'z'", (255, "")),
        (1, "IndexError: list index out of range", (233, "IndexError: list index out of range")),
        (1, "Segmentation fault", (234, "Segmentation fault")),
        (1, "FileNotFoundError: [Errno 2] No such file or directory", (255, "")),
        (139, "Segmentation fault (core dumped)", (139, "")),
        (0, "ImportError: but it went on", (0, "")),
    ],
)
def test_pattern_in_the_log_determines_the_exit_code(code: int, log: str, found: tuple[int, str]) -> None:
    assert find_cause(code, f"before\n{log}\nafter\n".encode()) == found


def test_first_matching_pattern_of_the_table_wins() -> None:
    assert find_cause(1, b"Segmentation fault\nImportError: x\n")[0] == 232


def test_invalid_utf_8_in_the_log_is_tolerated() -> None:
    assert find_cause(1, b"\xff\xfe\xc4\xb0 ImportError: \xff") == (232, "ImportError: \ufffd")


@pytest.mark.parametrize(
    "text",
    [b"tensorflow resourceexhaustederror ", b"indexerror:", b"nameerror: name ", b"utils.lua:", b"a", b"\n"],
)
def test_no_log_keeps_the_server_busy(text: bytes) -> None:
    log = (text * (256 << 10))[: 256 << 10]
    begun = time.thread_time()
    find_cause(1, log)
    assert time.thread_time() - begun < 20  # of CPU time; a pattern such as `a.*b.*c` takes hours


def test_match_is_the_whole_text_between_the_words() -> None:
    log = b"tensorflow: x tensorflow ResourceExhaustedError y OOM z\n"
    log += b"NameError: name a is not defined is not defined!"
    assert find_cause(1, log)[1] == "tensorflow: x tensorflow ResourceExhaustedError y OOM z"
    assert find_cause(1, log.partition(b"\n")[2])[1] == "NameError: name a is not defined is not defined"
    assert find_cause(1, b"tensorflow OOM\nResourceExhaustedError OOM") == (255, "")
