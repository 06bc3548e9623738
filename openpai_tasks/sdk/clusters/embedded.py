"""Start, stop and find the embedded cluster, alias ``local``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Say, TokenStore
from openpai_tasks.errors import ConfigError, PaiError, TimedOut, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback import lock, process
from openpai_tasks.plain_text import counted
from openpai_tasks.protocol.states import FINAL, RUNNING, STOPPING, WAITING
from openpai_tasks.sdk.clusters import embedded_token
from openpai_tasks.sdk.clusters.choices import with_choices
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.engines import AUTO, ENGINES, REFUSE_GPUS, TROUBLE, choose_engine
from openpai_tasks.settings.engines import DEFAULT as DEFAULT_ENGINE
from openpai_tasks.settings.home import home, locked, make_private, write_private
from openpai_tasks.settings.keeping import EVERYTHING
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster
from openpai_tasks.settings.registry import LOCAL as ALIAS
from openpai_tasks.settings.slurm import NO_IMAGES

PROGRAM = "openpai_tasks.server"
START_SECONDS = 30.0
STOP_SECONDS = 45.0  # more than the 30 that a job has to end by itself
ANSWER_SECONDS = 10.0  # after which a server counts as one that does not answer
GRACE_SECONDS = 5.0  # for such a one, before it is killed
POLL_SECONDS = 0.02
UNION = "union"  # of the routes of every generation
_UNFINISHED = f"{RUNNING},{STOPPING},{WAITING}"  # sorted, or else pages are longer than wanted


@dataclass(frozen=True)
class LocalStatus:
    """The values that `cluster.status` shows."""

    running: bool
    home: Path
    pid: int | None = None
    port: int | None = None
    uri: str | None = None
    version: str | None = None
    engine: str | None = None
    profile: str | None = None
    limits: str | None = None  # whether tasks are kept from using more memory than they ask for
    started: int | None = None
    jobs: dict[str, int] | None = None
    trouble: str | None = None  # why its engine cannot start jobs now
    host: str | None = None
    socket: str | None = None  # of the engine slurm, for users of other machines who come by ssh


@dataclass(frozen=True)
class LocalOptions:
    """Options for starting the server."""

    engine: str = DEFAULT_ENGINE
    enforce: str = REFUSE_GPUS
    port: int = 0
    profile: str = UNION
    ssh: str = "auto"
    body_limit: int = 100  # KB
    keep: str = EVERYTHING  # limits of finished jobs
    slurm_images: str = NO_IMAGES
    slurm_options: str = ""
    mounts: tuple[str, ...] = ()  # rows of the mount map; ``local/NAME=FOLDER`` is a storage


def folder() -> Path:
    return home() / ALIAS


def connect(options: LocalOptions, say: Say, timeout: float = 60.0) -> Backend:
    """Connect to the embedded cluster as its first user; start it if it is not running."""
    return _client(ensure(options, say), timeout, say)


def ensure(options: LocalOptions, say: Say) -> Cluster:
    """Return the embedded cluster; start it, once for all concurrent commands, if it is not running."""
    if not _facts():
        with locked(folder() / "start"):
            if not _facts():
                _start(options)
                engine = ENGINES[str((_facts() or {}).get("engine", options.engine))]
                say(f"started the embedded cluster in {folder()}; jobs run {engine.label}")
                return _cluster()
    _mention_differences(options, say)
    return _cluster()


def _mention_differences(options: LocalOptions, say: Say) -> None:
    """Report settings that differ from those the server was started with: they apply at the next start."""
    facts = _facts() or {}
    names = ("engine", "enforce", "profile", "ssh", "body_limit", "keep", "slurm_images", "slurm_options")
    for name in names:
        wanted = getattr(options, name)
        if name == "engine" and wanted in (AUTO, DEFAULT_ENGINE):
            continue  # `cluster.start --engine` may have chosen another
        if facts.get(name, wanted) != wanted:
            setting = f"local.{name.replace('_', '-')}"
            say(f"{setting} is still {facts[name]}; it changes to {wanted} after `{command('cluster.stop')}`")


def running() -> Cluster | None:
    """Return the embedded cluster if it is running; never start it."""
    return _cluster() if _facts() else None


def embedded_uri() -> str:
    """Return the address of the embedded cluster if it runs, else an empty one; never start it."""
    return str((_facts() or {}).get("uri", ""))


def start_embedded(options: LocalOptions) -> bool:
    """Start the embedded cluster; False if it was running already."""
    lock.check_port(options.port)
    if options.engine not in (AUTO, *ENGINES):
        raise ConfigError(f"no engine named {options.engine!r} (known: {', '.join((AUTO, *ENGINES))})")
    with locked(folder() / "start"):
        if _facts():
            return False
        _start(options)
        return True


def stop_embedded(keep_jobs: bool, say: Say, force: bool = False, patience: float = 30.0) -> bool:
    """Stop the jobs, unless ``keep_jobs``, then the server; False if it was not running.

    A server that does not answer within ``patience`` seconds is killed only with ``force``; its jobs are
    stopped afterwards.
    """
    with locked(folder() / "start"):
        if force and lock.is_held(folder()) and not _answers(min(patience, ANSWER_SECONDS)):
            _make_end(say)
            if not keep_jobs:
                _stop_jobs_left(say)
            return True
        if _facts() and not force and not _answers(patience):
            hint = f"`{command('cluster.stop')} --force` kills it"
            raise Unreachable(f"the embedded cluster did not answer within {patience:g} s; {hint}")
        return _stop(keep_jobs, say)


def _stop(keep_jobs: bool, say: Say) -> bool:
    was_running = _facts() is not None
    if not was_running:
        if keep_jobs or not (folder() / "cluster.db").exists():
            return False
        _start(_last_options())  # its jobs may have outlived it, and only it knows how to end them
    stopped = 0 if keep_jobs else _stop_jobs(say)
    _end_server()
    return was_running or stopped > 0


def _last_options() -> LocalOptions:
    """Return options with the engine of the last server: another one does not know its tasks."""
    with suppress(FileNotFoundError):
        return LocalOptions(engine=_engine_file().read_text(encoding="utf-8").strip())
    return LocalOptions()


def _engine_file() -> Path:
    return folder() / "engine"


def _end_server() -> None:
    if lock.is_held(folder()):
        with process.found(folder(), PROGRAM) as server:
            server.signal(signal.SIGTERM)
            if not server.ends_within(STOP_SECONDS):
                raise TimedOut(f"waited {STOP_SECONDS:.0f} s for the embedded cluster to end")


def _answers(seconds: float) -> bool:
    facts = _facts()
    if not facts:
        return False
    return (
        kinds.driver(DEFAULT_KIND)
        .connect(Cluster(ALIAS, facts["uri"]), Credentials(), timeout=seconds)
        .answers()
    )


def _make_end(say: Say) -> None:
    """Terminate the server, and kill it only if that fails: a suspended one can still clean up."""
    with process.found(folder(), PROGRAM) as server:
        say(f"the embedded cluster does not answer: ending its process {server.pid}")
        for number in (signal.SIGTERM, signal.SIGCONT):
            server.signal(number)
        if not server.ends_within(GRACE_SECONDS):
            server.signal(signal.SIGKILL)
            if not server.ends_within(STOP_SECONDS):
                raise TimedOut(f"the process {server.pid} of the embedded cluster cannot be killed")


def _stop_jobs_left(say: Say) -> None:
    """Stop the jobs of a killed server, with a new server that finds them again."""
    if not (folder() / "cluster.db").exists():
        return
    try:
        _start(_last_options())
        _stop_jobs(say)
        _end_server()
    except PaiError as err:
        raise Unreachable(f"the server was ended, but its jobs may still run: {err}") from err


def embedded_status() -> LocalStatus:
    facts = _facts()
    if not facts:
        return LocalStatus(running=False, home=folder())
    names = ("pid", "port", "uri", "version", "engine", "profile", "limits", "started", "host", "socket")
    known = {name: facts.get(name) for name in names}
    return LocalStatus(running=True, home=folder(), jobs=_job_counts(), trouble=_trouble(), **known)


def _trouble() -> str | None:
    try:
        return (folder() / TROUBLE).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def login() -> Credentials:
    """Return the password of the first user, which the server has generated and stored."""
    return Credentials(password=_own_login()["password"])


def _cluster() -> Cluster:
    facts = _facts()
    if not facts:
        raise Unreachable("the embedded cluster ended while it was being used; see " + str(_log()))
    profile = facts.get("profile", UNION)
    generation = "1.8" if profile == UNION else profile  # whose ways the union has where they differ
    running = Cluster(alias=ALIAS, uri=facts["uri"], user=_own_login()["user"], generation=generation)
    return with_choices(running)


def _client(cluster: Cluster, timeout: float = 60.0, say: Say = lambda line: None) -> Backend:
    """Return a client that stores its token between commands: logging in is slow on purpose."""
    known = Credentials(password=login().password, token=embedded_token.read(folder()))
    tokens = TokenStore(
        read=partial(embedded_token.read, folder()),
        save=partial(embedded_token.keep, folder()),
    )
    return kinds.driver(DEFAULT_KIND).connect(cluster, known, tokens=tokens, timeout=timeout, say=say)


def _own_login() -> dict[str, str]:
    path = folder() / "credentials.json"
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError) as err:
        hint = f"`{command('cluster.stop')} --keep-jobs` ends the server without logging in"
        raise ConfigError(f"cannot read the embedded cluster's {path}: {err} ({hint})") from err


def _facts() -> dict[str, Any] | None:
    """Return the facts that the running server has written."""
    return lock.read_status(folder())


def _start(options: LocalOptions) -> None:
    if lock.is_held(folder()):  # started by hand a moment ago
        _wait_until(lambda: _facts() is not None, START_SECONDS, "the embedded cluster to answer")
        return
    make_private(folder())
    (folder() / "server.json").unlink(missing_ok=True)  # of one that was killed: the next is not there yet
    engine = choose_engine(options.engine)
    argv = [sys.executable, "-m", PROGRAM, "--home", str(folder()), "--engine", engine]
    argv += ["--port", str(options.port), "--profile", options.profile]
    argv += ["--ssh", options.ssh, "--body-limit", str(options.body_limit), "--keep", options.keep]
    argv += ["--enforce", options.enforce]
    argv += ["--slurm-images", options.slurm_images, f"--slurm-options={options.slurm_options}"]
    own = (row.removeprefix(f"{ALIAS}/") for row in options.mounts if row.startswith(f"{ALIAS}/"))
    argv += [f"--storage={row}" for row in own if not row.startswith("home=")]
    with _log_file() as log:
        started = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder(), start_new_session=True
        )
    _wait_until(
        lambda: _facts() is not None or started.poll() is not None,
        START_SECONDS,
        f"the embedded cluster to answer (see {_log()})",
    )
    if started.poll() is not None:
        raise Unreachable(f"the embedded cluster did not start: {_last_line()} (see {_log()})")
    write_private(_engine_file(), f"{engine}\n")


def _stop_jobs(say: Say) -> int:
    """Stop every unfinished job and wait for their end; return their number."""
    client = _client(_cluster())
    stopped: set[str] = set()
    while new := [job.key for job in client.jobs(state=_UNFINISHED) if job.key not in stopped]:
        for key in new:
            client.stop_job(key)
        stopped.update(new)
    if stopped:
        say(f"stopping {counted(len(stopped), 'job')}")
        _wait_until(lambda: not client.jobs(state=_UNFINISHED, limit=1), STOP_SECONDS, "the jobs to stop")
    return len(stopped)


def _job_counts() -> dict[str, int]:
    return _client(_cluster()).count_jobs(WAITING, RUNNING, STOPPING, *sorted(FINAL))


def _log() -> Path:
    return folder() / "server.log"


@contextmanager
def _log_file() -> Iterator[int]:
    handle = os.open(_log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _last_line() -> str:
    lines = _log().read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return last.removeprefix("error: ")


def _wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            raise TimedOut(f"waited {seconds:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
