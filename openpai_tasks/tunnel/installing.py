"""Install this version of the package on a login node, into a virtual environment there."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from openpai_tasks import __version__
from openpai_tasks.errors import ConfigError, Unreachable
from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.settings.home import locked
from openpai_tasks.tunnel.login_node import VENV, login_shell
from openpai_tasks.tunnel.openssh import SharedConnection

NAME = "openpai_tasks"
SECONDS = 1800.0  # over a slow line
NO_PYTHON = 68
_FOLDER = f"{NAME}-{__version__}.dist-info"
_WHEEL = "Wheel-Version: 1.0\nGenerator: openpai-tasks\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PYTHONS = " ".join(f"python3.{minor}" for minor in range(14, 9, -1))
_SCRIPT = (
    f'umask 077; file="$HOME/.openpai/{NAME}-{__version__}-py3-none-any.whl"; '
    'mkdir -p "$HOME/.openpai" || exit 1; '
    'cat > "$file" || exit 1; python=; '
    f"for name in python3 {_PYTHONS}; do "
    'if "$name" -c "import sys, venv; sys.exit(sys.version_info < (3, 10))" 2>/dev/null; '
    f'then python=$name; break; fi; done; [ -n "$python" ] || exit {NO_PYTHON}; '
    f'[ -x "{VENV}/bin/python" ] || "$python" -m venv "{VENV}" || exit 1; '
    f'"{VENV}/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall "$file"; '
    'code=$?; rm -f "$file"; exit $code'
)


def install(address: SshAddress, say: Callable[[str], object]) -> None:
    """Send this package as a wheel, and let pip install it there with its requirements."""
    wheel = make_wheel()
    ssh = SharedConnection(address)
    with locked(ssh.folder / "install"):
        ssh.open()
        say(f"installing openpai-tasks {__version__} on {address.label}, in ~/.openpai/venv")
        done = ssh.run(login_shell(_SCRIPT), SECONDS, wheel)
    if done.code == NO_PYTHON:
        raise ConfigError(f"{address.label}: there is no Python 3.10 or newer with the module venv")
    if done.code:
        raise Unreachable(f"{address.label}: the installation failed: {done.last_line}")


def make_wheel() -> bytes:
    """Return this package as a wheel, however it is installed here."""
    packed, record = io.BytesIO(), []
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (*_files(), *_about()):
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        archive.writestr(f"{_FOLDER}/RECORD", "".join([*record, f"{_FOLDER}/RECORD,,\n"]))
    return packed.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(__file__).parent.parent
    templates = package.parent / "job_templates"  # of a checkout, where they are beside the package
    found = [(path, f"{NAME}/{path.relative_to(package).as_posix()}") for path in package.rglob("*")]
    if not (package / templates.name).is_dir():
        found += [
            (path, f"{NAME}/{path.relative_to(package.parent).as_posix()}") for path in templates.glob("**/*")
        ]
    for path, name in sorted(found, key=lambda one: one[1]):
        if path.is_file() and "__pycache__" not in path.parts:
            yield name, path.read_bytes()


def _about() -> Iterator[tuple[str, bytes]]:
    try:
        known = metadata.distribution("openpai-tasks")
        texts = {name: known.read_text(name) for name in ("METADATA", "entry_points.txt")}
    except metadata.PackageNotFoundError:
        texts = {}
    if not all(texts.values()) or not texts:
        raise ConfigError("openpai-tasks is not installed here with its metadata: pip install it first")
    texts["WHEEL"] = _WHEEL
    for name, text in texts.items():
        yield f"{_FOLDER}/{name}", (text or "").encode()
