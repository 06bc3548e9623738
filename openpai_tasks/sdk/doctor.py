"""Check this machine and the selected cluster before the first job; nothing is started or changed."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.ssh_address import SSH
from openpai_tasks.sdk import clusters
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters.inactive_python import FOREIGN, activation, inactive_environments
from openpai_tasks.sdk.clusters.start_options import next_engine
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.sdk.images import programs
from openpai_tasks.sdk.ssh import keys
from openpai_tasks.settings import engines, home
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.settings.registry import is_embedded
from openpai_tasks.text.hints import command

OK, WARN, FAIL = "ok", "warn", "fail"
ENGINE_SECONDS = 20.0


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check; ``command`` is what to do about it."""

    state: str
    check: str
    about: str
    command: str = ""


def examine(settings: Settings) -> Iterable[HealthCheck]:
    """Yield the result of each check."""
    yield check_python()
    yield check_settings(settings)
    yield check_home()
    client: list[Backend] = []
    yield _guarded("engine", "", check_engine, settings)
    yield _guarded("cluster", command("cluster.list"), check_cluster, settings, client)
    yield check_storage(settings, client)
    yield _guarded("ssh", command("config.unset", "ssh.key"), check_ssh, settings)
    yield _guarded("image", "", check_image, settings)


def check_findings(found: Sequence[HealthCheck]) -> None:
    """Raise if something is broken."""
    broken = [one.check for one in found if one.state == FAIL]
    if broken:
        raise ConfigError(f"broken: {', '.join(broken)}")


def _guarded(name: str, otherwise: str, check: Callable[..., HealthCheck], *words: object) -> HealthCheck:
    """Make a check; an error is a result, with the command that may help."""
    try:
        return check(*words)
    except PaiError as err:
        return HealthCheck(FAIL, name, str(err), otherwise)


# This machine


def check_python() -> HealthCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or ""
    kind = "" if sys.prefix != sys.base_prefix else ", not a virtual environment"
    about = f"{version} in {sys.prefix}{kind}"
    if active and not Path(active).is_dir():
        return HealthCheck(WARN, "python", f"{about}; the active environment {active} is gone", "deactivate")
    if active and os.path.realpath(active) != os.path.realpath(sys.prefix):
        about += f"; {active} is active"
    if idle := inactive_environments(Path.cwd()):
        activate = activation(idle[0])
        more = "" if activate else f"; {FOREIGN}"
        return HealthCheck(WARN, "python", f"{about}; {idle[0]} is not active{more}", activate)
    return HealthCheck(OK, "python", about)


def check_settings(settings: Settings) -> HealthCheck:
    """Report names that are not settings, and settings that need trust."""
    if settings.withheld:
        names = ", ".join(dict.fromkeys(claim.setting for claim in settings.withheld))
        return HealthCheck(WARN, "settings", f"ignored, not trusted: {names}", command("config.trust"))
    if settings.unknown:
        return HealthCheck(WARN, "settings", settings.unknown[0], command("config.show"))
    given = sum(origin != "built-in" for origin in settings.origins.values())
    return HealthCheck(OK, "settings", f"{given} of {len(settings.origins)} are set; the others are built in")


def check_home() -> HealthCheck:
    """Check that other users cannot read the folder with the logins."""
    folder = home.home()
    if not folder.exists():
        above = next(one for one in folder.parents if one.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            why = f"{folder} cannot be created: {above} cannot be written"
            return HealthCheck(FAIL, "home", why, f"ls -ld {shlex.quote(str(above))}")
        return HealthCheck(OK, "home", f"{folder}, which is created when it is needed")
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError as err:
        return HealthCheck(FAIL, "home", f"{folder}: {err.strerror}", f"ls -ld {shlex.quote(str(folder))}")
    quoted = shlex.quote(str(folder))
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return HealthCheck(FAIL, "home", f"{folder} cannot be written", f"chmod u+rwx {quoted}")
    if mode & 0o077:
        return HealthCheck(WARN, "home", f"other users can read {folder}", f"chmod go-rwx {quoted}")
    return HealthCheck(OK, "home", str(folder))


def check_engine(settings: Settings) -> HealthCheck:
    """Check the program that the embedded cluster runs jobs with."""
    kind = engines.ENGINES[next_engine(settings, embedded.folder())]
    about = f"{kind.name}: jobs on `local` run {kind.label}"
    if not kind.program:
        return HealthCheck(OK, "engine", about)
    state = FAIL if settings.is_embedded else WARN
    other = command("cluster.start", "--engine", engines.DEFAULT)
    if kind.name == settings.local_engine:
        other = command("config.set", f"local.engine={engines.DEFAULT}")
    if not shutil.which(kind.program):
        return HealthCheck(state, "engine", f"{kind.program} is not installed", other)
    if not _succeeds(*kind.check.split()):
        return HealthCheck(state, "engine", f"{kind.name} does not answer", kind.check)
    return HealthCheck(OK, "engine", about)


def check_ssh(settings: Settings) -> HealthCheck:
    if settings.ssh_key:
        key = keys.private_key(settings)
        keys.check(key, "ssh.key")
        about = f"key {key}"
    else:
        about = "a key is made when it is needed"
    if not shutil.which("ssh"):
        about += "; there is no ssh program, so `ssh JOB` does not work"
        return HealthCheck(WARN, "ssh", about, _ssh_installation())
    return HealthCheck(OK, "ssh", about)


def _ssh_installation() -> str:
    commands = ("apt-get install openssh-client", "dnf install openssh-clients", "apk add openssh-client")
    return next((f"sudo {one}" for one in commands if shutil.which(one.split()[0])), "")


# The cluster


def check_cluster(settings: Settings, connected: list[Backend]) -> HealthCheck:
    """Check the address and the login; keep the client for the next check."""
    alias = settings.cluster_alias
    if is_embedded(alias) and not clusters.embedded_uri():
        return HealthCheck(OK, "cluster", "local, the embedded one; it starts with the first job")
    if alias not in {cluster.alias for cluster in clusters.list_clusters(settings)}:
        add = f"{command('cluster.add', alias)} ADDRESS --user NAME"
        return HealthCheck(FAIL, "cluster", f"{alias} is selected, but not known", add)
    client = clusters.connect(settings, alias)
    try:
        client.authenticate()
        names = ", ".join(client.virtual_clusters())
    except Unreachable as err:
        uri = client.cluster.uri
        check = command("cluster.update", alias) if uri.startswith(SSH) else f"curl -sSI {shlex.quote(uri)}"
        return HealthCheck(FAIL, "cluster", str(err), check)
    except (Denied, ConfigError) as err:
        return HealthCheck(FAIL, "cluster", str(err), command("cluster.update", alias, "--login"))
    connected.append(client)
    about = f"{alias} ({client.product}), as {client.user}; virtual clusters: {names}"
    return HealthCheck(OK, "cluster", about)


def check_storage(settings: Settings, connected: Sequence[Backend]) -> HealthCheck:
    """Check that the storage that jobs use can be listed."""
    alias = settings.cluster_alias
    if not connected:
        if is_embedded(alias):
            return HealthCheck(OK, "storage", "folders of the embedded cluster, on this machine")
        return HealthCheck(WARN, "storage", "not checked, as the cluster does not answer")
    listing = command("storage.list", alias)
    try:
        place, store = ClusterStorages(settings, client=connected[0]).opened(alias, "0")
        next(iter(store.list("/")), None)
    except PaiError as err:
        return HealthCheck(WARN, "storage", f"{err}; files cannot be uploaded with jobs", listing)
    return HealthCheck(OK, "storage", f"{place.name} ({place.kind}): pai://{alias}/{place.name}/")


def check_image(settings: Settings) -> HealthCheck:
    image = settings.image
    try:
        programs.check_reference(image)
    except ConfigError as err:
        return HealthCheck(FAIL, "image", str(err), command("config.set", "image=python:3"))
    engine = next_engine(settings, embedded.folder())
    if not settings.is_embedded:
        return HealthCheck(OK, "image", f"{image}, which the cluster pulls; not checked")
    if engine == engines.DEFAULT:
        return HealthCheck(OK, "image", f"{image}; jobs on `local` run without it")
    if engine not in engines.PROGRAMS:
        return HealthCheck(OK, "image", f"{image}; not checked")
    if not shutil.which(engine) or not _succeeds(engine, "image", "inspect", image):
        about = f"{image} is not on this machine yet; the first job pulls it"
        return HealthCheck(WARN, "image", about, f"{engine} pull {shlex.quote(image)}")
    return HealthCheck(OK, "image", f"{image}, on this machine")


def _succeeds(*argv: str) -> bool:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=hidden_environment(),
            timeout=ENGINE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
