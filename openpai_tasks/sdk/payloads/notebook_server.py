"""Serve Jupyter in a job. This file is sent with the job beside the notebook runner, and needs nothing else.

It starts the image's Jupyter, preferably Jupyter Lab, which it installs if there is none. While it serves, it
copies every new or changed notebook and every changed source to ``$PAI_OUTPUT_DIR/notebooks``, and lists
their digests in ``notebooks.json`` beside it; after each look for changes, it touches ``.pai/looked``. It
ends when it was idle for a while: no kernel or terminal was busy and nothing was saved. An
open browser alone does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from openpai_tasks.sdk.payloads import notebook_runner as runner
else:
    import notebook_runner as runner  # beside this file in the job

TOKEN, PORT = "JUPYTER_TOKEN", "jupyter"
PORTS = f"PAI_CONTAINER_HOST_{PORT}_PORT_LIST"
SENT, SAVED, MANIFEST, LOOKED = "sent.json", "notebooks", "notebooks.json", ".pai/looked"
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104 - only where the user asks for --direct
NOT_SAVED, STOPPED = 3, 143
"""Exit codes other than 0 and Jupyter's own."""
LARGEST = 100 << 20  # bytes up to which a changed source is saved; notebooks always are
VERSIONS = 500  # digests listed for each file
LARGEST_ANSWER = 16 << 20  # bytes of JSON from Jupyter
ANSWER_SECONDS = 30.0
LOOK_SECONDS = 1.0  # between two looks for changes, or more if they take long
ACTIVITY_SECONDS = 10.0  # between two requests for Jupyter's activity, or less for a short idle limit
LOOK_BACKOFF = 20  # wait at least this many times as long as the last look took
START_SECONDS, STOP_SECONDS = 600.0, 8.0  # that Jupyter may take to start and to stop
CHECKPOINTS = ".ipynb_checkpoints"  # Jupyter's own copies
SKIPPED = ("node_modules", "__pycache__", CHECKPOINTS)
START_MODULE = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; del sys.argv[0]; import runpy; "
    "sys.modules.setdefault('rfc3987_syntax', None); "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""Like ``python -m``, but without importing from the working folder, and sooner (see ``check_imports``).

The first argument is the folder of this file, which Jupyter loads as an extension (``has_classic_paths``).
"""


@dataclass(frozen=True)
class Flavour:
    """A kind of Jupyter: its module, settings class, settings file, and the class that holds the token."""

    module: str
    settings: str
    file: str
    holder: str
    root: str = "root_dir"


# Jupyter


def find_flavour() -> Flavour | None:
    """Return the best Jupyter in the image, if any."""
    if not _has("jupyter_server"):
        file = "jupyter_notebook_config.json"
        classic = Flavour("notebook", "NotebookApp", file, "NotebookApp", "notebook_dir")
        return classic if _has("notebook") else None
    module = next((name for name in ("jupyterlab", "notebook") if _has(name)), "jupyter_server")
    holder = "IdentityProvider" if _has("jupyter_server.auth.identity") else "ServerApp"
    return Flavour(module, "ServerApp", "jupyter_server_config.json", holder)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def has_classic_paths(kind: Flavour) -> bool:
    """Return whether Jupyter serves notebooks at /notebooks/FILE, as the classic interface does."""
    return kind.module != "jupyterlab" or _has("notebook") or _has("nbclassic")


def _load_jupyter_server_extension(app: Any) -> None:
    """Redirect /notebooks/FILE, which old guides name, to the page of Jupyter Lab."""
    from urllib.parse import quote

    from tornado.web import RequestHandler

    base = app.base_url

    class ClassicPath(RequestHandler):
        def get(self, file: str) -> None:
            query = f"?{self.request.query}" if self.request.query else ""
            self.redirect(f"{base}lab/tree/{quote(file)}{query}")

    app.web_app.add_handlers(".*$", [(f"{base}notebooks/(.*)", ClassicPath)])


def set_jupyter_folders(own: Path) -> None:
    """Keep Jupyter's settings and runtime files in private folders of the job."""
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        folder = own / variable.lower()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ[variable] = str(folder)
    kernels = os.path.join(os.path.expanduser("~"), ".local", "share", "jupyter")
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = f"{before}{os.pathsep}{kernels}" if before else kernels
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")


def export_installed() -> None:
    """Make packages that were installed for this job visible to Jupyter and its kernels."""
    target = Path(runner.PACKAGES).absolute()
    if target.is_dir():
        runner.prepend_path("PYTHONPATH", target)
        runner.prepend_path("JUPYTER_PATH", target / "share" / "jupyter")
        runner.prepend_path("JUPYTER_CONFIG_PATH", target / "etc" / "jupyter")
        if (target / "share" / "jupyter" / "lab").is_dir():
            os.environ["JUPYTERLAB_DIR"] = str(target / "share" / "jupyter" / "lab")


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reports a redirect as an error: the token is for this server only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def call_within(seconds: float, ask: Callable[[], bytes]) -> bytes:
    """Call in a thread: a timeout of urllib is one for each byte, so a slow answer would not end."""
    found: list[bytes] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as err:
            errors.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors and not isinstance(errors[0], TimeoutError):  # a read may time out at the same moment
        raise errors[0]
    if not found:
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    return found[0]


class JupyterServer:
    """The Jupyter process."""

    def __init__(
        self, kind: Flavour, ip: str, port: int, token: str, root: Path, shows_hidden: bool = False
    ) -> None:
        self._url, self._token, self._root = f"http://{LOOPBACK}:{port}", token, root
        self._kind = kind
        given = {"ip": ip, "port": port, "port_retries": 0, kind.root: root, "open_browser": False}
        if os.geteuid() == 0:
            given["allow_root"] = True
        here = Path(__file__).absolute()
        self._words = [sys.executable, "-c", START_MODULE, str(here.parent), kind.module]
        self._words += [f"--{kind.settings}.{name}={value}" for name, value in given.items()]
        if shows_hidden:
            self._words.append("--ContentsManager.allow_hidden=True")
        self._process: subprocess.Popen[bytes] | None = None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)

    def start(self) -> None:
        runner.say(f"starting {self._kind.module}")
        write_private(self._settings, json.dumps({self._kind.holder: {"token": self._token}}))
        if not has_classic_paths(self._kind):
            extensions = {"ServerApp": {"jpserver_extensions": {Path(__file__).stem: True}}}
            folder = self._settings.with_suffix(".d")
            folder.mkdir(exist_ok=True)
            write_private(folder / "classic_paths.json", json.dumps(extensions))
        self._process = subprocess.Popen(
            self._words,
            cwd=self._root,  # default folder of kernels and terminals
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._copy_log, args=(self._process.stdout,), daemon=True).start()

    @property
    def _settings(self) -> Path:
        return Path(os.environ["JUPYTER_CONFIG_DIR"], self._kind.file)

    def _copy_log(self, stream: IO[bytes]) -> None:
        """Copy its log to stdout with the token masked."""
        for line in stream:
            sys.stdout.buffer.write(line.replace(self._token.encode(), b"******"))
            sys.stdout.buffer.flush()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def code(self) -> int | None:
        """The exit code, once it has ended."""
        return self._process.poll() if self._process else None

    def get(self, path: str, token: str | None = None) -> Any:
        """Request JSON; raises OSError or ValueError."""
        headers = {"Authorization": f"token {self._token if token is None else token}"}
        request = urllib.request.Request(self._url + path, headers=headers)  # noqa: S310 - always http

        def read() -> bytes:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                return bytes(answer.read(LARGEST_ANSWER))

        return json.loads(call_within(ANSWER_SECONDS, read))

    def is_up(self) -> bool:
        try:
            return "last_activity" in self.get("/api/status")
        except (OSError, ValueError):
            return False

    def is_open(self) -> bool:
        """Return whether the image's settings let users in without the token."""
        try:
            self.get("/api/contents", "-")
        except urllib.error.HTTPError as err:
            return err.code >= 400 and err.code not in (401, 403)
        except (OSError, ValueError):
            return False
        return True

    def end(self) -> None:
        """Terminate it, kill it if that takes too long, and delete the token."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with contextlib.suppress(OSError):
            self._settings.unlink()
        shutil.rmtree(os.environ["JUPYTER_RUNTIME_DIR"], ignore_errors=True)


def write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


# Saving changes


class Saver:
    """Copies changed files below ``root`` to ``target``."""

    def __init__(self, root: Path, target: Path, sent: list[str]) -> None:
        self._root, self._target = root, target
        self._sent = [name for name in sent if CHECKPOINTS not in name.split("/")]
        self._folders = {str(folder) for name in self._sent for folder in PurePath(name).parents}
        self._seen: dict[str, tuple[int, int]] = {}  # size and time at the last look
        self._base: dict[str, str | None] = {}
        self._versions: dict[str, list[str]] = {}
        self._tried: dict[str, tuple[int, int]] = {}  # size and time of files that could not be saved
        self._problems: dict[str, str] = {}
        self._large: set[str] = set()  # changed files that are not saved
        self.period = LOOK_SECONDS

    @property
    def problem(self) -> str:
        """Why some files are not saved."""
        return "; ".join(self._problems.values())

    def begin(self) -> None:
        """Restore what an earlier attempt of the job saved, and record the current state."""
        self._restore()
        for name, mark in self._found():
            self._seen[name] = mark
            self._base.setdefault(name, runner.digest_of(self._root / name))
        for folder in (SAVED, os.path.dirname(LOOKED)):
            self._target.joinpath(folder).mkdir(parents=True, exist_ok=True)
        self._write_manifest()

    def save_changes(self) -> bool:
        """Save what has changed since the last look; return whether anything has."""
        began, found = time.monotonic(), dict(self._found())
        self._problems = {name: text for name, text in self._problems.items() if name in found}
        changed = [
            self._save_if_new(name, mark) for name, mark in found.items() if self._seen.get(name) != mark
        ]
        self.period = max(LOOK_SECONDS, LOOK_BACKOFF * (time.monotonic() - began))
        with contextlib.suppress(OSError):
            (self._target / LOOKED).touch()
        return any(changed)

    def _save_if_new(self, name: str, mark: tuple[int, int]) -> bool:
        """Save a file; return False if the same version was tried before, as a full disk is no activity."""
        is_fresh = self._tried.get(name) != mark
        self._tried[name] = mark
        try:
            if mark[0] > LARGEST and not name.endswith(".ipynb"):
                self._note_large(name)
            else:
                self._save(name)
        except OSError as err:
            problem = f"cannot save {name}: {err.strerror or err}"
            if problem != self._problems.get(name):
                runner.say(f"error: {problem}")
            self._problems[name] = problem
        else:
            self._seen[name] = mark
            self._problems.pop(name, None)
        return is_fresh

    def _save(self, name: str) -> None:
        content = (self._root / name).read_bytes()
        base = self._base.setdefault(name, None)
        versions, fresh = self._versions.get(name, [base] if base else []), runner.digest(content)
        was_large = name in self._large
        self._large.discard(name)
        if versions and fresh == versions[-1]:
            if was_large or name in self._problems:  # the manifest may be out of date
                self._write_manifest()
            return
        path = self._target / SAVED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with runner.replacing(path) as file:
            file.write(content)
        self._versions[name] = [*[one for one in versions if one != fresh][-VERSIONS:], fresh]
        self._write_manifest()
        runner.say(f"saved {name}")

    def _note_large(self, name: str) -> None:
        """List a large file as changed without saving it, to spare the storage."""
        if name not in self._large:
            runner.say(f"warning: {name} is larger than {LARGEST >> 20} MiB: its changes are not saved")
        self._large.add(name)
        self._write_manifest()

    def _write_manifest(self) -> None:
        files = {
            name: {"base": self._base.get(name), "versions": versions}
            for name, versions in self._versions.items()
        }
        manifest = {"files": files, "large": sorted(self._large)}
        with runner.replacing(self._target / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1).encode())

    def _restore(self) -> None:
        try:
            files = json.loads((self._target / MANIFEST).read_bytes())["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        for name, entry in files.items():
            with contextlib.suppress(OSError):
                content = (self._target / SAVED / name).read_bytes()
                path = self._root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                self._base[name], self._versions[name] = entry["base"], list(entry["versions"])
                runner.say(f"restored {name} from an earlier attempt of this job")

    def _found(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield notebooks and sent files with size and time."""
        for name in dict.fromkeys((*self._notebooks(), *self._sent)):
            with contextlib.suppress(OSError):
                found = os.lstat(self._root / name)
                if stat.S_ISREG(found.st_mode):
                    yield name, (found.st_size, found.st_mtime_ns)

    def _notebooks(self) -> Iterator[str]:
        device = os.stat(self._root).st_dev  # the root may be the container's, with all its mounts
        for folder, names, files in os.walk(self._root):
            names[:] = [one for one in names if self._enters(os.path.join(folder, one), one, device)]
            for one in files:
                if one.endswith(".ipynb") and not one.startswith("."):
                    yield os.path.relpath(os.path.join(folder, one), self._root)

    def _enters(self, path: str, name: str, device: int) -> bool:
        """Return whether to search a folder; hidden ones only if files in them were sent."""
        was_sent = os.path.relpath(path, self._root) in self._folders
        if name in SKIPPED or (name.startswith(".") and not was_sent):
            return False
        try:
            return os.lstat(path).st_dev == device
        except OSError:
            return False


# Activity


class Activity:
    """Tracks how long the server has been idle."""

    def __init__(self, server: JupyterServer, limit: int) -> None:
        self._server, self._limit, self._pause = server, limit, min(ACTIVITY_SECONDS, limit / 5)
        self._last = time.monotonic()
        self._asked = 0.0
        self._seen: Any = None

    @property
    def idle(self) -> float:
        return time.monotonic() - self._last

    def reset(self) -> None:
        self._last = time.monotonic()

    def update(self) -> None:
        """Ask Jupyter for the activity of kernels and terminals, at times and before it counts as idle."""
        if self.idle < self._limit and time.monotonic() - self._asked < self._pause:
            return
        self._asked = time.monotonic()
        try:
            kernels, terminals = self._listed("/api/kernels"), self._listed("/api/terminals")
        except (OSError, ValueError):
            return  # no answer, no activity
        seen = [(one.get("id") or one.get("name"), one.get("last_activity")) for one in kernels + terminals]
        is_busy = any(one.get("execution_state") == "busy" for one in kernels)
        if seen != self._seen or is_busy or (terminals and has_foreground(self._server.pid)):
            self.reset()
        self._seen = seen

    def _listed(self, path: str) -> list[dict[str, Any]]:
        try:
            found = self._server.get(path)
        except urllib.error.HTTPError:  # the image may lack terminals
            return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def has_foreground(server: int) -> bool:
    """Return whether a terminal of the server runs a program, not just its shell."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = entry.read_text(errors="replace").rpartition(")")[2].split()
            parent, group, terminal, foreground = (int(words[index]) for index in (1, 2, 4, 5))
            if parent == server and terminal and foreground not in (-1, group):
                return True
    return False


# From the command line to the exit code


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve Jupyter while it is used.")
    parser.add_argument("--idle", type=int, default=0, help="stop after this many idle seconds")
    parser.add_argument("--limit", type=int, default=0, help="stop after this many seconds in any case")
    parser.add_argument("--direct", action="store_true", help="accept connections from any address")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    options, own, root = arguments(words), Path(__file__).absolute().parent, Path.cwd()
    token, ports = os.environ.pop(TOKEN, ""), os.environ.get(PORTS, "")
    if not token or not ports:
        runner.stop(f"{TOKEN if not token else PORTS} is not set: this is for jobs of notebook.serve")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    own.chmod(0o700)
    set_jupyter_folders(own)
    dates: dict[str, int] = json.loads((own / SENT).read_text())
    names = list(dates)
    for name, date in dates.items():  # all files of an archive have the same one
        with contextlib.suppress(OSError):
            os.utime(root / name, (date, date))
    saver = Saver(root, Path(os.environ.get("PAI_OUTPUT_DIR") or own).absolute(), names)
    try:
        saver.begin()
    except OSError as err:
        runner.stop(f"cannot save changes: {err}")
    ip, port = EVERYWHERE if options.direct else LOOPBACK, int(ports.split(",")[0])
    shows_hidden = any(part.startswith(".") for name in names for part in name.split("/"))
    server = JupyterServer(choose_flavour(), ip, port, token, root, shows_hidden)
    server.start()
    try:
        code = watch(server, saver, ended, options)
    finally:
        server.end()
        saver.save_changes()
    return NOT_SAVED if saver.problem else code


def choose_flavour() -> Flavour:
    """Return the Jupyter to start, after installing it or a kernel if missing."""
    found = find_flavour()
    if found is None or not has_kernels():
        runner.install_missing("ipykernel", *(["jupyterlab"] if found is None else []))
        export_installed()
        found = find_flavour()
    if found is None:
        runner.stop("cannot find Jupyter Lab although it was installed")
    return found


def has_kernels() -> bool:
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        return False
    return bool(KernelSpecManager().find_kernel_specs())


def watch(server: JupyterServer, saver: Saver, ended: threading.Event, options: argparse.Namespace) -> int:
    """Wait for a reason to end; return the exit code."""
    began, activity, is_up = time.monotonic(), Activity(server, options.idle), False
    pause = min(LOOK_SECONDS, options.idle / 5) if options.idle else LOOK_SECONDS
    while True:
        wait_for(ended, max(pause, saver.period if saver.period > LOOK_SECONDS else 0))
        code = exit_reason(server, ended, began, options.limit)
        if code is not None:
            return code
        is_up = is_up or check_answer(server, began, options.idle)
        if saver.save_changes() or not is_up:
            activity.reset()
        elif options.idle:
            activity.update()
        if options.idle and activity.idle >= options.idle:
            runner.say(f"idle for {options.idle} s, stopping")
            return 0


def wait_for(ended: threading.Event, seconds: float) -> None:
    """Wait without ``Event.wait``, for whose lock the handler of a signal would wait forever."""
    limit = time.monotonic() + seconds
    while not ended.is_set() and (left := limit - time.monotonic()) > 0:
        time.sleep(min(0.1, left))


def exit_reason(server: JupyterServer, ended: threading.Event, began: float, limit: int) -> int | None:
    """Return the exit code if the server was stopped, has ended or is out of time."""
    if ended.is_set():
        runner.say("stopped")
        return STOPPED
    if server.code is not None:
        runner.say(f"Jupyter exited with {server.code}")
        return server.code if server.code >= 0 else 128 - server.code
    if limit and time.monotonic() - began >= limit:
        runner.say(f"the time limit of {limit} s is over, stopping")
        return 0
    return None


def check_answer(server: JupyterServer, began: float, idle: int) -> bool:
    """Return whether Jupyter answers; stop if it is too late or needs no token."""
    if not server.is_up():
        if time.monotonic() - began >= START_SECONDS:
            runner.stop(f"Jupyter did not answer within {START_SECONDS:g} s")
        return False
    if server.is_open():
        runner.stop("this image's settings let users in without a token: use another image")
    runner.say(f"serving; stops after {idle} s without activity" if idle else "serving until stopped")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
