"""What a login node prints when our server is started there."""

import json
import shutil
import subprocess

import pytest

from openpai_tasks import __version__
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.net.ssh_address import parse_ssh
from openpai_tasks.tunnel.openssh import RemoteResult, SharedConnection, login_error
from openpai_tasks.tunnel.tunnel import login_shell, start_server

STATUS = {"engine": "slurm", "socket": "/home/ann/server.sock", "version": __version__, "host": "login1"}
LOGIN = {"user": "ann", "password": "secret", "token": "x.y.z"}


class Printing:
    """A connection whose commands print a text."""

    address = parse_ssh("ann@login")

    def __init__(self, status, host="login1", before="Welcome!\n", code=0, err=""):
        answers = [f"openpai-answer {host}", json.dumps(status), "openpai-answer", json.dumps(LOGIN)]
        self.result = RemoteResult(code, before + "\n".join([*answers, "openpai-answer", ""]), err)

    def run(self, command, seconds):
        return self.result


def test_what_a_profile_prints_is_ignored():
    server = start_server(Printing(STATUS), "hpc", "", "slurm", with_login=True)
    assert (server.socket, server.user, server.token) == (STATUS["socket"], "ann", "x.y.z")
    assert "secret" not in repr(server)


@pytest.mark.parametrize(
    ("printing", "reason"),
    [
        (Printing(STATUS, host="login2"), "ann@login is login2 now, but the server runs on login1"),
        (Printing({**STATUS, "engine": "process"}), "a server runs there whose jobs run as processes"),
        (Printing({**STATUS, "socket": None}), f"the server there is openpai-tasks {__version__}"),
        (
            Printing({**STATUS, "socket": "/x:y"}),
            "cluster.restart hpc --install. updates it",
        ),
        (Printing({**STATUS, "version": "0.1.9"}), "the server there is openpai-tasks 0.1.9, this is"),
        (Printing([1]), "printed something unexpected"),
        (Printing(STATUS, code=67), "openpai-tasks is not installed there"),
        (Printing(STATUS, code=1, err="Warning\nerror: no Slurm\n"), "ann@login: no Slurm"),
    ],
)
def test_a_server_that_cannot_be_used_is_explained(printing, reason):
    with pytest.raises(PaiError, match=reason) as caught:
        start_server(printing, "hpc", "", "slurm", with_login=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("program", [" ", "pai\nid", "pai'", "a!b"])
def test_a_program_that_is_not_one_is_refused(program):
    with pytest.raises(PaiError, match="invalid program"):
        start_server(Printing(STATUS), "hpc", program, "slurm")


def test_an_unknown_host_key_is_not_called_a_changed_one():
    found = login_error(
        parse_ssh("ann@login"), "No ED25519 host key is known\nHost key verification failed.\n"
    )
    assert "is not known yet; `ssh -l ann login` shows it and asks" in str(found)


def test_only_the_command_of_ssh_itself_is_suggested_for_a_changed_host_key():
    changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
    own = 'ssh-keygen -f "/home/ann/.ssh/known_hosts" -R "[login]:2222"'
    assert f"if that is expected: `{own}`" in str(login_error(parse_ssh("login"), f"{changed}  {own}\r\n"))
    for printed in (
        f"{own}; id",
        'ssh-keygen -f "$(id)" -R "a"',
        "id # ssh-keygen",
        'ssh-keygen -f "a" -R "`id`"',
    ):
        assert "`" not in str(login_error(parse_ssh("login"), changed + printed))


def test_a_machine_without_ssh_is_told_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    connection = SharedConnection(Printing.address)
    for call in (
        connection.open,
        lambda: connection.run("true", 9),
        lambda: connection.start(command="true"),
    ):
        with pytest.raises(ConfigError, match="cannot run ssh: No such file or directory; install OpenSSH's"):
            call()


@pytest.mark.parametrize(("programs", "profile"), [(("sh", "bash"), "of bash"), (("sh",), "of sh")])
def test_a_script_has_the_variables_of_a_login_also_without_bash(tmp_path, programs, profile):
    for program in programs:
        tmp_path.joinpath(program).symlink_to(shutil.which(program))
    tmp_path.joinpath(".bash_profile").write_text(f"PATH={tmp_path} profile='of bash'\n")
    tmp_path.joinpath(".profile").write_text(f"PATH={tmp_path} profile='of sh'\n")
    command = login_shell('echo "$profile\'s"')
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run([tmp_path / "sh", "-c", command], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{profile}'s\n"
