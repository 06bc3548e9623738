"""Install this version of the package on another machine, into a virtual environment there.

That machine needs nothing but sshd and Python. Its own package index is tried first; if that fails, the
requirements are fetched here and sent.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from openpai_tasks import __version__
from openpai_tasks.errors import ConfigError, PaiError, Unreachable
from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.settings.home import locked
from openpai_tasks.text.plain import one_line
from openpai_tasks.text.plurals import counted
from openpai_tasks.tunnel import remote_installer
from openpai_tasks.tunnel.openssh import RemoteResult, SharedConnection
from openpai_tasks.tunnel.remote_installer import INDEX, NO_PIP, PIP, PIP_FAILED, SENT
from openpai_tasks.tunnel.tunnel import login_shell
from openpai_tasks.tunnel.wheels import (
    SECONDS,
    WHEEL,
    Pip,
    Target,
    is_offline,
    last_error,
    make_wheel,
    not_found,
)

NO_PYTHON = 68
_NEEDED = "sqlite3, ssl, venv, zlib"
_PYTHONS = " ".join(f"python3.{minor}" for minor in range(14, 9, -1))
# One line without exclamation marks and backslashes, since the user's shell may be csh or fish.
_SCRIPT = (
    f"python=; best=9; for name in python3 {_PYTHONS}; do "
    f'minor=$("$name" -I -c "import sys, {_NEEDED}; print(sys.version_info[1])" 2>/dev/null </dev/null) '
    '&& [ "$minor" -gt "$best" ] && best=$minor && python=$name; done; '
    f'[ -n "$python" ] || exit {NO_PYTHON}; exec "$python" -I -c '
    '"import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))" '
    f"{__version__} "
)


def install(address: SshAddress, say: Callable[[str], object]) -> None:
    """Install in ``~/.openpai/venv`` there; an older version stays in use until the new one works."""
    ssh = SharedConnection(address)
    was_open = ssh.is_open()
    try:
        with locked(ssh.folder / "install"), tempfile.TemporaryDirectory() as folder:
            ssh.open()
            say(f"installing openpai-tasks {__version__} on {address.label}, in ~/.openpai/venv")
            _install(ssh, Pip(Path(folder)), say)
    except BaseException:
        if not was_open:
            ssh.remove()
        raise


def _install(ssh: SharedConnection, pip: Pip, say: Callable[[str], object]) -> None:
    wheel, packed = make_wheel(), pip.pack()
    tools = {PIP: packed} if packed else {}
    done = _send(ssh, INDEX, {WHEEL: wheel, **tools})
    if done.code == NO_PIP and (packed := pip.fetch_newer(done.out.split()[-1])):
        tools = {PIP: packed}
        done = _send(ssh, INDEX, {WHEEL: wheel, **tools})
    if done.code == PIP_FAILED and (reason := _index_problem(done.err)):
        try:
            wheels = pip.fetch(wheel, Target.read(done.out))
        except PaiError as err:
            hint = "name an index that it can reach in ~/.config/pip/pip.conf there"
            raise Unreachable(f"{ssh.address.label} {reason}, and {err}; {hint}") from err
        size = f"{counted(len(wheels), 'package')} ({sum(map(len, wheels.values())) / 1e6:.1f} MB)"
        say(f"{ssh.address.label} {reason}: sending {size} from here")
        done = _send(ssh, SENT, {**wheels, **tools})
    if done.code:
        raise _error(ssh.address.label, done)


def _send(ssh: SharedConnection, source: str, files: Mapping[str, bytes]) -> RemoteResult:
    """Run the installer there, with these files."""
    script = Path(remote_installer.__file__).read_bytes()
    stream = io.BytesIO(b"%d\n%b" % (len(script), script))
    stream.seek(0, io.SEEK_END)
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return ssh.run(login_shell(_SCRIPT + source), SECONDS, stream.getvalue())


def _index_problem(printed: str) -> str:
    """Return why pip there could not get packages; empty if it failed for another reason."""
    if is_offline(printed):
        return "cannot reach a package index"
    missing = not_found(printed)
    return f"does not find {missing} in its package index" if missing else ""


def _error(where: str, done: RemoteResult) -> PaiError:
    if done.code == NO_PYTHON:
        tried = f"python3, {_PYTHONS.replace(' ', ', ')}"
        return ConfigError(f"{where}: no Python 3.10 or newer with the modules {_NEEDED}; tried {tried}")
    if done.code == NO_PIP:
        python = one_line(" ".join(done.out.split()[-1:]))
        hint = "`python3 -m pip install --upgrade pip` here gets it"
        return ConfigError(f"{where}: there is no pip, and none here for its Python {python}; {hint}")
    reason = last_error(done.err) or f"exit code {done.code}"
    return Unreachable(f"{where}: the installation failed: {reason}")
