"""The table of causes: how each is recognised, its headline, and what to do about it.

``docs/troubleshooting.md`` is made from it (``inv docs.troubleshooting``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openpai_tasks.lazy_dataclass import dataclass

DISTRIBUTIONS = {
    "Crypto": "pycryptodome",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "gym": "gymnasium",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "jwt": "PyJWT",
    "lightning_fabric": "lightning-fabric",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "pycocotools": "pycocotools",
    "pytorch_lightning": "pytorch-lightning",
    "rest_framework": "djangorestframework",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "umap": "umap-learn",
    "wx": "wxPython",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Names of modules whose distribution on PyPI has another name."""


def distribution(module: str) -> str:
    """Return the distribution to install for a module."""
    return (
        DISTRIBUTIONS.get(module) or DISTRIBUTIONS.get(module.partition(".")[0]) or module.partition(".")[0]
    )


@dataclass(frozen=True)
class Cause:
    """A row: ``pattern`` is searched in the line with the error, and ``{0}`` is its first matching group.

    Without a ``headline``, the line is the headline. ``codes`` are exit codes that mean the same by
    themselves. ``examples`` are messages of programs. ``{distribution}`` in the advice is the package to
    install for a module, and NAME is the job.
    """

    title: str
    pattern: str
    headline: str
    advice: str
    examples: tuple[str, ...]
    codes: tuple[int, ...] = ()

    def search(self, line: str) -> tuple[str, ...] | None:
        """Return the groups of the pattern that have matched, at least one; None for another cause."""
        found = re.search(self.pattern, line) if self.pattern else None
        return found and (tuple(filter(None, found.groups())) or ("",))

    def advise(self, groups: Sequence[str]) -> str:
        """Return the advice for what the pattern has found."""
        return self.advice.format(*groups, distribution=distribution(groups[0]))


MISSING_MODULE = Cause(
    "A Python module is missing",
    r"No module named '?([\w.]{1,200})",
    "",
    "install it with `--pip-installs {distribution}`, or use an image that has it (`--image`);"
    " send your own modules with `--sources`",
    (
        "ModuleNotFoundError: No module named 'cv2'",
        "/usr/bin/python3: No module named torch.distributed.run",
    ),
)
MISSING_FILE = Cause(
    "A file was not found",
    r"can't open file '([^'\n]{1,500})'|No such file or directory: '([^'\n]{1,500})'"
    r"|cannot open ['\u2018]?([^\s:'\u2018\u2019]{1,300})['\u2019]?(?: for reading)?(?::| \() ?No such file"
    r"|(?:^|[:\s])([^\s:]{1,300}): Cannot open: No such file|cannot find or open ([^\s,]{1,300}),"
    r"|(?:^|[:\s'\"\u2018])([^\s:'\"\u2018\u2019]{1,300})['\"\u2019]?: "
    r"(?:No such file or directory|cannot open(?! \S))|Cannot find module '([^'\n]{1,500})'"
    r"|No such file or directory|^(?!fatal: ).{0,1000}does not exist",
    "",
    "send it with `--sources`, and check the path: a job starts in its own folder, with only the files"
    " that were sent",
    (
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        "python3: can't open file '/app/train.py': [Errno 2] No such file or directory",
        "cat: data.csv: No such file or directory",
    ),
)
MISSING_COMMAND = Cause(
    "A command was not found",
    r"(?:^|[\s:])([^\s:]{1,200}): (?:command )?not found"
    r"|\benv: \W?([\w.+-]{1,200})\W?: No such file",
    "",
    "check the spelling of {0}, and that the image has it (`--image`); your own programs are started"
    " with a path, such as `./{0}`",
    ("bash: line 3: nvcc: command not found", "sh: 1: nvcc: not found"),
    (127,),
)
FILES = (
    MISSING_MODULE,
    Cause(
        "A package of Node.js, Perl, R or Ruby is missing",
        r"Cannot find (?:module|package) '([^'\n./][^'\n]{0,300})'|Can't locate (\S{1,200}\.pm) in @INC"
        r"|there is no package called ['\u2018]([\w.]{1,100})|cannot load such file -- (\S{1,200})",
        "",
        "install {0} before the command (such as `npm ci`), or use an image that has it (`--image`); send"
        " your own files with `--sources`",
        (
            "Error: Cannot find module 'express'",
            "Can't locate Math/Thing.pm in @INC (you may need to install)",
        ),
    ),
    Cause(
        "A library is missing for the linker",
        r"cannot find -l([\w+.-]{1,100})",
        "",
        "use an image that has lib{0}, or install its development package before the command"
        " (`apt-get install`)",
        ("/usr/bin/ld: cannot find -lopenblas: No such file or directory",),
    ),
    Cause(
        "A name cannot be imported",
        r"cannot import name '(\w{1,200})' from (?:partially initialized module )?'([\w.]{1,200})'",
        "",
        "check the version of {1} in the image (`--pip-installs '{1}==VERSION'` installs another one), and"
        " that none of your own files has the same name as a package",
        ("ImportError: cannot import name 'AdamW' from 'transformers' (/opt/transformers/__init__.py)",),
    ),
    Cause(
        "A shared library is missing",
        r"\b(lib[\w.+-]{1,100}\.so[\w.]{0,20}): cannot open shared object file",
        "",
        "use an image that has {0}, or install its system package before the command (`apt-get install`);"
        " for libGL, install `opencv-python-headless` instead of `opencv-python`",
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory",),
    ),
    Cause(
        "A program needs a newer system",
        r"version `((?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,20})' not found",
        "",
        "use an image with a newer system, or a build of the program for an older one",
        ("./train: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./train)",),
    ),
    Cause(
        "A package was built for another NumPy",
        r"numpy\.dtype size changed|compiled using NumPy 1\.x|numpy\.core\.multiarray failed to import",
        "",
        "install versions that match: `--pip-installs 'numpy<2'`, or a newer version of the package",
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility.",),
    ),
    Cause(
        "A script has Windows line endings",
        r"\\r': command not found|\\r': No such file|\^M: bad interpreter|\\r: bad interpreter",
        "",
        "convert the script (`sed -i 's/\\r$//' FILE`), and submit it again",
        ("run.sh: line 2: $'\\r': command not found",),
    ),
    Cause(
        "The interpreter of a script is missing",
        r"bad interpreter|required file not found",
        "",
        "correct the first line of the script (`#!/usr/bin/env python3`), or use an image that has"
        " the program it names",
        ("bash: ./run.sh: /usr/bin/python2: bad interpreter: No such file or directory",),
    ),
    Cause(
        "A program or an image is for another processor",
        r"[Ee]xec format error|image platform .{1,60} does not match",
        "",
        "use an image for the processors of the cluster (`docker build --platform linux/amd64`); a script"
        " needs a first line such as `#!/bin/bash`",
        (
            "exec /bin/sh: exec format error",
            "OSError: [Errno 8] Exec format error: './train'",
        ),
    ),
    Cause(
        "`python` or `pip` is not there",
        r"(?:^|[\s:])(python|pip): (?:command )?not found|\benv: \W?(python|pip)\W?: No such file",
        "",
        "write `{0}3`: many systems have no `{0}` unless a virtual environment is active",
        ("bash: line 1: python: command not found", "/usr/bin/env: 'python': No such file or directory"),
    ),
    MISSING_COMMAND,
    MISSING_FILE,
    Cause(
        "Permission denied",
        r"Permission denied|cannot execute",
        "",
        "check the mode (`chmod +x` for a script, or start it with `bash`) and the owner of the file",
        (
            "bash: ./run.sh: Permission denied",
            "PermissionError: [Errno 13] Permission denied: '/data/model.pt'",
        ),
        (126,),
    ),
    Cause(
        "The file system is read-only",
        r"Read-only file system",
        "",
        "write to `$PAI_OUTPUT_DIR`, to the job's own folder, or to a storage that you may change",
        ("OSError: [Errno 30] Read-only file system: '/data/cache'",),
    ),
    Cause(
        "The disk is full",
        r"No space left on device",
        "",
        "write less, remove temporary files, or write to a storage: the local disk of a node is small",
        ("OSError: [Errno 28] No space left on device",),
    ),
    Cause(
        "The disk quota is used up",
        r"[Dd]isk quota exceeded",
        "",
        "remove files (`pai storage.usage` shows those of your jobs), or ask for a larger quota",
        ("OSError: [Errno 122] Disk quota exceeded: 'model.pt'",),
    ),
    Cause(
        "Too many open files",
        r"Too many open files",
        "",
        "close files, or raise the limit before the command: `ulimit -n 65536`; in PyTorch,"
        " `torch.multiprocessing.set_sharing_strategy('file_system')` needs fewer",
        ("OSError: [Errno 24] Too many open files: 'images/1024.jpg'",),
    ),
)

RUNTIME = (
    Cause(
        "The time limit was reached",
        r"exit code \d{1,3}: (the time limit of \d{1,9} s was reached)$",
        "{0}",
        "allow more time (`--max-time 12h`), or with checkpoints let it run again (`--requeue-on-timeout 3`);"
        " `pai job.resubmit NAME` continues at the last one",
        ("exit code 124: the time limit of 3600 s was reached",),
    ),
    Cause(
        "The sources did not arrive",
        r"^error: (the sources (?:are damaged|cannot be (?:checked|unpacked))|cannot fetch the sources)",
        "the job did not get its sources: {0}",
        "submit it again to resend missing or damaged files; the image needs tar, sha256sum and,"
        " for HDFS, curl or python3",
        ("error: the sources are damaged: /mnt/home/sources/5.tar.gz has sha256 6",),
    ),
    Cause(
        "The output was not kept",
        r"^error: (cannot keep the output)",
        "the output could not be sent to the storage",
        "check that the image has curl or python3, and that the nodes of the cluster reach the storage",
        ("error: cannot keep the output: sending it to http://pai/webhdfs/x failed",),
    ),
)
"""What the script around the command reports."""

GPUS = (
    Cause(
        "The GPU ran out of memory",
        r"(?:CUDA|HIP|GPU).{0,20}out of memory|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|ResourceExhaustedError"
        r"|RESOURCE_EXHAUSTED|OOM when allocating|CUDA_ERROR_OUT_OF_MEMORY",
        "",
        "use a smaller batch or model, mixed precision or gradient checkpointing, or a GPU with more memory",
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
        ),
        (226,),
    ),
    Cause(
        "The GPU driver is too old for CUDA",
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old"
        r"|[Ff]orward compatibility was attempted|unsupported toolchain",
        "",
        "use an image with an older CUDA, or nodes with a newer driver: `nvidia-smi` in a job shows the"
        " latest CUDA version that its driver supports",
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        ),
        (224,),
    ),
    Cause(
        "The program was not built for this GPU",
        r"no kernel image is available for execution",
        "",
        "use an image whose PyTorch or CUDA supports this type of GPU, or another type of GPU",
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device",),
    ),
    Cause(
        "PyTorch was installed without CUDA",
        r"Torch not compiled with CUDA enabled",
        "",
        "use an image with CUDA, or install the CUDA build of PyTorch",
        ("AssertionError: Torch not compiled with CUDA enabled",),
    ),
    Cause(
        "There is no GPU",
        r"no CUDA-capable device|[Ff]ound no NVIDIA driver|No CUDA GPUs are available|invalid device ordinal"
        r"|torch\.cuda\.is_available\(\) is False|NVIDIA-SMI has failed|CUDA_ERROR_NO_DEVICE",
        "",
        "request GPUs (`--gpu 1`), and use only as many devices as the job has; to load a model without a"
        " GPU, pass `map_location='cpu'`",
        (
            "RuntimeError: Found no NVIDIA driver on your system.",
            "RuntimeError: No CUDA GPUs are available",
        ),
    ),
    Cause(
        "CUDA was used before a fork",
        r"Cannot re-initialize CUDA in forked subprocess",
        "",
        "start workers with `multiprocessing.set_start_method('spawn')`, or use CUDA only after they start",
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.",),
    ),
    Cause(
        "A GPU kernel failed",
        r"device-side assert triggered|illegal memory access",
        "",
        "run it with `--env CUDA_LAUNCH_BLOCKING=1`, so that the traceback ends at the operation that"
        " failed; often, a label or an index is out of range",
        ("RuntimeError: CUDA error: device-side assert triggered",),
    ),
    Cause(
        "Shared memory is too small",
        r"insufficient shared memory|out of shared memory|DataLoader worker .{1,100}Bus error"
        r"|unable to (?:open|mmap|write).{1,80}shm|No space left on device: '/dev/shm",
        "",
        "request more (`--shm 8g`), or use fewer workers in the DataLoader (`num_workers=0`)",
        (
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory.",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
            "memory (shm).",
        ),
    ),
    Cause(
        "A DataLoader worker died",
        r"DataLoader worker \(pid.{1,60}(?:is killed by signal|exited unexpectedly)",
        "",
        "request more memory (`--memoryMB`) or shared memory (`--shm 8g`), or use fewer workers;"
        " `num_workers=0` shows the error of a worker",
        ("RuntimeError: DataLoader worker (pid(s) 71, 72) exited unexpectedly",),
    ),
    Cause(
        "A collective operation timed out",
        r"Watchdog caught collective operation timeout|Timed out waiting .{1,100}ProcessGroup"
        r"|Timed out waiting \d{1,9}ms for (?:send|recv) operation",
        "",
        "look for the task that failed or hung first (`pai job.logs NAME`); all of them must take the same"
        " number of steps",
        (
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)",
            "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete",
        ),
    ),
    Cause(
        "Tasks of a job cannot connect",
        r"client socket has (?:timed out|failed to connect)|RendezvousConnectionError|RendezvousTimeoutError"
        r"|DistNetworkError|DistStoreError",
        "",
        "check that MASTER_ADDR and MASTER_PORT name the first task, that all tasks have started"
        " (`pai job.status NAME`), and that the job has requested the port (`--ports`)",
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms.",
            "torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients.",
        ),
    ),
    Cause(
        "NCCL failed",
        r"NCCL (?:error|WARN|failure)|nccl(?:Unhandled(?:Cuda|System)|System|Internal|Remote)Error"
        r"|DistBackendError",
        "",
        "run it with `--env NCCL_DEBUG=INFO` to see which connection fails; with several network"
        " interfaces, set `--env NCCL_SOCKET_IFNAME=eth0`",
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system "
            "error (run with NCCL_DEBUG=INFO for details)",
        ),
    ),
    Cause(
        "A CUDA library failed",
        r"CUDA (?:error|failure)|CUDA_ERROR_\w{1,60}|CU(?:BLAS|DNN)_STATUS_\w{1,60}|cuDNN error",
        "",
        "check that the image's CUDA and cuDNN match its PyTorch or TensorFlow and the driver of the node,"
        " and run it again: if only one node fails, report it to the administrator",
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",),
    ),
)

LIMITS = (
    Cause(
        "Slurm's time limit was reached",
        r"CANCELLED AT \S{1,40} (DUE TO TIME LIMIT)",
        "the time limit of Slurm was reached",
        "allow more time, or use a partition with a longer limit; with checkpoints, `pai job.resubmit NAME`"
        " continues at the last one",
        ("slurmstepd: error: *** JOB 77 ON node1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT ***",),
    ),
    Cause(
        "The job used more memory than it requested",
        r"oom[-_ ]kill|Exceeded job memory limit|OOMKilled",
        "it used more memory than it requested",
        "request more (`--memoryMB 16g`), or use less: smaller batches, fewer workers",
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",),
        (-1200,),
    ),
    Cause(
        "The memory was used up",
        r"MemoryError|Cannot allocate memory|std::bad_alloc|Unable to allocate \S{1,20} \w{1,9} for an array"
        r"|OutOfMemoryError: Java heap space",
        "",
        "request more (`--memoryMB 16g`), or use less: smaller batches, fewer workers",
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array",
            "OSError: [Errno 12] Cannot allocate memory",
        ),
    ),
    Cause(
        "Too many processes or threads",
        r"can't start new thread|fork: (?:retry: )?Resource temporarily unavailable",
        "",
        "use fewer workers, and limit the threads of libraries (`--env OMP_NUM_THREADS=4`)",
        ("RuntimeError: can't start new thread",),
    ),
)

NETWORK = (
    Cause(
        "A port is in use",
        r"[Aa]ddress already in use|EADDRINUSE",
        "",
        "let the cluster choose: request a port (`--ports web=1`) and listen on"
        " `$PAI_CONTAINER_HOST_web_PORT_LIST`, or use port 0",
        ("OSError: [Errno 98] Address already in use",),
    ),
    Cause(
        "A host name cannot be resolved",
        r"[Cc]ould not resolve host|Name or service not known|Temporary failure in name resolution"
        r"|No address associated with hostname|Failed to resolve",
        "",
        "check the address, and whether the nodes of the cluster have access to it; if they have no"
        " internet, put the files on a storage",
        (
            "curl: (6) Could not resolve host: example.invalid",
            "socket.gaierror: [Errno -2] Name or service not known",
        ),
    ),
    Cause(
        "A certificate is not trusted",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL certificate problem",
        "",
        "install the certificates of the site in the image (`ca-certificates`), and point to them with"
        " `--env SSL_CERT_FILE=/path` or `--env REQUESTS_CA_BUNDLE=/path`",
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",),
    ),
    Cause(
        "A server refused access",
        r"HTTP Error 40[13]|40[13] Client Error|returned error: 40[13]|ERROR 40[13]|GatedRepoError",
        "",
        "check the address and your access to it; pass a token as a secret (`--secret HF_TOKEN`)",
        (
            "urllib.error.HTTPError: HTTP Error 403: Forbidden",
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url",
        ),
    ),
    Cause(
        "A server refused the request",
        r"HTTP Error 4\d\d|4\d\d Client Error|returned error: 4\d\d|ERROR 4\d\d",
        "",
        "check the address; after 429 (too many requests), try again later",
        ("urllib.error.HTTPError: HTTP Error 404: Not Found",),
    ),
    Cause(
        "A server failed",
        r"HTTP Error 5\d\d|5\d\d Server Error|returned error: 5\d\d|ERROR 5\d\d",
        "",
        "try again later: `pai job.resubmit NAME`; `--retries 3` retries the job",
        ("urllib.error.HTTPError: HTTP Error 503: Service Unavailable",),
    ),
    Cause(
        "A connection failed",
        r"Connection (?:refused|reset by peer|timed out|closed by peer)|Max retries exceeded"
        r"|Network is unreachable|Failed to (?:establish a new connection|connect)|No route to host"
        r"|Read timed out",
        "",
        "check the address and the port, and whether the nodes of the cluster have access to them; proxies"
        " are set with `--env https_proxy=http://HOST:PORT`",
        (
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Connection refused",
        ),
    ),
    Cause(
        "pip did not find a package",
        r"No matching distribution found for (\S{1,200})",
        "pip found no matching distribution of {0}",
        "check the name and the version of {0}, and that the image's Python is new enough for it",
        ("ERROR: No matching distribution found for torch==9.9",),
    ),
    Cause(
        "pip may not change the image's Python",
        r"externally-managed-environment",
        "pip may not install into the system's Python",
        "use an image with another Python, or start with a virtual environment"
        " (`python3 -m venv env && . env/bin/activate`)",
        ("error: externally-managed-environment",),
    ),
)

PROGRAMS = (
    Cause(
        "An environment variable is missing",
        r"^KeyError: '([A-Z][A-Z0-9_]{2,100})'",
        "",
        "if the program reads it from the environment, set it with `--env {0}=VALUE`; for a password or a"
        " key, use `--secret {0}`",
        ("KeyError: 'DATA_ROOT'",),
    ),
    Cause(
        "A login of Weights & Biases is missing",
        r"api_key not configured|wandb\.errors.{1,60}(?:login|API key)",
        "",
        "pass the key as a secret: `--secret WANDB_API_KEY`; `--env WANDB_MODE=offline` works without it",
        ("wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",),
    ),
    Cause(
        "A shell variable is not set",
        r"\b(\w{1,100}): (?:unbound variable|parameter not set)",
        "",
        "set it (`--env {0}=VALUE`), or write `${{{0}-}}`: jobs run with `set -u`",
        ("bash: line 2: DATA_ROOT: unbound variable",),
    ),
    Cause(
        "The shell cannot read the command",
        r"syntax error|unexpected EOF while looking|unexpected end of file|[Uu]nterminated quoted string",
        "",
        "check quotes and brackets; long commands are easier to write in a script, sent with `--sources`",
        ("bash: -c: line 1: syntax error near unexpected token `)'",),
    ),
    Cause(
        "Python cannot read the code",
        r"^(?:SyntaxError|IndentationError|TabError): ",
        "",
        "correct it; if it works for you, the image has an older Python (`python3 --version` in a job)",
        ("SyntaxError: invalid syntax",),
    ),
    Cause(
        "The program rejects its arguments",
        r"^(?:usage: )?\S{1,100}: error: (?:unrecognized arguments|the following arguments|argument |"
        r"invalid choice|ambiguous option)"
        r"|^Error: (?:No such (?:option|command)|Missing (?:option|argument|command|parameter)|Invalid value"
        r"|Got unexpected extra argument|Option .{1,100} (?:requires|does not take))",
        "",
        "correct the command, and submit it again",
        ("train.py: error: unrecognized arguments: --lr 0.1", "Error: Missing option '--lr'."),
    ),
    Cause(
        "A test failed",
        r"^(?:FAILED|ERROR) (\S{1,300}\.py\S{0,300} - .{1,500})",
        "{0}",
        "correct the code or the test; other tests may have failed, too",
        ("FAILED test_model.py::test_loss - AssertionError: loss too high",),
    ),
    Cause(
        "A program asks for input",
        r"EOF when reading a line|not a TTY|[Ii]nappropriate ioctl for device",
        "",
        "pass the answers as arguments or variables: a job has no terminal and no input",
        ("EOFError: EOF when reading a line",),
    ),
    Cause(
        "Workers start the program again",
        r"before the\s{0,20}(?:current process has finished its )?bootstrapping phase",
        "",
        'put the code that starts workers below `if __name__ == "__main__":`',
        (
            "RuntimeError: An attempt has been made to start a new process before the current process has "
            "finished its bootstrapping phase.",
        ),
    ),
    Cause(
        "A checkpoint does not fit the model",
        r"Error\(s\) in loading state_dict|size mismatch for|Missing key\(s\) in state_dict",
        "",
        "load it with the settings of the model that it was saved from; `pai job.resubmit NAME --fresh`"
        " starts without the job's checkpoints",
        ("RuntimeError: Error(s) in loading state_dict for Net:",),
    ),
    Cause(
        "PyTorch refuses to load a file",
        r"Weights only load failed",
        "",
        "pass `weights_only=False` to `torch.load` if you trust the file, or save only a `state_dict`",
        (
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you "
            "have two options",
        ),
    ),
    Cause(
        "Tensors are on different devices",
        r"Expected all tensors to be on the same device",
        "",
        "move the model and its inputs to one device: `x.to(device)`",
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices",),
    ),
    Cause(
        "Text is not UTF-8",
        r"^Unicode(?:Decode|Encode)Error: ",
        "",
        "name the encoding (`open(path, encoding='utf-8')`), or set `--env PYTHONUTF8=1`",
        ("UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 0",),
    ),
)

SIGNALS = (
    Cause(
        "A worker process was killed",
        r"Signal \d{1,2} \((SIG(?:KILL|SEGV|BUS|ILL|FPE))\) received by PID"
        r"|terminated with signal (SIG(?:KILL|SEGV|BUS|ILL|FPE))",
        "a worker process was killed by {0}",
        "after SIGKILL, memory has usually run out: request more (`--memoryMB 16g`), or use less; after"
        " SIGBUS, request shared memory (`--shm 8g`); otherwise, `--env PYTHONFAULTHANDLER=1` shows where",
        (
            "  traceback : Signal 9 (SIGKILL) received by PID 800",
            "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
        ),
    ),
    Cause(
        "Killed (SIGKILL)",
        r"(?:^|\s)Killed(?:\s|$)",
        "killed by SIGKILL (exit code 137)",
        "usually, memory ran out: request more (`--memoryMB 16g`), or use less; otherwise, somebody or the"
        " cluster killed it",
        ("bash: line 3: 71 Killed                  python3 train.py",),
        (137,),
    ),
    Cause(
        "Segmentation fault (SIGSEGV)",
        r"[Ss]egmentation fault",
        "killed by SIGSEGV (exit code 139): segmentation fault",
        "a library crashed: `--env PYTHONFAULTHANDLER=1` shows where; often, versions of packages do not"
        " match",
        ("bash: line 3: 71 Segmentation fault      (core dumped) python3 train.py",),
        (139, 234),
    ),
    Cause(
        "Bus error (SIGBUS)",
        r"(?:^|\s)Bus error(?:\s|$)",
        "killed by SIGBUS (exit code 135): bus error",
        "usually, shared memory is too small: request more (`--shm 8g`), or use fewer workers",
        ("bash: line 3: 71 Bus error               (core dumped) python3 train.py",),
        (135,),
    ),
    Cause(
        "Illegal instruction (SIGILL)",
        r"[Ii]llegal instruction",
        "killed by SIGILL (exit code 132): illegal instruction",
        "a library was built for another processor, such as one with AVX: install a build for this one, or"
        " use another node",
        ("bash: line 3: 71 Illegal instruction     (core dumped) ./train",),
        (132,),
    ),
    Cause(
        "Aborted (SIGABRT)",
        r"(?:^|\s)Aborted(?:\s|$)",
        "killed by SIGABRT (exit code 134): aborted",
        "a library ended the program: the lines before that in `pai job.logs NAME` say why",
        ("bash: line 3: 71 Aborted                 (core dumped) ./train",),
        (134,),
    ),
    Cause(
        "Floating point exception (SIGFPE)",
        r"[Ff]loating point exception",
        "killed by SIGFPE (exit code 136): floating point exception",
        "the program divided an integer by zero: correct it, and submit it again",
        ("bash: line 3: 71 Floating point exception(core dumped) ./train",),
        (136,),
    ),
    Cause(
        "Terminated (SIGTERM)",
        r"(?:^|\s)Terminated(?:\s|$)",
        "killed by SIGTERM (exit code 143)",
        "something inside the job or the cluster ended it, such as a launcher, a time limit or a node that"
        " is shut down",
        ("bash: line 3: 71 Terminated              python3 train.py",),
        (143,),
    ),
    Cause(
        "Interrupted (SIGINT)",
        r"^KeyboardInterrupt",
        "",
        "something sent SIGINT to the program, as Ctrl-C does: `pai job.resubmit NAME` runs it again",
        ("KeyboardInterrupt",),
        (130,),
    ),
    Cause(
        "A program ran too long for `timeout`",
        "",
        "the command timed out (exit code 124)",
        "give `timeout` more time, or find out what the program waits for",
        (),
        (124,),
    ),
)

OTHERS = (
    Cause(
        "A C++ exception",
        r"^\s{0,8}what\(\):\s{1,8}(.{1,300})",
        "C++ exception: {0}",
        "the lines before that in `pai job.logs NAME` may say where it happened",
        ("  what():  basic_string::substr: __pos (which is 9) > this->size() (which is 3)",),
    ),
    Cause(
        "An exception of Java, Go, Rust or Node.js",
        r"^(?:Exception in thread|panic: |thread '[^']{1,80}' (?:\(\d{1,9}\) )?panicked at|Uncaught )",
        "",
        "the lines after that in `pai job.logs NAME` say where it happened",
        ('Exception in thread "main" java.lang.IllegalStateException: no data', "panic: no data"),
    ),
    Cause(
        "Git failed",
        r"^fatal: ",
        "",
        "check the address and your access to it; jobs do not have your keys, so pass a token as a secret",
        ("fatal: repository 'https://example.invalid/x.git/' not found",),
    ),
    Cause(
        "Another message of an error",
        r"^(?:\S{1,100}: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL)\b.{0,3}[:\]] ?\S|^E: \S"
        r"|^[A-Za-z_][\w.]{0,100}(?:Error|Exception): \S",
        "",
        "the lines around it in `pai job.logs NAME` may say more",
        ("ERROR: the configuration has no section [data]", "E: Unable to locate package libgl2"),
    ),
    Cause(
        "A program ends with a message",
        # Only the last line of the output is searched, and only without any other cause.
        r"^(?:\S{1,40}: )?[Nn]o \w|^[Uu]sage: |(?i:\b(?:cannot|unable to|no such|failed|failure|missing|"
        r"invalid|unknown|unsupported|unrecognized|malformed|required?s?|denied|refused|mismatch|corrupt(?:ed)?|"
        r"exceeds?|exceeded|unexpected|expect(?:s|ed|ing)|empty|incompatible|illegal|abort(?:ed|ing)|needs?|"
        r"must (?:be|have|not)|too (?:many|few|large|small|long|short|old)|out of (?:memory|range|space)|"
        r"(?:is|are|was|were|has|have|does|do|did|could|can) ?(?:not?|n't)|"
        r"not (?:found|available|set|given|supported|installed|enough|allowed))\b)",
        "",
        "correct what it names, and submit the job again",
        ("no GPU found", "data/train.csv has no column 'label'", "Expecting value: line 1 column 1 (char 0)"),
    ),
)

SECTIONS = {
    "The job's own script": RUNTIME,
    "GPUs": GPUS,
    "Limits": LIMITS,
    "Network": NETWORK,
    "Files and modules": FILES,
    "Programs and shells": PROGRAMS,
    "Signals": SIGNALS,
    "Other languages and tools": OTHERS,
}
"""All causes by section, most specific first: the first that matches a line is its cause."""
CAUSES = tuple(row for rows in SECTIONS.values() for row in rows)
