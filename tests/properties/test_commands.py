"""Commands against a server with malformed responses end with a known exit code and without a traceback."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import NewCluster
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke
from openpai_tasks.tasks.program import PaiProgram, TasksLoader
from tests.properties.answers import DETAIL, JOB, KINDS, RETRYING, RUNNING, V1, V2, WAITING, OddCluster
from tests.properties.mutations import body, steady
from tests.scripted import Reply

INFO = (f"GET {V2}/info", f"GET {V1}/authn/info", f"GET {V1}/user/ann")
LISTS = (f"GET {V2}/virtual-clusters", f"GET {V2}/storages")
STORED = (*LISTS[1:], f"GET {V2}/storages/team")
DETAILS = (f"GET {JOB}", f"GET {JOB}/events", f"GET {JOB}/config")
LOGS = f"GET {JOB}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
COMMANDS: dict[str, tuple[str, ...]] = {
    "job.list -o json": (f"GET {V2}/jobs",),
    "job.list --user all": (f"GET {V2}/jobs",),
    "job.status train": DETAILS[:2],
    "job.status train -o yaml": DETAILS[:2],
    "job.why train": (*DETAILS, *LISTS[:1], LOGS),
    "job.logs train": (*DETAILS[:1], LOGS),
    "job.wait train --timeout 0": DETAILS[:1],
    "job.config train": DETAILS[::2],
    "job.diff train train": DETAILS[::2],
    "job.resubmit train --preview --gpu 2": (*DETAILS[::2], *STORED),
    "job.outputs train": (*DETAILS[::2], *STORED),
    "job.open train --no-browser": DETAILS[:1],
    "notebook.fetch train": (*DETAILS[::2], *STORED),
    "container.list train": DETAILS[:1],
    "container.ssh-config train": DETAILS[:1],
    "cluster.resources -a lab -o csv": LISTS[:1],
    "cluster.info lab": (*INFO, *LISTS),
    "cluster.update lab": (*INFO, *LISTS, f"POST {V1}/token"),
    "storage.list": STORED,
    "storage.ls pai://lab/0/": STORED,
    "storage.ls pai://lab/": STORED,
}
OURS = {*range(4), *range(120, 126), 143, 255}
"""The exit codes of our errors, and those that the jobs in the responses may have."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A cluster that was added while its responses were valid, with a separate folder and home."""
    server, folder = OddCluster("1.8"), tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "user"))
        patch.setenv("OPENPAI_HOME", str(folder / "home"))
        patch.setenv("OPENPAI_SECRET_KEY", "secret")
        patch.setenv("OPENPAI_SECRET_I_PASSWORD", "secret")
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        patch.chdir(folder)
        patch_invoke()
        new = NewCluster("lab", server.uri, "ann", Credentials(password="secret"))
        known.add(Settings(), new, True, known.cannot_ask, lambda line: None)
        known.select(Settings(), "lab", True)
        yield server
    server.close()


def run(line: str) -> tuple[Any, str, str]:
    """The command's exit code and output, in the strict UTF-8 that files and pipes get."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    program = PaiProgram(
        name="pai", binary="pai", binary_names=["pai"], version="0", loader_class=TasksLoader
    )
    code: Any = 0
    path = list(sys.path)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program.run(["pai", *line.split()])
        except SystemExit as end:
            code = end.code or 0
    sys.path[:] = path
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


@pytest.mark.parametrize("line", COMMANDS)
def test_command_with_malformed_responses_never_ends_in_a_traceback(server, line):
    @steady(8)
    @given(st.data())
    def check(data):
        route = data.draw(st.sampled_from(COMMANDS[line]))
        real = (
            data.draw(st.sampled_from((DETAIL, RUNNING, RETRYING, WAITING)))
            if route == f"GET {JOB}"
            else KINDS["1.8"][route]
        )
        state = data.draw(st.sampled_from((DETAIL, WAITING)))
        server.instead = {f"GET {JOB}": Reply(state), route: Reply(data.draw(body(real)))}
        code, _, err = run(line)
        assert isinstance(code, int) and code in OURS, (code, err)
        assert "Traceback" not in err

    check()


def test_commands_work_with_valid_responses(server):
    for line in COMMANDS:
        server.instead = {f"GET {JOB}": Reply(RUNNING)} if line.startswith("container") else {}
        code, _, err = run(line)
        assert code in (0, 120, 3), (line, code, err)
