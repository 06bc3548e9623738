"""Install this version of the package on a login node, into a virtual environment there."""

from __future__ import annotations

import base64
import hashlib
import io
import re
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
    was_open = ssh.is_open()
    try:
        with locked(ssh.folder / "install"):
            ssh.open()
            say(f"installing openpai-tasks {__version__} on {address.label}, in ~/.openpai/venv")
            done = ssh.run(login_shell(_SCRIPT), SECONDS, wheel)
        if done.code == NO_PYTHON:
            raise ConfigError(f"{address.label}: there is no Python 3.10 or newer with the module venv")
        if done.code:
            why = done.last_line or f"exit code {done.code}"
            raise Unreachable(f"{address.label}: the installation failed: {why}")
    except BaseException:
        if not was_open:
            ssh.remove()
        raise


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
    points, known = _metadata()
    # a checkout may be newer than its metadata, and pip compares the version with the wheel's name
    known = re.sub(r"^Version: .*$", f"Version: {__version__}", known, count=1, flags=re.M)
    for name, text in {"METADATA": known, "entry_points.txt": points, "WHEEL": _WHEEL}.items():
        yield f"{_FOLDER}/{name}", text.encode()


def _metadata() -> tuple[str, str]:
    """Return the entry points and the metadata; a checkout has an ``egg-info`` too, or nothing else."""
    found = list(metadata.distributions(name="openpai-tasks"))
    for read in (lambda one: one.read_text("METADATA"), _from_egg_info):
        for one in found:
            points, known = one.read_text("entry_points.txt"), read(one)
            if points and known:
                return points, known
    raise ConfigError("openpai-tasks is not installed here with its metadata: pip install it first")


def _from_egg_info(found: metadata.Distribution) -> str:
    """Return the metadata with the requirements, which old versions of setuptools write to another file."""
    first, _, more = (found.read_text("PKG-INFO") or "").partition("\n")
    needed = [] if "\nRequires-Dist:" in more else [f"Requires-Dist: {one}" for one in found.requires or ()]
    return "\n".join([first, *needed, more]) if first else ""
