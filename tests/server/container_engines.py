"""Real Docker and Podman for tests, each with its own store, and images made without a registry."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from openpai_tasks.server.engines.container_program import DOCKER, PODMAN, ProgramDialect
from tests.needs import require

DIALECTS = {one.name: one for one in (DOCKER, PODMAN)}
IMAGE = "pai/busybox:1"
NEEDED = {"docker": ("dockerd", "docker", "busybox"), "podman": ("podman", "runc", "busybox")}
PODMAN_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/tmp"
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{folder}/store"
rootless_storage_path = "{folder}/store"
runroot = "{folder}/run"
"""
LEFT_OUT = {"test", "site-packages", "dist-packages", "__pycache__", "idlelib", "tkinter", "ensurepip"}
JUPYTER = "/opt/jupyter"
JUPYTER_PYTHON = "jupyter-python"
"""The Python of an image that has Jupyter, beside a plain ``python3``."""
WITH_JUPYTER = f'#!/bin/sh\nPYTHONPATH={JUPYTER} exec python3 "$@"\n'.encode()
SYSTEM = ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
OPTIONAL = {"debugpy", "jedi"}  # IPython works without them, and they are half of its files
REGISTRIES_CONF = '[[registry]]\nlocation = "{address}"\ninsecure = true\n'


class Kit:
    """One engine, usable through the variables in ``environment``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.environment: dict[str, str] = {}

    @property
    def dialect(self) -> ProgramDialect:
        return DIALECTS[self.name]

    def run(
        self, *arguments: str, input: bytes | None = None, environment: Mapping[str, str] | None = None
    ) -> str:
        done = subprocess.run(
            [self.name, *arguments],
            env={**os.environ, **self.environment, **(environment or {})},
            input=input,
            capture_output=True,
            timeout=100,
        )
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout.decode()

    def containers(self) -> list[str]:
        return self.run("ps", "--all", "--quiet").split()

    def make_image(self, name: str, files: Mapping[str, bytes | Path] | None = None) -> None:
        self.run("import", "-", name, input=image_tar(files or {}))


class Docker(Kit):
    def __init__(self, folder: Path) -> None:
        super().__init__("docker", folder)
        self.environment = {"DOCKER_HOST": f"unix://{folder}/docker.sock"}
        self.start()

    def start(self, *, live_restore: bool = True) -> None:
        log = self.folder / "dockerd.log"
        argv = ["dockerd", "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        argv += ["--host", self.environment["DOCKER_HOST"], "--pidfile", f"{self.folder}/docker.pid"]
        argv += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        argv += ["--live-restore"] if live_restore else []
        with log.open("ab") as output:
            self.daemon = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        limit = time.monotonic() + 100
        while not self._answers():
            if self.daemon.poll() is not None or time.monotonic() > limit:
                self.end()
                pytest.skip(f"dockerd does not run here: {log.read_text().strip().splitlines()[-1]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the daemon as a crash would, and wait for its containerd to end: then a new one can start."""
        containerd = int((self.folder / "exec/containerd/containerd.pid").read_text())
        self.end(signal.SIGKILL)
        limit = time.monotonic() + 60
        while Path(f"/proc/{containerd}").exists() and time.monotonic() < limit:
            time.sleep(0.02)

    def _answers(self) -> bool:
        argv, known = ["docker", "version"], {**os.environ, **self.environment}
        return subprocess.run(argv, env=known, capture_output=True).returncode == 0

    def end(self, number: int = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.daemon.pid, number)
        self.daemon.wait(60)


class Podman(Kit):
    def __init__(self, folder: Path) -> None:
        super().__init__("podman", folder)
        for name, text in {"containers": PODMAN_CONF, "storage": STORAGE_CONF, "registries": ""}.items():
            (folder / f"{name}.conf").write_text(text.format(folder=folder))
        self.environment = {
            "CONTAINERS_CONF": f"{folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{folder}/registries.conf",
            "XDG_RUNTIME_DIR": str(folder),
        }
        try:
            self.run("info")
        except AssertionError as err:
            pytest.skip(f"podman does not run here: {err}")

    def end(self) -> None:
        """Delete what an ordinary user can delete only in podman's namespaces, and end what runs there."""
        if os.geteuid():
            self.run("image", "rm", "--all", "--force")
            self.run("system", "migrate")


@contextlib.contextmanager
def engine_kit(name: str) -> Iterator[Kit]:
    """Run an engine with one small image, and remove everything afterwards."""
    require(*NEEDED[name], *(["newuidmap"] if name == "podman" and os.geteuid() else []))
    folder = Path(tempfile.mkdtemp(prefix="pai-"))  # its sockets need a short path
    kit: Docker | Podman | None = None
    try:
        kit = Docker(folder) if name == "docker" else Podman(folder)
        kit.make_image(IMAGE)
        yield kit
        left = kit.containers()
        if left:
            kit.run(*kit.dialect.removal, *left)
        assert left == []
    finally:
        if kit:
            kit.end()
        unmount(folder)
        shutil.rmtree(folder)


def unmount(folder: Path) -> None:
    """Unmount what the engine has mounted below the folder, the latest mount first."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=True)


def image_tar(files: Mapping[str, bytes | Path]) -> bytes:
    """Return a tar of a busybox root file system with these files and the libraries they need."""
    busybox = Path(shutil.which("busybox") or "")
    programs = [content for content in files.values() if isinstance(content, Path)]
    needed = {str(path): path for program in (busybox, *programs) for path in libraries(program)}
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in ("bin", "tmp", "etc", "root"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        tar.add(busybox, "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        for name, content in {**needed, **files}.items():
            if isinstance(content, Path):
                tar.add(os.path.realpath(content), name.lstrip("/"))
            else:
                file = tarfile.TarInfo(name.lstrip("/"))
                file.size, file.mode = len(content), 0o755
                tar.addfile(file, io.BytesIO(content))
    return made.getvalue()


def libraries(program: Path) -> list[Path]:
    """Return the shared libraries and the loader of a program; a static program and other files have none."""
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return [Path(word) for word in listed.split() if word.startswith("/")]


def python_files() -> dict[str, Path]:
    """Return the files of this interpreter and its standard library for an image."""
    library, name = Path(sysconfig.get_path("stdlib")), f"python3.{sys.version_info.minor}"
    found = {"/usr/local/bin/python3": Path(os.path.realpath(sys.executable))}
    for folder, below, names in os.walk(library):
        below[:] = set(below) - LEFT_OUT
        files = [Path(folder, name) for name in names if not name.endswith(".a")]
        found |= {f"/usr/local/lib/{name}/{path.relative_to(library)}": path for path in with_bytecode(files)}
    return found


def with_bytecode(files: list[Path]) -> list[Path]:
    """Add the files of bytecode, as far as they exist, or each container would compile all that it loads."""
    cached = (Path(cache_from_source(path)) for path in files if path.suffix == ".py")
    return [*files, *(path for path in cached if path.exists())]


def jupyter_files(*more: str) -> dict[str, bytes | Path]:
    """Return the files of what runs a notebook, and of these distributions, with a program to use them."""
    found = _package_files("nbconvert", "ipykernel", *more)
    libraries = (path for name in SYSTEM for path in Path("/usr/lib").glob(f"*-linux-gnu/{name}"))
    found |= {str(path): path.read_bytes() for path in libraries}
    return {**found, f"/usr/local/bin/{JUPYTER_PYTHON}": WITH_JUPYTER}


def _package_files(*names: str) -> dict[str, bytes | Path]:
    """Return the installed files of these distributions and of all that they need."""
    found: dict[str, bytes | Path] = {}
    left, seen = list(names), set(OPTIONAL)
    while left:
        name = re.split(r"[^A-Za-z0-9._-]", left.pop())[0]
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if one.name not in seen:
            seen.add(one.name)
            left += [need for need in one.requires or () if "extra ==" not in need]
            inner = [file for file in one.files or () if not {"..", "__pycache__", "tests"} & set(file.parts)]
            base = Path(str(one.locate_file("")))
            files = with_bytecode([base / file for file in inner])
            found |= {f"{JUPYTER}/{path.relative_to(base)}": _content(path) for path in files}
    return found


def _content(path: Path) -> bytes | Path:
    """Return the path of a module, which must keep its time for its bytecode to be valid, or the bytes."""
    return path if path.suffix in (".py", ".pyc") else path.read_bytes()
