"""Start, stop and find the embedded cluster, alias ``local``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from openpai_tasks import __version__
from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Say, TokenStore
from openpai_tasks.errors import ConfigError, PaiError, TimedOut, Unreachable
from openpai_tasks.files.regular import open_regular
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback import lock, process
from openpai_tasks.protocol.states import FINAL, RUNNING, STOPPING, WAITING
from openpai_tasks.sdk.clusters.start_options import (
    UNION,
    LastStart,
    LocalOptions,
    StartRequest,
    check_engine_flags,
    differing_lines,
    kept_line,
    read_last,
    record_start,
    running_options,
)
from openpai_tasks.sdk.clusters.user_clusters import with_choices
from openpai_tasks.settings.credentials import Credentials, hidden_environment
from openpai_tasks.settings.engines import (
    AUTO,
    ENGINES,
    TROUBLE,
    UNUSABLE,
    EngineKind,
    check_engine,
    choose_engine,
)
from openpai_tasks.settings.engines import DEFAULT as DEFAULT_ENGINE
from openpai_tasks.settings.home import home, lock_file, locked, write_private
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster
from openpai_tasks.settings.registry import LOCAL as ALIAS
from openpai_tasks.text.hints import command, in_this_program
from openpai_tasks.text.plurals import counted
from openpai_tasks.text.versions import is_compatible

PROGRAM = "openpai_tasks.server"
START_SECONDS = 30.0
STOP_SECONDS = 45.0  # more than the 30 that a job has to end by itself
ANSWER_SECONDS = 10.0  # for a running server to answer
GRACE_SECONDS = 5.0  # for a server that does not answer to end, before it is killed
POLL_SECONDS = 0.02
ANSWERING = "the embedded cluster to answer"
LONGEST_TOKEN = 4096  # bytes
_TOKEN = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+|[0-9a-f]{40}")  # of its OpenPAI API, or of its PaddleCloud API
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
    socket: str | None = None  # for users of other machines who come by ssh


def folder() -> Path:
    return home() / ALIAS


def connect(request: StartRequest, say: Say, timeout: float = 60.0) -> Backend:
    """Connect to the embedded cluster as its first user; start it if it is not running."""
    return _client(ensure_running(request, say), timeout, say)


def engine_notes(client: Backend) -> tuple[str, ...]:
    """Return how jobs run on the embedded cluster, in sentences; nothing for another cluster."""
    engine = _engine(client)
    return (f"Jobs run {engine.label}.",) if engine else ()


def runs_on_this_machine(client: Backend) -> bool:
    """Whether all jobs of the cluster run on this machine, and not on nodes that it schedules."""
    engine = _engine(client)
    return engine is not None and engine.runs_here


def _engine(client: Backend) -> EngineKind | None:
    facts = _facts() if client.cluster.is_embedded else None
    return ENGINES.get(str(facts.get("engine", DEFAULT_ENGINE))) if facts else None


def ensure_running(request: StartRequest, say: Say) -> Cluster:
    """Return the embedded cluster; start it, once for all concurrent commands, if it is not running."""
    if not _facts():
        with _starting():
            if not _facts():
                kept = _launch(request)
                engine = ENGINES[str((_facts() or {}).get("engine", DEFAULT_ENGINE))]
                say(f"started the embedded cluster in {folder()}; jobs run {engine.label}")
                if kept:
                    say(kept)
                return _cluster()
    if facts := _facts():
        _check_version(str(facts.get("version")), say)
        for line in differing_lines(request, read_last(folder()), facts):
            say(line)
    return _cluster()


def _check_version(version: str, say: Say) -> None:
    """Warn about a server of another version; refuse one of another minor version."""
    if version != __version__:
        update = f"`{command('cluster.restart')}` updates it, and its jobs continue"
        line = f"the embedded cluster is still openpai-tasks {version}, this is {__version__}; {update}"
        if not is_compatible(version):
            raise ConfigError(line)
        say(line)


def running() -> Cluster | None:
    """Return the embedded cluster if it is running; never start it."""
    return _cluster() if _facts() else None


def revive(uri: str, say: Say) -> bool:
    """Start a server that was killed; return False if it was stopped, or has another address than before."""
    if not (folder() / "cluster.db").exists():
        return False
    if not _facts() and not lock.is_held(folder()):  # it neither starts nor ends at the moment
        with locked(folder() / "start"):
            if not _facts() and (folder() / lock.STATUS).exists():  # which a server that was stopped removes
                _restart(say, force=False)
    facts = _facts()
    return facts["uri"] == uri if facts else lock.is_held(folder())


def embedded_uri() -> str:
    """Return the address of the embedded cluster if it runs, else an empty one; never start it."""
    return str((_facts() or {}).get("uri", ""))


def start_embedded(request: StartRequest, say: Say) -> bool:
    """Start the embedded cluster; False if it was running already."""
    lock.check_port(request.options.port)
    check_engine(request.options.engine)
    with _starting():
        facts = _facts()
        if not facts:
            if kept := _launch(request):
                say(kept)
            return True
        _check_running(request, facts, say)
        return False


def restart_embedded(request: StartRequest, say: Say) -> None:
    """Start a new server, which takes over the jobs of the running one."""
    with _starting():
        was_running = _facts() is not None
        _stop_server()
        try:
            kept = _launch(request)
        except PaiError:
            if was_running:
                _restart(say, force=False)
            raise
        say("restarted the embedded cluster; its jobs continue")
        if kept:
            say(kept)


def _check_running(request: StartRequest, facts: Mapping[str, Any], say: Say) -> None:
    """Raise if the server runs with other options than a command asks for; report changed settings."""
    options = running_options(facts)
    for name, value in request.flags.items():
        if name not in options:
            check_engine_flags(request, facts["engine"])
        now = options.get(name, "")
        if value not in (now, AUTO, 0):
            hint = f"run `{command('cluster.stop')}` first"
            raise ConfigError(f"the embedded cluster is running with another {name}, {now or 'none'}: {hint}")
    for line in differing_lines(request, read_last(folder()), facts):
        if request.fresh:
            raise ConfigError(line)
        say(line)


def stop_embedded(keep_jobs: bool, say: Say, force: bool = False, patience: float = 30.0) -> bool:
    """Stop the jobs, unless ``keep_jobs``, then the server; False if it was not running.

    A server that does not answer within ``patience`` seconds is killed only with ``force``; its jobs are
    stopped afterwards. Jobs whose engine cannot be used any more are given up only with ``force``.
    """
    with locked(folder() / "start"):
        if force and lock.is_held(folder()) and not _answers(min(patience, ANSWER_SECONDS)):
            _kill_server(say)
            if not keep_jobs:
                _stop_remaining_jobs(say)
            return True
        if _facts() and not force and not _answers(patience):
            hint = f"`{command('cluster.stop')} --force` kills it"
            raise Unreachable(f"the embedded cluster did not answer within {patience:g} s; {hint}")
        return _stop(keep_jobs, say, force)


def _stop(keep_jobs: bool, say: Say, force: bool) -> bool:
    was_running = _facts() is not None
    if not was_running:
        if keep_jobs or not (folder() / "cluster.db").exists():
            return False
        _restart(say, force)  # its jobs may have outlived it, and only it knows how to end them
    stopped = 0 if keep_jobs else _stop_jobs(say)
    _stop_server()
    return was_running or stopped > 0


def _restart(say: Say, force: bool) -> None:
    """Start a server with the engine of the last one, as another does not know its tasks.

    If that engine cannot be used any more, ``force`` gives its jobs up.
    """
    last = read_last(folder())
    options = LocalOptions().changed({**last.options, "engine": last.engine, "port": 0})
    try:
        _start(options)
    except UnusableEngine as err:
        if not force:
            raise Unreachable(f"{err}; `{command('cluster.stop')} --force` gives its jobs up") from err
        say(f"{err}: its jobs are given up")
        _start(dataclasses.replace(options, engine=DEFAULT_ENGINE), "--give-up-jobs")


def _stop_server() -> None:
    if not process.terminate(folder(), PROGRAM, STOP_SECONDS):
        raise TimedOut(f"waited {STOP_SECONDS:.0f} s for the embedded cluster to end")


def _answers(seconds: float) -> bool:
    facts = _facts()
    if not facts:
        return False
    cluster = Cluster(ALIAS, facts["uri"])
    return kinds.driver(DEFAULT_KIND).connect(cluster, Credentials(), timeout=seconds).answers()


def _kill_server(say: Say) -> None:
    """Terminate the server, and kill it only if that fails: a suspended one can still clean up."""
    with suppress(process.ServerEnded), process.found(folder(), PROGRAM) as server:
        say(f"the embedded cluster does not answer: ending its process {server.pid}")
        for number in (signal.SIGTERM, signal.SIGCONT):
            server.signal(number)
        if not server.ends_within(GRACE_SECONDS):
            server.signal(signal.SIGKILL)
            if not server.ends_within(STOP_SECONDS):
                raise TimedOut(f"the process {server.pid} of the embedded cluster cannot be killed")
    (folder() / lock.STATUS).unlink(missing_ok=True)  # it was stopped: nothing starts it again by itself


def _stop_remaining_jobs(say: Say) -> None:
    """Stop the jobs of a killed server, with a new server that finds them again."""
    if not (folder() / "cluster.db").exists():
        return
    try:
        _restart(say, force=True)
        _stop_jobs(say)
        _stop_server()
    except PaiError as err:
        raise Unreachable(f"the server was ended, but its jobs may still run: {err}") from err


def embedded_status() -> LocalStatus:
    facts = _facts()
    if not facts:
        return LocalStatus(running=False, home=folder())
    names = ("pid", "port", "uri", "version", "engine", "profile", "limits", "started", "host", "socket")
    known = {name: facts.get(name) for name in names}
    jobs = _client(_cluster()).count_jobs(WAITING, RUNNING, STOPPING, *sorted(FINAL))
    return LocalStatus(running=True, home=folder(), jobs=jobs, trouble=_trouble(), **known)


def _trouble() -> str | None:
    try:
        return (folder() / TROUBLE).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def login() -> Credentials:
    """Return the password of the first user, which the server has generated and stored."""
    return Credentials(password=_read_login()["password"])


def _cluster() -> Cluster:
    facts = _facts()
    if not facts:
        raise Unreachable("the embedded cluster ended while it was being used; see " + str(_log()))
    profile = facts.get("profile", UNION)
    generation = "1.8" if profile == UNION else profile  # whose ways the union has where they differ
    running = Cluster(alias=ALIAS, uri=facts["uri"], user=_read_login()["user"], generation=generation)
    return with_choices(running)


def _client(cluster: Cluster, timeout: float = 60.0, say: Say = lambda line: None) -> Backend:
    """Return a client that stores its token between commands: logging in is slow on purpose."""
    tokens = token_store()
    known = Credentials(password=login().password, token=tokens.read())
    return kinds.driver(DEFAULT_KIND).connect(cluster, known, tokens=tokens, timeout=timeout, say=say)


def token_store(file: str = "token") -> TokenStore:
    """Return the store of the owner's token, a file of the cluster; without it, a command logs in again."""
    path = folder() / file
    return TokenStore(read=partial(_read_token, path), save=partial(_keep_token, path))


def _read_token(path: Path) -> str:
    """Return the token; empty if the file is missing, truncated, or accessible to other users."""
    try:
        with open_regular(path) as opened:
            status = os.fstat(opened.fileno())
            is_private = stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == os.geteuid()
            content = opened.read(LONGEST_TOKEN).strip() if is_private else b""
    except OSError:
        return ""
    return content.decode("ascii") if _TOKEN.fullmatch(content) else ""


def _keep_token(path: Path, token: str) -> None:
    """Store the token; if that fails, the next command logs in again."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
    with suppress(ConfigError):
        write_private(path, token)


def _read_login() -> dict[str, str]:
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


class UnusableEngine(Unreachable):
    """Raised when the server did not start because its engine cannot be used here and now."""


@contextmanager
def _starting() -> Iterator[None]:
    """Hold the lock for starts; if the first start fails, remove the folder."""
    had_home = home().exists()
    with locked(folder() / "start"):
        try:
            yield
        except PaiError:
            if os.listdir(folder()) == [lock_file(folder() / "start").name]:
                shutil.rmtree(folder())
                with suppress(OSError):  # it may have something else by now
                    if not had_home:
                        home().rmdir()
            raise


def _launch(request: StartRequest) -> str:
    """Start the server as flags, settings and its last start say; return a line about what it has kept."""
    options = request.merged(read_last(folder()))
    engine = choose_engine(options.engine)
    check_engine_flags(request, engine)
    start = LastStart(options.values(), request.settings, engine)
    try:
        with record_start(folder(), start):
            _start(dataclasses.replace(options, engine=engine))
    except UnusableEngine as err:
        if "engine" in request.flags:
            raise
        hint = f"`{command('cluster.start', '--engine', DEFAULT_ENGINE)}` starts it with another"
        raise Unreachable(f"{err}; {hint}") from err
    return kept_line(request, options)


def _start(options: LocalOptions, *flags: str) -> None:
    """Start a server; if it fails and was the first one here, nothing of it is left."""
    if lock.is_held(folder()):  # started by another a moment ago, or ending
        _wait_until(lambda: _facts() is not None or not lock.is_held(folder()), START_SECONDS, ANSWERING)
        if lock.is_held(folder()):
            return
    before = os.listdir(folder())
    (folder() / lock.STATUS).unlink(missing_ok=True)  # of a server that was killed
    argv = [sys.executable, "-m", PROGRAM, "--home", str(folder()), "--engine", options.engine]
    argv += ["--port", str(options.port), "--profile", options.profile]
    argv += ["--ssh", options.ssh, "--body-limit", str(options.body_limit), "--keep", options.keep]
    argv += ["--enforce", options.enforce]
    argv += [f"--engine-option={name}={value}" for name, value in options.of_engine().items()]
    argv += [*(f"--storage={row}" for row in options.storages), *flags]
    own_home = {"OPENPAI_HOME": str(home())} if os.environ.get("OPENPAI_HOME") else {}  # it may be relative
    with open(_log(), "ab", opener=partial(os.open, mode=0o600)) as log:
        end = log.tell()
        started = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder(),
            env=hidden_environment() | own_home,
            start_new_session=True,
        )
    _wait_until(
        lambda: _facts() is not None or started.poll() is not None,
        START_SECONDS,
        f"{ANSWERING} (see {_log()})",
    )
    if started.poll() is None:
        return
    if started.returncode == lock.ALREADY_RUNNING:  # that of a command that was killed
        return _start(options, *flags)
    reason = in_this_program(process.last_line(_log(), end))
    problem = f"the embedded cluster did not start: {reason}"
    if "cluster.db" in before:
        problem += f" (see {_log()})"
    else:
        _remove(path for path in folder().iterdir() if path.name not in before)
    if started.returncode == lock.PORT_TAKEN:
        problem += f"; `{command('cluster.start', '--port', '0')}` takes a free one"
    raise (UnusableEngine if started.returncode == UNUSABLE else Unreachable)(problem)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


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


def _log() -> Path:
    return folder() / "server.log"


def _wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            raise TimedOut(f"waited {seconds:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
