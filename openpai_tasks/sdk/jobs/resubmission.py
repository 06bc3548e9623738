"""Submit a job again: from the cluster's document with changes, or exactly as it was recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, InvalidOption, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import folding, job_storage, kept_files, ssh_plugin
from openpai_tasks.protocol.document.policy import (
    Dependency,
    JobPolicy,
    add_policy,
    change_dependencies,
    read_policy,
    with_priority,
)
from openpai_tasks.protocol.document.reading import read_request, read_time_limit
from openpai_tasks.protocol.document.shape import first_mismatch
from openpai_tasks.protocol.fields import count, mapping
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.git import Revision
from openpai_tasks.sdk.jobs import documents, lookup, options, provenance, records, updates
from openpai_tasks.sdk.jobs.dependencies import MOST_DEPENDENTS, stopped_dependents
from openpai_tasks.sdk.jobs.outputs import SavedCheckpoint, newest_checkpoint
from openpai_tasks.sdk.jobs.provenance import Origin, Stamp
from openpai_tasks.sdk.jobs.records import Record
from openpai_tasks.sdk.jobs.submission import (
    Submission,
    build_document,
    check_document,
    location_stamp,
    new_name,
    pack_files,
    read_hooks,
)
from openpai_tasks.sdk.jobs.unmasking import Ask, restore_passwords, unmask
from openpai_tasks.storage.job_files.archive import Archive, pack
from openpai_tasks.storage.job_files.sources import collect, runtime_files
from openpai_tasks.storage.job_files.workspace import ARCHIVE
from openpai_tasks.text.hints import option
from openpai_tasks.text.plain import one_line
from openpai_tasks.text.plurals import counted, name_some

LONGEST = 255
COMMIT = re.compile(r"[0-9a-f]{7,64}")

NOT_RENAMED: Mapping[str, str] = MappingProxyType({})
EARLIER_JOBS = 10  # at most, as each resubmission of a resubmission adds one

Document = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Original:
    """A job to repeat: where it ran, its document (masked), its files and its origin."""

    client: Backend
    user: str
    name: str
    document: Document
    origin: Origin
    archive: Archive | None = None
    secrets: tuple[str, ...] = ()  # names; those it uses may be others
    chosen: frozenset[str] = frozenset()  # names that the user chose when it was submitted
    is_exact: bool = False  # by default, it starts fresh
    notes: tuple[str, ...] = ()  # what the user should know about its files

    @property
    def stamp(self) -> Stamp:
        return provenance.read_stamp(self.document)


def repeat(
    source: Backend,
    target: Backend,
    name: str,
    request: JobRequest,
    here: Path,
    is_exact: bool,
    ask: Ask,
    say: Say,
    mounts: Mounts = (),
    edited: Document | None = None,
    resume: bool | None = None,
    with_dependents: bool | None = None,
    renamed: Mapping[str, str] = NOT_RENAMED,
) -> Submission:
    """Build the submission that repeats a job of ``source`` on ``target``, with the request's changes.

    ``edited`` is the job's document as the user has changed it. ``resume`` says whether it continues at the
    last checkpoint of the job; by default it does if it can, unless it repeats the job exactly.
    ``with_dependents`` repeats the jobs that were stopped with it, too; False notes them, None leaves them
    alone. ``renamed`` are the new keys of jobs that it depends on.
    """
    changes = (request.updates, request.priority, request.max_seconds, _given(request.policy))
    if is_exact and (any(changes) or request.gpu is not None):
        raise InvalidOption("exact", "repeats the job as it was; leave it out to change something")
    if is_exact:
        original = original_from_record(source, name, here, say, mounts)
    else:
        original = original_from_cluster(source, name, here, mounts)
    if edited is not None:
        named = str(edited.get("name") or "")
        if named != original.document.get("name") and not request.name:
            request = dataclasses.replace(request, name=named)
        original = dataclasses.replace(original, document=_apply_edits(original, edited))
    request = dataclasses.replace(request, tags=original_tags(source, target, name))
    made = prepare_resubmission(original, target, request, ask, mounts, resume, renamed)
    if with_dependents is None:
        return made
    return add_dependents(source, target, name, made, here, ask, say, mounts, with_dependents)


def add_dependents(
    source: Backend,
    target: Backend,
    name: str,
    made: Submission,
    here: Path,
    ask: Ask,
    say: Say,
    mounts: Mounts = (),
    is_wanted: bool = True,
) -> Submission:
    """Add the user's jobs that were stopped with job ``name`` to its resubmission, or a note about them."""
    try:
        job = lookup.find(source, name)
    except NotFound:  # it was repeated from its record
        return made
    found = stopped_dependents(source, job)
    if not found:
        note = f"{option('with_dependents')} adds nothing: no job was stopped with {job.name}"
        return dataclasses.replace(made, notes=(*made.notes, note)) if is_wanted else made
    if len(found) == MOST_DEPENDENTS:
        note = f"of the jobs that were stopped with {job.name}, only {MOST_DEPENDENTS} are looked at"
        made = dataclasses.replace(made, notes=(*made.notes, note))
    if not is_wanted:
        names = ", ".join(one.name for one in found)
        note = f"not submitted again: {names}, stopped with {job.name}; {option('with_dependents')} adds them"
        return dataclasses.replace(made, notes=(*made.notes, note))
    renamed = {job.key: job_key(target.user, made.name)}
    added: list[Submission] = []
    for one in found:
        how = (JobRequest(), here, False, ask, say, mounts)
        added.append(repeat(source, target, one.key, *how, renamed=renamed))
        renamed[one.key] = job_key(target.user, added[-1].name)
    note = (
        f"then submits {', '.join(one.name for one in added)}, in place of what was stopped with {job.name}"
    )
    return dataclasses.replace(made, notes=(*made.notes, note), dependents=tuple(added))


def choose_start(fresh: bool, resume: bool) -> bool | None:
    """Return whether to resume, from the flags --fresh and --resume; None without either."""
    if fresh and resume:
        raise ConfigError(f"{option('fresh')} and {option('resume')} contradict each other: give one of them")
    return resume if fresh or resume else None


def _apply_edits(original: Original, edited: Document) -> Document:
    """Return the edited document with the passwords that were masked in it, and where its files are."""
    if wrong := first_mismatch(edited):
        raise ConfigError(f"the document is invalid: {wrong} has the wrong type")
    known = {one.get("name"): one for one in original.document.get("prerequisites") or ()}
    document = restore_passwords(edited, known)
    return provenance.put_stamp(document, original.stamp) if original.stamp.storage else document


def original_from_cluster(source: Backend, name: str, here: Path, mounts: Mounts = ()) -> Original:
    """Return the job from the cluster, with the files it was submitted with if they can be read."""
    job, document = documents.job_document(source, name)
    stamp = provenance.read_stamp(document)
    record = records.find_record(here, job.name, source.cluster.alias)
    archive = uploaded_archive(source, job.user, stamp, mounts)
    origin = dataclasses.replace(
        record.origin(here) if record else Origin(here),
        files=archive.files if archive else {},
        revision=Revision(stamp.commit, stamp.dirty),
        cloned_from=stamp.cloned_from or job.name,
    )
    secrets = record.secrets if record else ()
    chosen = records.chosen_secrets(source, job.user, job.name)
    return Original(source, job.user, job.name, document, origin, archive, secrets, chosen)


def original_from_record(source: Backend, name: str, here: Path, say: Say, mounts: Mounts = ()) -> Original:
    """Return the job from the record in this folder, if its files are available; report what is repeated."""
    record = records.find_record(here, name, source.cluster.alias)
    if record is None:
        raise ConfigError(f"job {name!r} cannot be repeated exactly: {_unrecorded(name, here)}")
    document = documents.recorded_document(record)
    archive, notes = _same_files(source, record, provenance.read_stamp(document), here, mounts)
    count = len(archive.members) if archive else 0
    say(f"repeats job {name} of {record.cluster}: its command, its settings{_describe_files(record, count)}")
    origin, user = record.origin(here), record.user
    chosen = records.chosen_secrets(source, user, record.name, record.text)
    return Original(source, user, record.name, document, origin, archive, record.secrets, chosen, True, notes)


def _unrecorded(name: str, here: Path) -> str:
    elsewhere = records.find_record(here, name)
    if elsewhere:
        flag = shlex.join(("-a", one_line(elsewhere.cluster)))
        return f"it was submitted to cluster {elsewhere.cluster!r}; add `{flag}`"
    return f"this folder has no record of it in ./.openpai/jobs; without {option('exact')} it can be cloned"


def prepare_resubmission(
    original: Original,
    target: Backend,
    request: JobRequest,
    ask: Ask,
    mounts: Mounts = (),
    resume: bool | None = None,
    renamed: Mapping[str, str] = NOT_RENAMED,
) -> Submission:
    """Build the submission: a new name, its own files, secrets asked for again, and the request's changes."""
    name = new_name(request.name or f"{original.origin.cloned_from[: LONGEST - 11]}-$", "")
    start = _plan_start(original, target, mounts, resume)
    document, home = _relocate({**original.document, "name": name}, original, target, name, start, mounts)
    if request.priority:
        document = {**document, "extras": with_priority(document.get("extras") or {}, request.priority)}
    if request.ssh_key:
        extras = ssh_plugin.with_key(document.get("extras") or {}, request.ssh_key)
        document = {**document, "extras": extras}
    document = updates.apply_updates(set_gpus(document, request.gpu), request.updates)
    document, notes = _set_policy(document, original, target, request.policy, renamed)
    document = _limit_time(document, request)
    chosen: set[str] = set()

    def secret(name: str) -> str:
        is_chosen = name in request.secrets or name in original.chosen
        chosen.update([name] if is_chosen else ())
        return request.secrets[name] if name in request.secrets else ask(name, is_chosen)

    document = unmask(document, original.secrets, secret)
    text = protocol.dump(document)
    checked = check_document(text, document.get("name") == name)
    return Submission(
        checked.name,
        text,
        original.archive,
        home,
        original.origin,
        tags=request.tags,
        after=checked.policy.after,
        notes=(*original.notes, *notes, *([f"job {checked.name} {start.note}"] if start.note else [])),
        resumes_from=start.checkpoint,
        secrets=tuple(chosen),
        hooks=read_hooks(request),
    )


def _set_policy(
    document: Document, original: Original, target: Backend, given: JobPolicy, renamed: Mapping[str, str]
) -> tuple[Document, list[str]]:
    """Return the document with the given policy, and notes about dependencies that it no longer has.

    Without new dependencies, it keeps those of the original on jobs that the cluster still has.
    """
    notes: list[str] = []

    def keep(one: Dependency) -> Dependency | None:
        key = one.job if "~" in one.job else job_key(original.user, one.job)
        if key in renamed:
            return dataclasses.replace(one, job=renamed[key])
        name = one.job if original.user == target.user else key
        if target.cluster.alias != original.client.cluster.alias:
            notes.append(f"it does not wait for job {one.job}, which is on another cluster")
            return None
        try:
            lookup.find(target, name)
        except NotFound:
            notes.append(f"it does not wait for job {one.job}, which was removed from the cluster")
            return None
        return dataclasses.replace(one, job=name)

    document = change_dependencies(document, (lambda one: None) if given.after else keep)
    return add_policy(document, given), notes


def _limit_time(document: Document, request: JobRequest) -> Document:
    """Return the document with the time limit of the request; what it does not give stays as it was."""
    given, roles = request.policy, [mapping(role) for role in mapping(document.get("taskRoles")).values()]
    options.check_idle_stop(
        given, [count(mapping(role.get("resourcePerInstance")).get("gpu")) for role in roles]
    )
    if not (request.max_seconds or given.requeues or given.grace):
        return document
    policy = read_policy(mapping(document.get("extras")))
    for role in roles:
        seconds = request.max_seconds or read_time_limit(role)
        options.check_time_limit(seconds, policy.requeues, policy.grace)
    try:
        return folding.limit_time(document, request.max_seconds, policy.requeues, policy.grace)
    except ValueError as err:
        raise InvalidOption("max_time", str(err)) from None


def repeat_with_request(
    client: Backend,
    name: str,
    request: JobRequest,
    here: Path,
    records_folder: Path,
    mounts: Mounts = (),
    resume: bool | None = None,
) -> Submission:
    """Build the submission of a job that the request describes anew, with the files of an earlier job.

    Sources of the request, in the folder ``here``, replace those of the job.
    """
    original = original_from_cluster(client, name, records_folder, mounts)
    stamp, archive = original.stamp, None if request.sources else original.archive
    if stamp.source_folder and not archive and not request.sources:
        raise ConfigError(f"the sources of job {original.name!r} cannot be read: submit its document instead")
    start = _plan_start(original, client, mounts, resume)
    known, _ = read_request(original.document)
    request = dataclasses.replace(
        request,
        name=new_name(request.name or f"{original.origin.cloned_from[: LONGEST - 11]}-$", ""),
        role=known.role,
        ports=known.ports,
        extras={key: value for key, value in known.extras.items() if key != provenance.STAMP},
        policy=dataclasses.replace(known.policy, **_given(request.policy), after=request.policy.after),
        workspace=stamp.workspace or request.workspace,
    )
    request, files = pack_files(client, request, here, mounts, archive=archive)
    before = original.origin
    origin = dataclasses.replace(files.origin, folder=before.folder, cloned_from=before.cloned_from)
    if archive:
        origin = dataclasses.replace(origin, sources=before.sources, revision=before.revision)
    made = build_document(request, dataclasses.replace(files, origin=origin))
    text = protocol.dump(with_earlier_jobs(made, start.earlier))
    checked = check_document(text, True)
    return Submission(
        checked.name,
        text,
        files.archive,
        files.home,
        origin,
        tags=request.tags,
        after=checked.policy.after,
        notes=(f"job {request.name} {start.note}",) if start.note else (),
        resumes_from=start.checkpoint,
        secrets=tuple(request.secrets),
        hooks=read_hooks(request),
    )


def _given(policy: JobPolicy) -> dict[str, Any]:
    """Return what the policy asks for, by field, without its dependencies."""
    return {name: value for name, value in vars(policy).items() if value and name != "after"}


@dataclass(frozen=True)
class Start:
    """How a resubmitted job starts."""

    earlier: tuple[str, ...] = ()
    """The jobs whose checkpoints it finds."""
    checkpoint: SavedCheckpoint | None = None
    """Where it resumes; None if it starts fresh, or if the checkpoints cannot be read from here."""
    note: str = ""
    """What the user should know; empty if there are no checkpoints."""


def _plan_start(original: Original, target: Backend, mounts: Mounts, resume: bool | None) -> Start:
    """Decide how a resubmission on ``target`` starts; by default it resumes, unless it repeats exactly."""
    name, leave_out = original.name, f"leave out {option('resume')}"
    if not original.stamp.storage:  # not made by us: nothing is known of its files
        if resume:
            raise ConfigError(f"job {name!r} has no checkpoints to resume from; {leave_out}")
        return Start()
    why_not = ""
    if not _has_same_storage(original, target):
        source, there = original.client.cluster.alias, target.cluster.alias
        why_not = f"the files of {original.user} on {source} are not those of {target.user} on {there}"
    if resume and why_not:
        raise ConfigError(f"cannot resume from a checkpoint of job {name!r}: {why_not}; {leave_out}")
    wants = not original.is_exact if resume is None else resume
    earlier = (name, *earlier_jobs(original.document)) if wants and not why_not else ()
    fresh = f"{option('fresh')} starts from the beginning"
    try:
        found = find_checkpoint(original.client, original.user, name, original.document, mounts)
    except PaiError:
        unread = "if there is one: the storage cannot be read from here"
        note = f"resumes from the last checkpoint of job {name} {unread}; {fresh}"
        return Start(earlier, note=note if earlier else "")
    if found is None:
        if resume:
            raise ConfigError(f"job {name!r} has saved no checkpoint to resume from; {leave_out}")
        return Start(earlier)  # it may still save one
    if earlier:
        return Start(earlier, found, f"resumes from {found}; {fresh}")
    if why_not:
        return Start(note=f"starts fresh, without {found}: {why_not}")
    hint = "" if resume is False else f"; {option('resume')} continues there"
    return Start(note=f"starts fresh, without {found}, which is kept{hint}")


def find_checkpoint(
    client: Backend, user: str, name: str, document: Document, mounts: Mounts = ()
) -> SavedCheckpoint | None:
    """Return the checkpoint at which a resubmission of this job would resume, if there is one."""
    stamp = provenance.read_stamp(document)
    if not stamp.storage or not keeps_output(document):
        return None
    home = job_folders.at(client, stamp.storage, stamp.workspace, user, mounts)
    return newest_checkpoint(home, [name, *earlier_jobs(document)])


def _has_same_storage(original: Original, target: Backend) -> bool:
    """Whether the new job has the storage of the old one."""
    return target.cluster.alias == original.client.cluster.alias and target.user == original.user


def _relocate(
    document: Document, original: Original, target: Backend, name: str, start: Start, mounts: Mounts
) -> tuple[Document, Home | None]:
    """Return the document for the new job, and the folder of its files."""
    stamp = dataclasses.replace(original.stamp, cloned_from=original.origin.cloned_from)
    if not stamp.storage:  # not made by us: nothing is known of its files
        return document, None
    document = with_earlier_jobs(document, start.earlier)
    stays = _has_same_storage(original, target)
    if stamp.source_folder and not original.archive:
        if not stays:
            raise ConfigError(
                f"the sources of job {original.name!r} cannot be read, so it cannot run on another cluster"
            )
        return provenance.put_stamp(document, stamp), None  # it takes them from where they are
    if stays:
        home = job_folders.at(target, stamp.storage, stamp.workspace, target.user, mounts)
    else:
        home = job_folders.require_home(target, "", mounts)
    there, archive = location_stamp(home, name, original.archive), original.archive
    after = dataclasses.replace(
        stamp,
        storage=there.storage,
        workspace=there.workspace,
        source_folder=there.source_folder,
        source_archive=there.source_archive,
        source_hash=original.origin.source_hash or stamp.source_hash,
    )
    return relocate(document, home.seen, archive.sha256 if archive else "", after), home


def uploaded_archive(client: Backend, user: str, stamp: Stamp, mounts: Mounts = ()) -> Archive | None:
    """Return the job's archive of sources from the storage; None if it cannot be read."""
    named = ARCHIVE.fullmatch(stamp.source_archive.rpartition("/")[2])
    if not named:
        return None
    try:
        return job_folders.at(client, stamp.storage, stamp.workspace, user, mounts).files.read(named[1])
    except PaiError:
        return None


def _same_files(
    source: Backend, record: Record, stamp: Stamp, here: Path, mounts: Mounts
) -> tuple[Archive | None, tuple[str, ...]]:
    """Return files with the recorded hashes, and notes: from the storage, else from this machine."""
    if not record.files:
        return None, ()
    sent = uploaded_archive(source, record.user, stamp, mounts)
    if sent and sent.files == record.files:
        return sent, ()
    now: dict[str, str] = {}
    with contextlib.suppress(PaiError):
        collected = collect(record.sources, here)
        found = pack([*collected.files, *runtime_files()])
        now = found.files
        if now == record.files:
            return found, collected.notes
    raise ConfigError(_describe_changes(record, now))


def _describe_changes(record: Record, now: dict[str, str]) -> str:
    names = sorted(name for name in {*record.files, *now} if record.files.get(name) != now.get(name))
    examples = name_some(names, 3)
    if record.dirty:
        back = f"its tree had uncommitted changes on top of {record.commit[:12]}, so git cannot restore them"
    elif COMMIT.fullmatch(record.commit):
        back = f"`git checkout {record.commit[:12]}` may restore them"
    else:
        back = "it was not submitted from a git commit"
    return f"job {record.name!r} cannot be repeated exactly: its sources differ now ({examples}); {back}"


def _describe_files(record: Record, count: int) -> str:
    files = f", {counted(count, 'file')} ({record.source_hash[:19]})" if count else ", no files"
    if not record.commit:
        return f"{files}; it has no git commit"
    dirty = "; the tree had uncommitted changes, of which only those files are repeated"
    return f"{files}; commit {record.commit[:12]}{dirty if record.dirty else ''}"


def set_gpus(document: Document, gpu: int | None) -> Document:
    """Set the GPUs per task: of the only role, or of the roles that have GPUs."""
    if gpu is None:
        return document
    roles = document["taskRoles"]
    chosen = [
        name for name, role in roles.items() if len(roles) == 1 or role["resourcePerInstance"].get("gpu")
    ]
    if not chosen:
        hint = f"-u taskRoles.{next(iter(roles))}.resourcePerInstance.gpu={gpu}"
        raise ConfigError(f"no role of the job has GPUs (it has: {', '.join(roles)}); choose one: {hint}")
    _check_skus(document, chosen)
    changes = [(f"taskRoles:{name}:resourcePerInstance:gpu", gpu) for name in chosen]
    return updates.apply_updates(document, changes)


def _check_skus(document: Document, chosen: Sequence[str]) -> None:
    """Raise for roles whose GPUs HiveD assigns by SKU: it ignores the GPUs that the role requests."""
    hived = (document.get("extras") or {}).get("hivedScheduler")
    by_sku = hived.get("taskRoles") if isinstance(hived, dict) else None
    for name in chosen:
        if isinstance(by_sku, dict) and (by_sku.get(name) or {}).get("skuNumber"):
            path = f"extras.hivedScheduler.taskRoles.{name}.skuNumber"
            instead = f"change {option('update')} {path}=N instead"
            raise InvalidOption("gpu", f": role {name!r} gets its GPUs by SKU; {instead}")


def original_tags(source: Backend, target: Backend, name: str) -> tuple[str, ...]:
    """Return the tags of the original, if both clusters support tags and the job still exists."""
    if not (source.capabilities.tags and target.capabilities.tags):
        return ()
    with contextlib.suppress(NotFound):
        return lookup.find(source, name).tags
    return ()


# The document on another storage: how it fetches sources and saves outputs


def relocate(document: Document, home: job_storage.Home, archive: str, stamp: Stamp) -> Document:
    """Replace the steps, commands, storages and stamp by those for the new storage."""

    def step(command: str) -> str:
        if job_storage.is_output(command):
            return home.output(kept_files.read_mark(command))
        return home.fetch(archive) if job_storage.is_fetch(command) else command

    patterns = kept_patterns(document)
    roles = {
        name: {**role, "commands": home.around(job_storage.unwrap(role["commands"]), patterns)}
        for name, role in document["taskRoles"].items()
    }
    moved = {**_change_steps(document, lambda steps: list(map(step, steps))), "taskRoles": roles}
    return provenance.put_stamp({**moved, "extras": _extras(document, home)}, stamp)


def earlier_jobs(document: Document) -> list[str]:
    """Return the jobs whose checkpoints the job finds, the latest first."""
    return next((jobs for jobs in map(job_storage.read_earlier, _all_steps(document)) if jobs), [])


def keeps_output(document: Document) -> bool:
    """Whether the job has an output folder, and so can find checkpoints of other jobs."""
    return any(map(job_storage.is_output, _all_steps(document)))


def with_earlier_jobs(document: Document, jobs: Sequence[str]) -> Document:
    """Let the job find the checkpoints of these jobs and of no others."""

    def changed(steps: list[str]) -> list[str]:
        others = [step for step in steps if job_storage.read_earlier(step) is None]
        at = next((at for at, step in enumerate(others) if job_storage.is_output(step)), None)
        if at is None or not jobs:
            return others
        return [*others[:at], job_storage.earlier_step(jobs[:EARLIER_JOBS]), *others[at:]]

    return _change_steps(document, changed)


def _change_steps(document: Document, change: Callable[[list[str]], list[str]]) -> Document:
    """Change the commands that run before the job's, in every deployment."""

    def change_role(role: Any) -> Any:
        if not isinstance(role, dict) or not role.get("preCommands"):
            return role
        return {**role, "preCommands": change(role["preCommands"])}

    if not document.get("deployments"):
        return document
    deployments = [
        {**one, "taskRoles": {name: change_role(role) for name, role in one["taskRoles"].items()}}
        for one in document["deployments"]
    ]
    return {**document, "deployments": deployments}


def kept_patterns(document: Document) -> tuple[str, ...]:
    """Return the patterns of files that the job keeps."""
    steps = _all_steps(document)
    return next((kept_files.read_mark(step) for step in steps if job_storage.is_output(step)), ())


def _all_steps(document: Document) -> list[str]:
    roles = [role for one in document.get("deployments") or () for role in one["taskRoles"].values()]
    return [step for role in roles if isinstance(role, dict) for step in role.get("preCommands") or ()]


def _extras(document: Document, home: job_storage.Home) -> Document:
    """Return the extras with the new storage instead of the old stamp's, or with none if none is mounted."""
    extras = document.get("extras") or {}
    before = provenance.read_stamp(document).storage
    wanted = home.storage if isinstance(home, job_storage.MountedFolder) else None
    found = [item for item in extras.get("storages") or () if item != {"name": before}]
    if wanted and {"name": wanted} not in found:
        found.insert(0, {"name": wanted})
    rest = {name: value for name, value in extras.items() if name != "storages"}
    return {**rest, "storages": found} if found else rest
