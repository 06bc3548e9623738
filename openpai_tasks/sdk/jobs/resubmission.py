"""Submit a job again: from the cluster's document with changes, or exactly as it was recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, InvalidOption, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.shape import first_mismatch
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.git import Revision
from openpai_tasks.sdk.jobs import chosen_secrets, documents, lookup, provenance, records, relocation, updates
from openpai_tasks.sdk.jobs.outputs import SavedCheckpoint, newest_checkpoint
from openpai_tasks.sdk.jobs.provenance import Origin, Stamp
from openpai_tasks.sdk.jobs.records import Record
from openpai_tasks.sdk.jobs.submission import Submission, check_document, location_stamp, new_name
from openpai_tasks.sdk.jobs.unmasking import Ask, restore_passwords, unmask
from openpai_tasks.storage.job_files.archive import Archive, pack
from openpai_tasks.storage.job_files.sources import collect, runtime_files
from openpai_tasks.storage.job_files.workspace import ARCHIVE
from openpai_tasks.text.hints import option
from openpai_tasks.text.plain import one_line
from openpai_tasks.text.plurals import counted

LONGEST = 255
COMMIT = re.compile(r"[0-9a-f]{7,64}")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Original:
    """A job to repeat: where it ran, its document (masked), its files and its origin."""

    client: Backend
    user: str
    name: str
    document: dict[str, Any]
    origin: Origin
    archive: Archive | None = None
    secrets: tuple[str, ...] = ()  # names; those it uses may be others
    chosen: frozenset[str] = frozenset()  # names that the user chose when it was submitted
    is_exact: bool = False  # by default, it starts fresh

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
    edited: dict[str, Any] | None = None,
    resume: bool | None = None,
) -> Submission:
    """Build the submission that repeats a job of ``source`` on ``target``, with the request's changes.

    ``edited`` is the job's document as the user has changed it. ``resume`` says whether it continues at the
    last checkpoint of the job; by default it does if it can, unless it repeats the job exactly.
    """
    original = find_original(source, name, here, request, is_exact, say, mounts)
    if edited is not None:
        named = str(edited.get("name") or "")
        if named != original.document.get("name") and not request.name:
            request = dataclasses.replace(request, name=named)
        original = dataclasses.replace(original, document=_apply_edits(original, edited))
    request = dataclasses.replace(request, tags=original_tags(source, target, name))
    return prepare_resubmission(original, target, request, ask, mounts, resume)


def choose_start(fresh: bool, resume: bool) -> bool | None:
    """Return whether to resume, from the flags --fresh and --resume; None without either."""
    if fresh and resume:
        raise ConfigError(f"{option('fresh')} and {option('resume')} contradict each other: give one of them")
    return resume if fresh or resume else None


def _apply_edits(original: Original, edited: dict[str, Any]) -> dict[str, Any]:
    """Return the edited document with the passwords that were masked in it, and where its files are."""
    if wrong := first_mismatch(edited):
        raise ConfigError(f"the document is invalid: {wrong} has the wrong type")
    known = {one.get("name"): one for one in original.document.get("prerequisites") or ()}
    document = restore_passwords(edited, known)
    return provenance.put_stamp(document, original.stamp) if original.stamp.storage else document


def find_original(
    source: Backend, name: str, here: Path, request: JobRequest, is_exact: bool, say: Say, mounts: Mounts = ()
) -> Original:
    """Return the job to repeat, from the cluster or from the record."""
    if not is_exact:
        return original_from_cluster(source, name, here, mounts)
    if request.updates or request.gpu is not None:
        raise InvalidOption("exact", "repeats the job as it was; leave it out to change something")
    return original_from_record(source, name, here, say, mounts)


def original_from_cluster(source: Backend, name: str, here: Path, mounts: Mounts = ()) -> Original:
    """Return the job from the cluster, with the files it was submitted with if they can be read."""
    job, document = documents.job_document(source, name)
    stamp = provenance.read_stamp(document)
    record = records.find_record(here, job.name, source.cluster.alias)
    archive = uploaded_archive(source, job.user, stamp, mounts)
    origin = Origin(
        here,
        command=record.command if record else "",
        sources=record.sources if record else (),
        files=archive.files if archive else {},
        settings=record.settings if record else {},
        revision=Revision(stamp.commit, stamp.dirty),
        cloned_from=stamp.cloned_from or job.name,
    )
    secrets = record.secrets if record else ()
    chosen = chosen_secrets.load(source, job.user, job.name)
    return Original(source, job.user, job.name, document, origin, archive, secrets, chosen)


def original_from_record(source: Backend, name: str, here: Path, say: Say, mounts: Mounts = ()) -> Original:
    """Return the job from the record in this folder, if its files are available; report what is repeated."""
    record = records.find_record(here, name, source.cluster.alias)
    if record is None:
        raise ConfigError(f"job {name!r} cannot be repeated exactly: {_unrecorded(name, here)}")
    document = documents.recorded_document(record)
    archive = _same_files(source, record, provenance.read_stamp(document), here, mounts)
    count = len(archive.members) if archive else 0
    say(f"repeats job {name} of {record.cluster}: its command, its settings{_describe_files(record, count)}")
    origin = Origin(
        here,
        record.command,
        record.sources,
        record.files,
        record.settings,
        record.revision,
        record.cloned_from or name,
    )
    chosen = chosen_secrets.load(source, record.user, record.name, record.text)
    return Original(source, record.user, record.name, document, origin, archive, record.secrets, chosen, True)


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
) -> Submission:
    """Build the submission: a new name, its own files, secrets asked for again, and the request's changes."""
    name = new_name(request.name or f"{original.origin.cloned_from[: LONGEST - 11]}-$", "")
    start = _plan_start_on(original, target, mounts, resume)
    document, home = _relocate({**original.document, "name": name}, original, target, name, start, mounts)
    document = updates.apply_updates(set_gpus(document, request.gpu), request.updates)
    chosen: set[str] = set()

    def secret(name: str) -> str:
        is_chosen = name in request.secrets or name in original.chosen
        chosen.update([name] if is_chosen else ())
        return request.secrets[name] if name in request.secrets else ask(name, is_chosen)

    document = unmask(document, original.secrets, secret)
    text = protocol.dump(document)
    named = check_document(text, document.get("name") == name)
    return Submission(
        named,
        text,
        original.archive,
        home,
        original.origin,
        tags=request.tags,
        after=request.after,
        notes=(f"job {named} {start.note}",) if start.note else (),
        resumes_from=start.checkpoint,
        secrets=tuple(chosen),
    )


@dataclass(frozen=True)
class Start:
    """How a resubmitted job starts."""

    earlier: tuple[str, ...] = ()
    """The jobs whose checkpoints it finds."""
    checkpoint: SavedCheckpoint | None = None
    """Where it resumes; None if it starts fresh, or if the checkpoints cannot be read from here."""
    note: str = ""
    """What the user should know; empty if there are no checkpoints."""


def plan_start(
    find: Callable[[], SavedCheckpoint | None],
    jobs: Sequence[str],
    why_not: str,
    is_default: bool,
    resume: bool | None,
) -> Start:
    """Decide how a resubmission of ``jobs[0]``, which had continued the other jobs, starts.

    ``find`` returns the newest checkpoint of these jobs. ``why_not`` is the reason if the new job cannot read
    them, else empty. ``is_default`` says whether to resume if ``resume`` is None.
    """
    name, wants = jobs[0], is_default if resume is None else resume
    if resume and why_not:
        raise ConfigError(
            f"cannot resume from a checkpoint of job {name!r}: {why_not}; leave out {option('resume')}"
        )
    earlier = tuple(jobs) if wants and not why_not else ()
    try:
        found = find()
    except PaiError:
        note = f"resumes from the last checkpoint of job {name} if there is one: the storage cannot be read"
        return Start(
            earlier, note=f"{note} from here; {option('fresh')} starts from the beginning" if earlier else ""
        )
    if found is None:
        if resume:
            raise ConfigError(
                f"job {name!r} has saved no checkpoint to resume from; leave out {option('resume')}"
            )
        return Start(earlier)  # it may still save one
    if earlier:
        return Start(earlier, found, f"resumes from {found}; {option('fresh')} starts from the beginning")
    if why_not:
        return Start(note=f"starts fresh, without {found}: {why_not}")
    hint = "" if resume is False else f"; {option('resume')} continues there"
    return Start(note=f"starts fresh, without {found}, which is kept{hint}")


def _plan_start_on(original: Original, target: Backend, mounts: Mounts, resume: bool | None) -> Start:
    """Return how a resubmission of this job on ``target`` starts."""
    if not original.stamp.storage:  # not made by us: nothing is known of its files
        if resume:
            raise ConfigError(
                f"job {original.name!r} has no checkpoints to resume from; leave out {option('resume')}"
            )
        return Start()
    jobs = [original.name, *relocation.earlier_jobs(original.document)]
    find = partial(find_checkpoint, original.client, original.user, original.name, original.document, mounts)
    source, there = original.client.cluster.alias, target.cluster.alias
    elsewhere = f"the files of {original.user} on {source} are not those of {target.user} on {there}"
    why_not = "" if _has_same_storage(original, target) else elsewhere
    return plan_start(find, jobs, why_not, not original.is_exact, resume)


def find_checkpoint(
    client: Backend, user: str, name: str, document: dict[str, Any], mounts: Mounts = ()
) -> SavedCheckpoint | None:
    """Return the checkpoint at which a resubmission of this job would resume, if there is one."""
    stamp = provenance.read_stamp(document)
    if not stamp.storage or not relocation.keeps_output(document):
        return None
    home = job_folders.at(client, stamp.storage, stamp.workspace, user, mounts)
    return newest_checkpoint(home, [name, *relocation.earlier_jobs(document)])


def _has_same_storage(original: Original, target: Backend) -> bool:
    """Whether the new job has the storage of the old one."""
    return target.cluster.alias == original.client.cluster.alias and target.user == original.user


def _relocate(
    document: dict[str, Any], original: Original, target: Backend, name: str, start: Start, mounts: Mounts
) -> tuple[dict[str, Any], Home | None]:
    """Return the document for the new job, and the folder of its files."""
    stamp = dataclasses.replace(original.stamp, cloned_from=original.origin.cloned_from)
    if not stamp.storage:  # not made by us: nothing is known of its files
        return document, None
    document = relocation.with_earlier_jobs(document, start.earlier)
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
    return relocation.relocate(document, home.seen, archive.sha256 if archive else "", after), home


def uploaded_archive(client: Backend, user: str, stamp: Stamp, mounts: Mounts = ()) -> Archive | None:
    """Return the job's archive of sources from the storage; None if it cannot be read."""
    named = ARCHIVE.fullmatch(stamp.source_archive.rpartition("/")[2])
    if not named:
        return None
    try:
        return job_folders.at(client, stamp.storage, stamp.workspace, user, mounts).files.read(named[1])
    except PaiError:
        return None


def _same_files(source: Backend, record: Record, stamp: Stamp, here: Path, mounts: Mounts) -> Archive | None:
    """Return files with the recorded hashes: from the storage, else from this machine."""
    if not record.files:
        return None
    sent = uploaded_archive(source, record.user, stamp, mounts)
    if sent and sent.files == record.files:
        return sent
    now: dict[str, str] = {}
    with contextlib.suppress(PaiError):
        found = pack([*collect(record.sources, here), *runtime_files()])
        now = found.files
        if now == record.files:
            return found
    raise ConfigError(_describe_changes(record, now))


def _describe_changes(record: Record, now: dict[str, str]) -> str:
    names = sorted(name for name in {*record.files, *now} if record.files.get(name) != now.get(name))
    examples = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
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


def set_gpus(document: dict[str, Any], gpu: int | None) -> dict[str, Any]:
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


def _check_skus(document: dict[str, Any], chosen: Sequence[str]) -> None:
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
