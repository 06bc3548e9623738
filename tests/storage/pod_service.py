"""The SSH service of tasks in pods, with a ``kubectl`` that runs commands on this machine."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from openpai_tasks.sdk.ssh.target import Target
from openpai_tasks.server.engines.kubernetes import serve_ssh
from tests.ssh_keys import make_key

KUBECTL = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
case $3 in */runtime/session*) ;; *) exec "$@" ;; esac
[ "$9" != lost ] || { echo half; exit 0; }  # as kubectl ends if its connection is lost
/bin/sh -c "$9" || exit  # what starts sessions exists only in pods
mark=${3#*printf *%s\\' }
printf '\\036%s' "${mark% >&3}" >&2
"""


@functools.cache
def shared() -> Target:
    """Where the service is that tests share; it ends with them."""
    made = tempfile.TemporaryDirectory(prefix="pod-")
    folder, keys = Path(made.name), Path(made.name, "ssh")
    keys.mkdir()
    make_key(folder / "id")
    make_key(keys / "host_key")
    shutil.copy(folder / "id.pub", keys / "authorized_keys")
    kubectl = folder / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        process = subprocess.Popen(
            [sys.executable, "-m", serve_ssh.__name__, str(bound.fileno()), "pod", "space", "none", "", ""],
            cwd=folder,
            env={**os.environ, "PATH": f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.PIPE,
            pass_fds=(bound.fileno(),),
            start_new_session=True,
        )
        port = bound.getsockname()[1]
    atexit.register(made.cleanup)
    atexit.register(process.communicate)  # closes its input, and waits for its end
    return Target(
        host="127.0.0.1",
        port=port,
        user="root",
        key=folder / "id",
        name="ann~train-main-0-1",
        known_hosts=folder / "known_hosts",
        label="main-0 of job 'train'",
        timeout=30.0,
    )
