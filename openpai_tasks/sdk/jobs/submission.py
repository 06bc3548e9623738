"""Submit a request or a job file: exactly one job, whatever happens to the connection."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import secrets
import string
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend, Say, VirtualCluster, require, unsupported
from openpai_tasks.errors import (
    ApiError,
    Conflict,
    InvalidOption,
    NotFound,
    PaiError,
    PathError,
    ProtocolError,
    TooManyRequests,
    Unreachable,
)
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.hooks.hook import JobHooks, parse
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, JobRequest, Problem
from openpai_tasks.protocol.document.job_storage import MountedFolder
from openpai_tasks.protocol.document.policy import KEY as POLICY
from openpai_tasks.protocol.document.policy import Dependency, JobPolicy, add_policy
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.problems import refusal
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.clusters.inactive_python import describe_inactive
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.jobs import notifying, provenance, records, updates
from openpai_tasks.sdk.jobs.dependencies import check_dependencies
from openpai_tasks.sdk.jobs.documents import as_v1, fold_text, without_comments
from openpai_tasks.sdk.jobs.polling import is_outage, retry_during_outage
from openpai_tasks.sdk.jobs.provenance import Origin, Stamp, add_stamp
from openpai_tasks.sdk.known_names import note_jobs
from openpai_tasks.storage.job_files.sources import SourceFile, collect, runtime_files
from openpai_tasks.storage.job_files.workspace import NO_ARCHIVE, Reference, relative
from openpai_tasks.text.hints import command
from openpai_tasks.text.plain import one_line

NO_VIRTUAL_CLUSTER = ("ForbiddenUserError", "NoVirtualClusterError")
"""How servers refuse a job for a virtual cluster that does not exist."""
NO_STORAGE = "NoStorageError"
"""How servers refuse a job for a storage that they do not grant."""
PAUSES = (0.0, 0.5, 1.5, 3.0)
"""Seconds before each look for a job whose submission got no clear answer."""
LONGEST_SECONDS = 30.0  # to look on a cluster that does not answer
TRIES = 3  # to submit one of many jobs
LACKING = (
    ("gpu", "gpu", ("GPU", "GPUs")),
    ("cpu", "cpu", ("CPU", "CPUs")),
    ("memoryMB", "memory_mb", ("MB of memory", "MB of memory")),
)
"""Resources that a job may ask for too much of, the fields of a role, and their names for one and several."""

NO_POLICY = JobPolicy()

T = TypeVar("T")

if TYPE_CHECKING:
    from openpai_tasks.protocol.document.request import RoleRequest
    from openpai_tasks.protocol.document.roles import TaskRole
    from openpai_tasks.sdk.jobs.outputs import SavedCheckpoint
    from openpai_tasks.storage.job_files.archive import Archive


@dataclass(frozen=True)
class Submission:
    """Exactly what will be sent, the archive that is uploaded first, and where it goes."""

    name: str
    text: str = field(repr=False)
    archive: Archive | None = None
    home: Home | None = None
    origin: Origin | None = field(default=None, repr=False)
    v1: dict[str, Any] | None = field(default=None, repr=False)  # for a server that takes it as it is
    converted: bool = False
    renamed: tuple[str, ...] = ()  # names of version 1 that were changed for version 2
    tags: tuple[str, ...] = ()
    after: tuple[Dependency, ...] = ()  # what it waits for
    notes: tuple[str, ...] = ()  # what the user should know before it is sent
    resumes_from: SavedCheckpoint | None = None  # of a resubmitted job
    secrets: tuple[str, ...] = ()  # names that the user chose; its document may have others
    hooks: JobHooks = field(default=JobHooks(), repr=False)  # sent next to the document
    is_name_new: bool = False  # its random letters make sure that no job has the name
    rebuild: Callable[[], Submission] | None = field(default=None, repr=False, compare=False)
    """Builds it again with the storages that the cluster grants by then."""
    dependents: tuple[Submission, ...] = ()  # jobs that wait for it, to be submitted with it

    @property
    def shown(self) -> str:
        """The text with its secrets masked."""
        return self.text if self.v1 else protocol.validate(self.text).masked()

    @property
    def folded(self) -> str:
        """The shown text without the shell that is generated around the commands."""
        return self.shown if self.v1 else fold_text(self.shown)


@dataclass(frozen=True)
class JobFiles:
    """The files of a job: the archive of its sources, where it is uploaded to, and its origin."""

    archive: Archive | None
    home: Home | None
    origin: Origin = field(repr=False)
    is_name_new: bool = False
    notes: tuple[str, ...] = ()
    repack: Callable[[], tuple[JobRequest, JobFiles]] | None = field(default=None, repr=False, compare=False)


def prepare(
    client: Backend, request: JobRequest, here: Path, mounts: Mounts = (), extra: Sequence[SourceFile] = ()
) -> Submission:
    """Name the job, pack its files and build its document; nothing is sent yet."""
    return build(*pack_files(client, request, here, mounts, extra))


def pack_files(
    client: Backend,
    request: JobRequest,
    here: Path,
    mounts: Mounts = (),
    extra: Sequence[SourceFile] = (),
    archive: Archive | None = None,
) -> tuple[JobRequest, JobFiles]:
    """Name the job, pack its sources and find the folder for them; return the completed request.

    ``extra`` are files of this package, which replace sources of the same name; ``archive`` is packed before.
    """
    is_name_new = not request.name or "$" in request.name
    request = dataclasses.replace(request, name=new_name(request.name, request.command))
    repack = functools.partial(pack_files, client, request, here, mounts, extra, archive)
    ours = {source.name for source in extra}
    collected = collect(request.sources, here)
    named = [source for source in collected.files if source.name not in ours]
    records.remember_sources(here, request.sources, named)
    found = [*named, *extra]
    if found:
        from openpai_tasks.storage.job_files.archive import pack  # loads tarfile

        archive = pack([*found, *runtime_files()])
    find = job_folders.require_home if archive or request.outputs else job_folders.output_home
    home = find(client, request.workspace, mounts)
    if home:
        seen = home.seen
        storage = seen.storage if isinstance(seen, MountedFolder) else None
        sha256 = archive.sha256 if archive else ""
        request = dataclasses.replace(request, home=seen, storage=storage, archive=sha256)
    origin = provenance.origin_of_request(here, request, archive.files if archive else {})
    return request, JobFiles(archive, home, origin, is_name_new, collected.notes, repack)


def build(request: JobRequest, files: JobFiles) -> Submission:
    """Build the submission of a request whose files are packed."""
    document = build_document(request, files)
    text = protocol.dump(document)
    checked = check_document(text, document.get("name") == request.name)
    return Submission(
        checked.name,
        text,
        files.archive,
        files.home,
        files.origin,
        tags=request.tags,
        after=checked.policy.after,
        notes=files.notes,
        secrets=tuple(request.secrets),
        hooks=read_hooks(request),
        is_name_new=files.is_name_new and document.get("name") == request.name,
        rebuild=functools.partial(_rebuild, files.repack) if files.repack else None,
    )


def read_hooks(request: JobRequest) -> JobHooks:
    """Return the hooks of a request."""
    return JobHooks(tuple(map(parse, request.hooks)))


def _rebuild(repack: Callable[[], tuple[JobRequest, JobFiles]]) -> Submission:
    return build(*repack())


def check_request(request: JobRequest, here: Path) -> None:
    """Raise if the request makes no valid document; nothing is packed, and no cluster is asked."""
    named = dataclasses.replace(request, name=new_name(request.name, request.command))
    build(named, JobFiles(None, None, Origin(here)))


def describe_shortage(
    client: Backend, virtual_cluster: str, roles: Sequence[RoleRequest | TaskRole], is_memory_asked: bool
) -> str:
    """Return in one line what the virtual cluster has less of than the roles ask for; may be empty."""
    name = virtual_cluster or "default"
    cluster = client.virtual_clusters().get(name, VirtualCluster())
    for resource, key, words in LACKING:
        has = cluster.capacity(resource).total
        asked = sum(role.instances * (getattr(role, key) or 0) for role in roles)
        is_asked = is_memory_asked or key != "memory_mb"
        if has is not None and asked > has and is_asked:
            return f"virtual cluster {name} has {has:g} {words[has != 1]}; the job asks for {asked}"
    return ""


def build_document(request: JobRequest, files: JobFiles) -> dict[str, Any]:
    """Build the document of the request, with its updates and its stamp."""
    made = updates.apply_updates(protocol.build_document(request), request.updates)
    return add_stamp(made, files.origin, location_stamp(files.home, str(made.get("name")), files.archive))


def location_stamp(home: Home | None, job: str, archive: Archive | None) -> Stamp:
    """Return a stamp with the location of the job's files."""
    if home is None:
        return Stamp()
    stamp = Stamp(storage=home.storage, workspace=home.workspace)
    if archive is None:
        return stamp
    layout = home.layout
    source, sent = relative(layout.source(job)), relative(layout.archive(archive.sha256))
    return dataclasses.replace(stamp, source_folder=source, source_archive=sent)


def read_job_file(path: Path, request: JobRequest, takes_v1: bool = False) -> Submission:
    """Read a job file, v2 YAML or v1 JSON, and apply updates; convert v1 unless the cluster accepts it."""
    origin = provenance.origin_of_file(path)
    document, is_v1 = load_document(path)
    document = updates.apply_updates(document, request.updates)
    if is_v1:
        read = _read_v1(document, takes_v1, origin, request.policy)
    else:
        read = _read_text(protocol.dump(add_stamp(add_policy(document, request.policy), origin)))
    chosen = tuple(request.secrets)
    hooks = read_hooks(request)
    return dataclasses.replace(read, origin=origin, tags=request.tags, secrets=chosen, hooks=hooks)


def _read_v1(
    document: dict[str, Any],
    takes_v1: bool,
    origin: Origin | None = None,
    policy: JobPolicy = NO_POLICY,
) -> Submission:
    v1 = protocol.validate_v1(document)
    if takes_v1:
        return Submission(v1["jobName"], json.dumps(v1, indent=2) + "\n", v1=v1, after=policy.after)
    fitting, renamed = protocol.fit_names(v1)
    converted = add_policy(protocol.to_v2(fitting), policy)
    read = _read_text(protocol.dump(add_stamp(converted, origin) if origin else converted))
    return dataclasses.replace(read, converted=True, renamed=renamed)


def _read_text(text: str) -> Submission:
    checked = check_document(text)
    return Submission(checked.name, text, after=checked.policy.after)


def read_document(document: str | Mapping[str, Any], takes_v1: bool = False) -> Submission:
    """Return the submission of a document, unchanged; convert v1 unless the cluster accepts it."""
    if isinstance(document, str):
        document = without_comments(document)
        v1 = as_v1(document)
    else:
        v1 = dict(document) if "protocolVersion" not in document else None
    if v1 is not None:
        return _read_v1(v1, takes_v1)
    return _read_text(document if isinstance(document, str) else protocol.dump(dict(document)))


def check_document(text: str, has_given_name: bool = False) -> JobDocument:
    """Return the valid document; errors in generated documents name no lines.

    ``has_given_name`` means that an option gave its name.
    """
    try:
        return protocol.validate(text)
    except ProtocolError as err:
        problems = [Problem(one.path, one.rule) for one in cast(Iterable[Problem], err.problems)]
        if problems[0].path == "name" and has_given_name:
            raise InvalidOption("job_name", problems[0].rule) from err
        raise refusal(problems) from err


def load_document(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the document in a file, and whether it is of version 1; version 2 is validated."""
    try:
        text = read_limited(path, is_named=True)
    except (OSError, UnicodeDecodeError) as err:
        is_command = isinstance(err, FileNotFoundError) and " " in str(path)
        hint = f"; to run a command, use `{command('job.sub', str(path))}`" if is_command else ""
        raise PathError(f"cannot read the job file {str(path)!r}: {reason(err)}{hint}") from err
    text = without_comments(text)
    v1 = as_v1(text)
    return (protocol.validate(text).source.value, False) if v1 is None else (v1, True)


def new_name(name: str | None, command: str) -> str:
    """Return the given name, with random letters for each ``$``; or a name made from the command."""
    if name:
        return re.sub(r"\$", lambda _: _letters(10), name)
    return f"{short_name(command)}-{_letters(6)}"


def short_name(command: str) -> str:
    """Return a few words of the command as a name."""
    return "-".join(re.findall(r"[A-Za-z0-9]+", command)[:3])[-200:].lower() or "job"


def _letters(count: int) -> str:
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(count))


def submit(client: Backend, submission: Submission, say: Say = lambda line: None) -> JobInfo:
    """Upload the sources, submit the document, and return the job from the cluster."""
    name, key = submission.name, job_key(client.user, submission.name)
    if not submission.is_name_new and exists(client, key):
        raise _name_taken(client, name)
    try:
        with upload_files(client, submission, say=say):
            report_notices(client, submit_once(client, submission))
    except NotFound as err:
        if err.code != NO_STORAGE or not submission.rebuild or not job_folders.forget_storages(client):
            raise
        return submit(client, dataclasses.replace(submission.rebuild(), hooks=submission.hooks), say)
    records.save_record(client, submission.text, submission.origin, submission.secrets)
    try:
        job = wait_for_job(client, key)
        note_jobs(client, [job])
        return job
    except Unreachable as err:
        raise Unreachable(f"job {name!r} was submitted, but then: {err}") from err
    except ApiError as err:
        raise ApiError(f"job {name!r} was submitted, but then: {err}", err.status, err.code) from err


def check_job(client: Backend, document: str | Mapping[str, Any]) -> list[str]:
    """Raise if the cluster cannot run a job as its document asks; return what it does differently."""
    client.check_document(document)
    if not isinstance(document, str) or POLICY not in document:
        return []
    policy = protocol.validate(document).policy
    if policy.idle_stop:
        require(client, "idle_gpus")
    if policy.keep_failed:
        require(client, "kept_failures")
    if policy.requeues:
        require(client, "requeues")
        if not client.capabilities.exact_requeues:
            return [str(unsupported(client, "exact_requeues"))]
    return []


@contextlib.contextmanager
def upload_files(
    client: Backend, submission: Submission, is_uploaded: bool = False, say: Say = lambda line: None
) -> Iterator[None]:
    """Upload the files, and remove them again if the cluster then refuses the job.

    ``is_uploaded`` means that the archive was just uploaded for another job.
    """
    for note in check_job(client, submission.v1 or submission.text):
        if not is_uploaded:
            client.say(note)
    home, archive = submission.home, submission.archive
    if home is None or not _save_owner(client, home, submission.name, archive):
        yield
        return
    was_sent = archive is not None and not is_uploaded and _upload_archive(home, submission.name, archive)
    if archive is not None and not was_sent:
        say("sources: already uploaded, not sent again")
    try:
        yield
    except Conflict:
        raise  # a job of that name has come in between, and may use the same archive
    except (ApiError, NotSubmitted) as err:
        if not is_unclear(err):
            home.files.withdraw(submission.name, archive, was_sent)
        raise


def _save_owner(client: Backend, home: Home, job: str, archive: Archive | None) -> bool:
    """Record the owner of the job on the storage; False if that fails and the job has no sources."""
    if archive is None and not home.is_within_reach:
        return False
    try:
        save_reference(client, home, job, archive)
    except PaiError as err:
        if archive is not None or isinstance(err, Conflict):
            raise
        return False
    return True


def _upload_archive(home: Home, job: str, archive: Archive) -> bool:
    """Upload the archive; return whether it was missing before."""
    try:
        return home.files.send(archive)
    except PaiError:
        home.files.withdraw(job, archive, was_sent=False)
        raise


def save_reference(client: Backend, home: Home, job: str, archive: Archive | None) -> None:
    """Record on the storage who owns the job, and that it uses the archive."""
    reference = Reference(
        job=job,
        user=client.user,
        cluster=job_folders.cluster_mark(client.cluster),
        archive=relative(home.layout.archive(archive.sha256)) if archive else "",
        size=archive.size if archive else 0,
        files=len(archive.members) if archive else 0,
        submitted=int(time.time() * 1000),
    )
    home.files.refer(reference, archive.sha256 if archive else NO_ARCHIVE)


class NotSubmitted(Unreachable):
    """The submission failed or got no answer, and the cluster does not have the job."""


def submit_once(client: Backend, submission: Submission) -> tuple[str, ...]:
    """Send the document once; without an answer, check whether it arrived, as it must not be sent twice.

    Return what will not be as the user may expect, one line each.
    """
    try:
        environment = provenance.submitter_environment(client)
        hooks = submission.hooks if client.capabilities.hooks else JobHooks()
        sent = {"hooks": hooks.encode()} if hooks.hooks else {}
        notices = client.submit(submission.v1 or submission.text, environment, **sent)
        origin, text = submission.origin, submission.text
        hint = describe_inactive(client, origin.command or text, origin.folder) if origin else ""
        return (hint, *notices) if hint else notices
    except KeyboardInterrupt:  # the cluster may have the job, as its answer is not known
        client.say(_unsure_message(client, submission.name))
        raise
    except (ApiError, Unreachable) as err:
        if isinstance(err, ApiError) and not is_unclear(err):
            raise _with_known_names(client, submission, err) from err
        if not has_arrived(client, submission.name, err):
            error = NotSubmitted(f"job {submission.name!r} was not submitted: {err}")
            error.exit_code = err.exit_code
            raise error from err
        if not _is_same_job(client, submission):
            raise _name_taken(client, submission.name) from err
        return ()


def _is_same_job(client: Backend, submission: Submission) -> bool:
    """Return whether the job of that name runs our commands: another client may have taken the name."""
    try:
        found = client.job_document(job_key(client.user, submission.name))
    except NotFound:  # PaddleCloud keeps no documents
        return True
    except (ApiError, Unreachable) as err:
        raise Unreachable(f"{err}; {_unsure_message(client, submission.name)}") from err
    return _commands(found) == _commands(submission.v1 or protocol.read(submission.text).value)


def _commands(part: Any) -> list[str]:
    """Return all commands in a document; a server may change the names of its task roles."""
    if isinstance(part, list):
        return sorted(found for one in part for found in _commands(one))
    if not isinstance(part, Mapping):
        return []
    own = [str(part[key]) for key in ("preCommands", "commands", "postCommands", "command") if key in part]
    return sorted([*own, *_commands(list(part.values()))])


def _name_taken(client: Backend, name: str) -> Conflict:
    alias = client.cluster.alias
    return Conflict(f"a job named {name!r} exists on cluster {alias!r}; choose another name", 409)


def is_unclear(err: PaiError) -> bool:
    """Return whether the request may have succeeded: a server can fail after it accepted a job."""
    return isinstance(err, ApiError) and not 300 <= err.status < 500


def _unsure_message(client: Backend, name: str) -> str:
    status = f"`{command('job.status', name, '-a', client.cluster.alias)}`"
    return f"job {name!r} may have been submitted: check with {status}"


def has_arrived(client: Backend, name: str, cause: PaiError) -> bool:
    """Return whether the job exists, looking for a while as a slow server may still be working."""
    problem: PaiError | None = None
    begun = time.monotonic()
    for pause in PAUSES:
        if problem and time.monotonic() - begun > LONGEST_SECONDS:
            break
        time.sleep(pause)
        try:
            if exists(client, job_key(client.user, name)):
                return True
            problem = None
        except (ApiError, Unreachable) as err:
            problem = err
    if problem is None:
        return False
    raise Unreachable(f"{cause}; {_unsure_message(client, name)}") from problem


def exists(client: Backend, key: str) -> bool:
    try:
        client.job(key)
    except NotFound:
        return False
    return True


def wait_for_job(client: Backend, key: str) -> JobInfo:
    """Return the submitted job; the oldest servers need a moment to know it."""
    for pause in PAUSES[1:]:
        try:
            return client.job(key)
        except ApiError as err:
            if not isinstance(err, NotFound) and not is_unclear(err):
                raise
            time.sleep(pause)
    return client.job(key)


def _with_known_names(client: Backend, submission: Submission, refusal: ApiError) -> ApiError:
    """Return an error with the known names for a virtual cluster that does not exist, else the refusal."""
    if refusal.code not in NO_VIRTUAL_CLUSTER:
        return refusal
    v1 = submission.v1
    wanted = v1["virtualCluster"] if v1 else protocol.validate(submission.text).virtual_cluster
    try:
        known = client.virtual_clusters()
    except PaiError:
        return refusal
    if wanted in known:
        return refusal
    names = ", ".join(known) or "none"
    words = f"no virtual cluster named {wanted!r} on cluster {client.cluster.alias!r} (known: {names})"
    return NotFound(words, 404, "NoVirtualClusterError")


def report_notices(client: Backend, notices: Iterable[str], known: Container[str] = ()) -> None:
    """Warn of what will not be as a job asks for, except of what is ``known``."""
    for line in notices:
        if line not in known:
            client.say(f"warning: {one_line(line)}")


def submit_when_ready(client: Backend, made: Submission, say: Say) -> JobInfo:
    """Submit the job and tag it, then those that wait for it.

    On a cluster that keeps no dependencies, wait first for the jobs that it depends on.
    """
    check_tags(client, made.tags)
    for note in made.notes:
        say(note)
    notifying.report_unused(client, made.hooks, say)
    check_dependencies(client, made.after, say, is_in_document=made.v1 is None)
    job = add_tags(client, submit(client, made, say), made.tags)
    for one in made.dependents:
        try:
            submit_when_ready(client, one, say)
        except PaiError as err:
            err.args = (f"job {job.name!r} was submitted, but not {one.name!r}: {err}", *err.args[1:])
            raise
        say(f"job {one.name} submitted")
    return job


def add_tags(client: Backend, job: JobInfo, tags: Sequence[str]) -> JobInfo:
    """Add the tags to the job and return it; the job stays even if a tag is refused."""
    try:
        for name in tags:
            client.add_tag(job.key, name)
    except (ApiError, Unreachable) as err:
        raise type(err)(f"job {job.name!r} was submitted, but not tagged: {err}") from err
    return client.job(job.key) if tags else job


def check_tags(client: Backend, tags: Sequence[str]) -> None:
    """Raise for an invalid tag, or if the cluster has no tags, before anything is sent."""
    if tags:
        require(client, "tags")
    for name in tags:
        if not name.strip() or "," in name:
            raise InvalidOption("tag", f"needs a word without commas, got {name!r}")


class Sender:
    """Submits many jobs, each exactly once, while the cluster limits requests or does not answer.

    ``pausing`` is called with the seconds of each pause that the cluster asks for.
    """

    def __init__(self, client: Backend, pausing: Callable[[float], None] = lambda seconds: None) -> None:
        self._client, self._pausing = client, pausing
        self._notices: set[str] = set()  # those of earlier jobs

    def call(self, ask: Callable[[], T], is_repeatable: bool = True) -> T:
        """Call the cluster, pausing as it asks; during an outage, repeat only calls that are safe."""
        while True:
            try:
                return retry_during_outage(self._client, ask) if is_repeatable else ask()
            except TooManyRequests as err:
                self._pausing(err.retry_after)
                time.sleep(err.retry_after)

    def submit(self, made: Submission, claim: Callable[[str], None]) -> None:
        """Submit one document; repeat it only if the cluster certainly does not have the job.

        ``claim`` raises unless an existing job of that name is the one to submit.
        """
        key = job_key(self._client.user, made.name)
        for left in reversed(range(TRIES)):
            try:
                notices = self.call(lambda: submit_once(self._client, made), is_repeatable=False)
                report_notices(self._client, notices, self._notices)
                self._notices.update(notices)
                break
            except Conflict:  # an answer was lost, or the same command runs twice at once
                self.call(lambda: claim(made.name))
                break
            except NotSubmitted:
                if not left:
                    raise
            except (Unreachable, ApiError) as err:
                if not left or not (isinstance(err, Unreachable) or is_outage(err)):
                    raise
                if self.call(lambda: exists(self._client, key)):
                    claim(made.name)
                    break
