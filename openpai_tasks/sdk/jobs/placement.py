"""Choose the cluster for a new job: the one that can start it now, else the one with the shortest queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import field

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend, Say, VirtualCluster, unsupported
from openpai_tasks.backends.kinds import KINDS
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.job import JobDocument
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.states import WAITING
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.jobs import submission, updates
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.settings.config import BUILT_IN, Settings
from openpai_tasks.settings.engines import DEFAULT_IMAGES
from openpai_tasks.settings.registry import ANY, LOCAL, is_embedded
from openpai_tasks.storage.store import Mounts
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

FITS, WAITS, CANNOT, UNREACHABLE, STOPPED = "fits now", "would wait", "cannot", "no answer", "not running"
LONGEST_SECONDS = 10.0  # for the answers of a cluster
NAMES = {"gpu": "GPU", "cpu": "CPU", "memoryMB": "MB of memory"}


@dataclass(frozen=True)
class Demand:
    """What a job needs of a cluster."""

    text: str = field(repr=False)
    """Its document, complete but for its files."""
    has_files: bool = False
    workspace: str = ""
    mounts: Mounts = ()
    abilities: tuple[str, ...] = ()  # names of capabilities
    gpu_type: str = ""


@dataclass(frozen=True)
class Fit:
    """Whether a cluster can start a job now, and why."""

    cluster: str
    fits: str
    why: str
    waiting: int | None = None  # jobs that wait there


Describe = Callable[[str], Demand]
"""Returns what the job needs on the cluster with that alias, whose defaults may differ."""


def demand_of(
    request: JobRequest, mounts: Mounts = (), has_files: bool = False, gpu_type: str = "", ssh: bool = False
) -> Demand:
    """Return what a request needs; its secrets may be missing."""
    name = submission.new_name(request.name, request.command)
    made = protocol.build_document(dataclasses.replace(request, name=name))
    text = protocol.dump(updates.apply_updates(made, request.updates))
    abilities = (*(["ssh"] if ssh or request.ssh_key else []), *(["tags"] if request.tags else []))
    abilities += ("kept_failures",) if request.policy.keep_failed else ()
    files = has_files or bool(request.sources or request.outputs)
    return Demand(text, files, request.workspace, mounts, abilities, gpu_type)


def choose_cluster(settings: Settings, describe: Describe, say: Say) -> str:
    """Return the cluster that can start the job now, else the one with the shortest queue; say why."""
    if any(one.alias == ANY for one in clusters.open_registry(settings).clusters()):
        rename = command("cluster.edit")
        say(f"note: {ANY!r} is the alias of one of your clusters; rename it (`{rename}`) to choose any")
        return ANY
    aliases = _candidates(settings)
    found = _ask_all(settings, aliases, describe, say)
    if all(one.fits != FITS for one in found) and (idle := [one for one in found if one.fits == STOPPED]):
        started = _ask(settings, idle[0].cluster, describe(idle[0].cluster), say, starts=True)
        found = [started if one is idle[0] else one for one in found]
    fitting = [one for one in found if one.fits == FITS]
    queues = sorted((one for one in found if one.fits == WAITS), key=lambda one: one.waiting or 0)
    if not (fitting or queues):
        reasons = "; ".join(f"{one.cluster}: {one.why}" for one in found)
        raise ConfigError(f"none of your clusters can run it ({reasons})")
    for one in found:
        if one.fits == UNREACHABLE:
            say(f"not cluster {one.cluster}: {one.why}")
    best = (fitting or queues)[0]
    how = "can start it now" if fitting else "has the shortest queue of those that can run it"
    jobs = command("job.list", "-a", best.cluster)
    say(f"cluster {best.cluster} {how}: {best.why}; `{jobs}` shows its jobs")
    return best.cluster


def list_fits(settings: Settings, alias: str | None, describe: Describe, say: Say) -> list[Fit]:
    """Return for the named cluster, or for each that may be chosen, whether it can start a job now."""
    if alias:
        clusters.open_registry(settings).get(alias)
    return _ask_all(settings, [alias] if alias else _candidates(settings), describe, say)


def _candidates(settings: Settings) -> list[str]:
    """Return the clusters that may be chosen: the selected one first, the embedded one last.

    The user and the project may each limit them, so a project never adds one.
    """
    known = [one.alias for one in clusters.open_registry(settings).clusters() if one.kind in KINDS]
    selected = settings.cluster_alias if settings.origins.get("cluster-alias", BUILT_IN) != BUILT_IN else ""
    found = sorted(dict.fromkeys([*known, LOCAL]), key=lambda alias: alias != selected)
    for allowed in (settings.own("any-clusters"), settings.any_clusters):
        found = [alias for alias in found if not allowed or alias in allowed]  # type: ignore[operator]
    if not found:
        raise ConfigError("the setting any-clusters leaves no cluster that you know")
    return found


def _ask_all(settings: Settings, aliases: list[str], describe: Describe, say: Say) -> list[Fit]:
    demands = {alias: describe(alias) for alias in aliases}
    seconds = min(LONGEST_SECONDS, settings.http_timeout)
    return map_parallel(
        lambda alias: _ask(settings, alias, demands[alias], say),
        aliases,
        seconds,
        lambda alias: Fit(alias, UNREACHABLE, f"no answer within {seconds:g} s"),
    )


def _ask(settings: Settings, alias: str, demand: Demand, say: Say, starts: bool = False) -> Fit:
    if is_embedded(alias) and not starts and not embedded.running():
        return Fit(alias, STOPPED, "it starts with the first job")
    try:
        client = clusters.connect(settings, alias, say)
        there = client.virtual_clusters()
    except PaiError as err:
        return Fit(alias, UNREACHABLE, str(err))
    try:
        return _fit(client, demand, there)
    except PaiError as err:
        return Fit(alias, CANNOT, str(err))


def _fit(client: Backend, demand: Demand, there: dict[str, VirtualCluster]) -> Fit:
    alias, document = client.cluster.alias, protocol.validate(demand.text)
    for ability in demand.abilities:
        if not getattr(client.capabilities, ability):
            raise unsupported(client, ability)
    submission.check_job(client, demand.text)
    name = _virtual_cluster(client, document, there)
    part = there[name]
    if not part.runs_images and (image := next(iter(_images(document)), "")):
        return Fit(alias, CANNOT, f"its jobs run without their image, and {image} is asked for")
    short = [*_short_of(document, demand, part, name)]
    for is_final, why in short:
        if is_final:
            return Fit(alias, CANNOT, why)
    _check_storage(client, demand, document)
    waiting = client.count_jobs(WAITING)[WAITING]
    if short:
        return Fit(alias, WAITS, f"{short[0][1]}; {counted(waiting, 'job')} waiting", waiting)
    return Fit(alias, FITS, _free(document, part, name), waiting)


def _virtual_cluster(client: Backend, document: JobDocument, there: dict[str, VirtualCluster]) -> str:
    """Return the virtual cluster of the job; raise if the user has none of that name."""
    allowed = [name for name in client.cluster.virtual_clusters if name in there] or list(there)
    wanted = document.virtual_cluster
    if wanted not in allowed and not mapping(document.data.get("defaults")).get("virtualCluster"):
        wanted = allowed[0] if len(allowed) == 1 else wanted  # a cluster without a default one
    if wanted not in allowed:
        raise ConfigError(
            f"no virtual cluster {wanted!r} for you (there are: {', '.join(allowed) or 'none'})"
        )
    return wanted


def _images(document: JobDocument) -> list[str]:
    return [role.image for role in document.roles if role.image and role.image not in DEFAULT_IMAGES]


def _asked(document: JobDocument) -> dict[str, int]:
    """Return what must be free at once, of each resource."""
    tasks = [(role.instances if document.gang else 1, role) for role in document.roles]
    total = sum if document.gang else max  # without gang allocation, it can start with one task
    return {
        "gpu": total(count * role.gpu for count, role in tasks),
        "cpu": total(count * role.cpu for count, role in tasks),
        "memoryMB": total(count * role.memory_mb * role.is_memory_asked for count, role in tasks),
    }


def _short_of(
    document: JobDocument, demand: Demand, part: VirtualCluster, name: str
) -> Iterator[tuple[bool, str]]:
    """Yield each reason why the job cannot start now, and whether it never can."""
    asked = _asked(document)
    for kind, amount in asked.items():
        have = part.capacity(kind)
        if have.usable is None or not amount:
            continue
        words = f"it asks for {_amount(amount, kind)}"
        if amount > have.usable:
            yield True, f"{words}, and virtual cluster {name} has {have.usable:g}"
        elif amount > (free := max(0, have.usable - (have.used or 0))):
            yield False, f"{words}, and {free:g} of {have.usable:g} are free"
    types = {demand.gpu_type, *(role.sku_type for role in document.roles if role.gpu)} - {""}
    for kind in sorted(types):
        if not part.gpu_types:
            yield False, f"it does not report the types of its GPUs, so {kind} may be missing"
        elif asked["gpu"] > part.gpu_types.get(kind, 0):
            has = ", ".join(f"{count:g} {one}" for one, count in part.gpu_types.items())
            yield True, f"it asks for {_amount(asked['gpu'], 'gpu')} of type {kind}, and there are {has}"
        elif part.free_gpus and asked["gpu"] > (free := part.free_gpus.get(kind, 0)):
            yield False, f"it asks for {_amount(asked['gpu'], 'gpu')} of type {kind}, and {free:g} are free"


def _amount(amount: int, kind: str) -> str:
    return f"{amount} {NAMES[kind]}" if kind == "memoryMB" else counted(amount, NAMES[kind])


def _free(document: JobDocument, part: VirtualCluster, name: str) -> str:
    """Return how much is free of what matters most."""
    kind = "gpu" if _asked(document)["gpu"] else "cpu"
    have = part.capacity(kind)
    if have.usable is None:
        return f"virtual cluster {name} accepts it"
    free = max(0, have.usable - (have.used or 0))
    return f"{free:g} of {have.usable:g} {NAMES[kind]}s are free in {name}"


def _check_storage(client: Backend, demand: Demand, document: JobDocument) -> None:
    """Raise if the storages of the job are missing, or this machine cannot reach the one for its files."""
    if document.storages:
        granted = {one.name for one in client.storages()}
        for mount in document.storages:
            if mount.name not in granted:
                raise ConfigError(f"no storage {mount.name!r} for you")
    if demand.has_files:
        home = job_folders.require_home(client, demand.workspace, demand.mounts)
        home.store.stat(home.path)
