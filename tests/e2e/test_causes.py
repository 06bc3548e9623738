"""Programs that really fail, and the headline that `job.why` and lists of jobs give each of them."""

import json
import shlex
import sys

import pytest

pytestmark = pytest.mark.timeout(600)  # the first test runs all programs
PY = "python3 -S"


def python(code):
    return f"{PY} -c {shlex.quote(code)}"


def prints(*lines, code=1, stream=2):
    """Print what a library prints that is not here, and end as it does."""
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))} >&{stream}; exit {code}"


def raises(line):
    """End with the traceback of an exception of a library that is not here."""
    name, _, text = line.partition(": ")
    package, _, kind = name.rpartition(".")
    code = f"E = type({kind!r}, (Exception,), {{'__module__': {package or 'builtins'!r}}})\nraise E({text!r})"
    return python(code)


CUDA_MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error"
WORKER = (
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's"
    " workers are out of shared memory."
)
NOISE = "import threading, sys; [print('epoch', i, file=sys.stderr) for i in range(9)]; "
CHAINED = "try:\n  {}['x']\nexcept KeyError as err:\n  raise RuntimeError('no data') from err"
LOGGED = "import traceback\ntry:\n  1/0\nexcept Exception:\n  traceback.print_exc()\nprint('goes on')\n"
TORCHRUN = (
    python("raise ValueError('bad batch')").replace("python3", "! python3")
    + "; "
    + raises("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED")
)
PREFIXED = 'for i in 0 1; do python3 -S boom.py 2>&1 | sed "s/^/[rank$i]: /"; done; exit 1'

BOXED = "from rich.traceback import install\n\ninstall()\n\ndef f():\n    return 1 / 0\n\n\nf()\n"

PROGRAMS = {
    # Python
    "zero": (
        "python3 -S boom.py",
        "ZeroDivisionError: division by zero (boom.py, line 2)",
        "correct boom.py",
    ),
    "ranks": (PREFIXED, "ZeroDivisionError: division by zero (boom.py, line 2)", ""),
    "chained": (python(CHAINED), "RuntimeError: no data", ""),
    "noise": (python(NOISE + "1/0") + "; echo bye; exit 1", "ZeroDivisionError: division by zero", ""),
    "logged": (python(f"{LOGGED}raise TypeError('late')"), "TypeError: late", ""),
    "launcher": (TORCHRUN, "ValueError: bad batch", ""),
    "syntax": (
        "python3 -S broken.py",
        "SyntaxError: '(' was never closed (broken.py, line 1)",
        "older Python",
    ),
    "key": (python("import os; os.environ['DATA_ROOT']"), "KeyError: 'DATA_ROOT'", "--env DATA_ROOT=VALUE"),
    "input": (f"{python('input()')} < /dev/null", "EOFError: EOF when reading a line", "no terminal"),
    "arguments": (
        python("import argparse; argparse.ArgumentParser('train.py').parse_args(['--lr', '1'])"),
        "train.py: error: unrecognized arguments: --lr 1",
        "correct the command",
    ),
    "unicode": (python("b'\\xc3'.decode('ascii')"), "UnicodeDecodeError: 'ascii' codec can't", "PYTHONUTF8"),
    # Modules
    "cv2": (
        python("import cv2"),
        "ModuleNotFoundError: No module named 'cv2'",
        "--pip-installs opencv-python`",
    ),
    "yaml": (python("import yaml"), "ModuleNotFoundError: No module named 'yaml'", "--pip-installs PyYAML`"),
    "sklearn": (
        python("import sklearn.svm"),
        "ModuleNotFoundError: No module named 'sklearn'",
        "scikit-learn`",
    ),
    "own": (python("import helper"), "ModuleNotFoundError: No module named 'helper'", "--sources helper.py`"),
    "module": (f"{PY} -m no_such_module", "No module named no_such_module", "--pip-installs no_such_module`"),
    "name": (python("from os import nothing"), "ImportError: cannot import name 'nothing'", "version of os"),
    "library": (
        python("import ctypes; ctypes.CDLL('libno.so.1')"),
        "OSError: libno.so.1: cannot open",
        "libno",
    ),
    # Files and the shell
    "file": (python("open('data/x.csv')"), "FileNotFoundError: [Errno 2] No such", "--sources data/x.csv`"),
    "script": ("python3 -S helper.py", "can't open file 'helper.py'", "--sources helper.py`"),
    "head": ("head -n 1 data/x.csv", "head: cannot open 'data/x.csv' for reading", "--sources data/x.csv`"),
    "perl": (
        prints('Can\'t open perl script "helper.pl": No such file or directory', code=2),
        'Can\'t open perl script "helper.pl"',
        "--sources helper.pl`",
    ),
    "dash": (
        prints("sh: 0: cannot open helper.pl: No such file", code=2),
        "cannot open helper.pl",
        "--sources helper.pl`",
    ),
    "program": (
        python("import subprocess; subprocess.run(['no-such-program'])"),
        "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-program'",
        "spelling of no-such-program",
    ),
    "package": (f"{PY} -m no_such_package.train", "No module named 'no_such_package'", "no_such_package`"),
    "cat": ("cat lost.txt", "cat: lost.txt: No such file or directory", "--sources"),
    "path": ("./lost.sh", "./lost.sh: No such file or directory", "--sources"),
    "command": ("no-such-command", "no-such-command: command not found", "spelling"),
    "denied": ("echo > run; ./run", "./run: Permission denied", "chmod +x"),
    "unset": ("echo $NO_SUCH_NAME", "NO_SUCH_NAME: unbound variable", "--env NO_SUCH_NAME=VALUE"),
    "quote": ("bash -c 'echo ('", "syntax error near unexpected token", "quotes"),
    "windows": ("printf 'true\\r\\n' > w.sh; bash w.sh", "$'true\\r': command not found", "sed -i"),
    "interpreter": (
        "printf '#!/no/perl\\n' > p; chmod +x p; ./p",
        "./p: ",
        "#!/usr",
    ),
    "format": (
        python("import os; os.chmod('boom.py', 0o755); os.execv('boom.py', ['x'])"),
        "OSError: [Errno 8] Exec format error",
        "--platform linux/amd64",
    ),
    "full": (
        python("open('/dev/full', 'w', 1).write('x\\n')"),
        "OSError: [Errno 28] No space left on",
        "storage",
    ),
    "files": (
        python(
            "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (9, 9));"
            " files = [open('/dev/null') for _ in range(9)]"
        ),
        "OSError: [Errno 24] Too many open files",
        "ulimit -n",
    ),
    # Limits and signals
    "memory": (python("bytearray(1 << 62)"), "MemoryError", "--memoryMB 16g"),
    "time": ("sleep 60", "the time limit of 1 s was reached", "--max-time 12h"),
    "timeout": ("timeout 0.1 sleep 60", "the command timed out (exit code 124)", "`timeout`"),
    "kill": ("kill -KILL $$", "killed by SIGKILL (exit code 137)", "--memoryMB 16g"),
    "child": (
        f"{python('import os; os.kill(os.getpid(), 9)')}",
        "killed by SIGKILL (exit code 137)",
        "memory",
    ),
    "worker": (
        prints("  traceback : Signal 9 (SIGKILL) received by PID 800"),
        "a worker process was killed by SIGKILL",
        "--memoryMB 16g",
    ),
    "crash": (
        python("import ctypes; ctypes.string_at(0)"),
        "killed by SIGSEGV (exit code 139): seg",
        "HANDLER=1",
    ),
    "bus": ("kill -BUS $$", "killed by SIGBUS (exit code 135): bus error", "--shm 8g"),
    "abort": (
        python("import os; os.abort()"),
        "killed by SIGABRT (exit code 134): aborted",
        "job.logs abort",
    ),
    "illegal": ("kill -ILL $$", "killed by SIGILL (exit code 132): illegal instruction", "AVX"),
    "number": ("kill -FPE $$", "killed by SIGFPE (exit code 136): floating point exception", "zero"),
    "term": ("kill -TERM $$", "killed by SIGTERM (exit code 143)", "launcher"),
    "break": (python("raise KeyboardInterrupt"), "KeyboardInterrupt", "job.resubmit break"),
    # The network
    "refused": (
        python("import socket; socket.create_connection(('127.0.0.1', 1))"),
        "ConnectionRefusedError: [Errno 111]",
        "port",
    ),
    "port": (
        python("import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_server(a.getsockname())"),
        "OSError: [Errno 98] Address already in use",
        "--ports web=1",
    ),
    "host": (
        python("import socket; socket.getaddrinfo('no host', 1)"),
        "socket.gaierror: [Errno -2] Name or",
        "",
    ),
    "http": (
        raises("urllib.error.HTTPError: HTTP Error 403: Forbidden"),
        "urllib.error.HTTPError: HTTP Error 403",
        "--secret HF_TOKEN",
    ),
    "gone": (
        raises("urllib.error.HTTPError: HTTP Error 404: Not Found"),
        "urllib.error.HTTPError: HTTP Error 404",
        "address",
    ),
    "ssl": (
        raises("ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        "ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED]",
        "ca-certificates",
    ),
    "pip": (
        prints("ERROR: No matching distribution found for torch==9.9"),
        "pip found no matching distribution of torch==9.9",
        "version",
    ),
    # GPUs
    "cuda-memory": (raises(CUDA_MEMORY), CUDA_MEMORY, "smaller batch"),
    "driver": (
        raises("RuntimeError: CUDA driver version is insufficient for CUDA runtime version"),
        "RuntimeError: CUDA driver version is insufficient",
        "older CUDA",
    ),
    "no-gpu": (
        raises("RuntimeError: Found no NVIDIA driver on your system."),
        "RuntimeError: Found no",
        "--gpu 1",
    ),
    "kernel": (
        raises("RuntimeError: CUDA error: device-side assert triggered"),
        "RuntimeError: CUDA error: dev",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    "nccl": (raises(NCCL), NCCL, "NCCL_DEBUG=INFO"),
    "shared": (raises(WORKER), WORKER, "--shm 8g"),
    # Other languages and tools
    "cpp": (
        prints(
            "terminate called after throwing an instance of 'std::runtime_error'",
            "  what():  no data",
            code=134,
        ),
        "C++ exception: no data",
        "",
    ),
    "go": (prints("panic: no data", "", "goroutine 1 [running]:", code=2), "panic: no data", "job.logs go"),
    "exit": (python("import sys; sys.exit('no GPU found')"), "no GPU found", "correct what it names"),
    "progress": (
        python("import sys; [print('epoch', i, file=sys.stderr) for i in range(9)]; sys.exit(1)"),
        "the command of main-0 ended with exit code 1",
        "",
    ),
    "rich": (
        f"{shlex.quote(sys.executable)} boxed.py",
        "ZeroDivisionError: division by zero (boxed.py, line 6)",
        "correct boxed.py",
    ),
    "click": (
        prints("Usage: train.py [OPTIONS]", "", "Error: Missing option '--lr'.", code=2),
        "Error: Missing option '--lr'.",
        "correct the command",
    ),
    "pytest": (
        prints("FAILED test_a.py::test_b - assert 1 == 2", "1 failed in 0.01s", stream=1),
        "test_a.py::test_b - assert 1 == 2",
        "correct the code or the test",
    ),
    "node": (prints("Error: Cannot find module 'express'"), "Error: Cannot find module 'express'", "npm ci"),
    "linker": (
        prints("/usr/bin/ld: cannot find -lblas: No such file or directory"),
        "/usr/bin/ld: cannot find -lblas",
        "libblas",
    ),
    "git": (
        prints("fatal: repository 'x' does not exist", code=128),
        "fatal: repository 'x'",
        "access to it",
    ),
    "error": (prints("ERROR: no section [data]", "done"), "ERROR: no section [data]", ""),
    "usage": (prints("usage: train.sh DATA", code=2), "usage: train.sh DATA", "correct what it names"),
    "silent": ("exit 3", "the command of main-0 ended with exit code 3", ""),
}


@pytest.fixture(scope="module")
def explained(cluster):
    """The explanation of each program, from one command; another one submits all."""
    files = {"boom.py": "def f():\n    return 1 / 0\n\n\nf()\n", "broken.py": "print(\n", "helper.py": ""}
    files |= {"helper.pl": "", "boxed.py": BOXED}
    for name, text in files.items():
        (cluster.project / name).write_text(text)
    (cluster.project / "data").mkdir()
    (cluster.project / "data" / "x.csv").write_text("1\n")
    words = []
    for name, (command, _, _) in PROGRAMS.items():
        sources = (
            ("--sources", "boom.py", "--sources", "broken.py", "--sources", "boxed.py")
            if ".py" in command
            else ()
        )
        limit = ("--max-time", "1s") if name == "time" else ()
        words += ["job.sub", command, "-j", name, "--memoryMB", "64", *sources, *limit]
    cluster.ok(*words)
    cluster.inv("job.wait", *PROGRAMS, timeout=250)
    return {one["name"]: one for one in json.loads(cluster.ok("job.why", *PROGRAMS, "-o", "json").out)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_headline_is_the_cause(explained, name):
    _, headline, advice = PROGRAMS[name]
    found = explained[name]
    assert found["why"].startswith(headline), found
    assert any(advice in line for line in found["advice"]), found["advice"]
    assert not found["platform"] or found["platform"].count("\n") == 0


def test_lists_have_the_same_causes(explained, cluster):
    listed = {job["name"]: job["cause"] for job in cluster.ok("job.list", "-o", "json").json()}
    silent = {"silent": "", "progress": ""}  # nothing but its exit code, which has its own column
    assert listed == {name: one["why"] for name, one in explained.items()} | silent
