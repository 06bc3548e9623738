"""Submit a command by a form: the request of `job.sub`, with sources that the browser sends."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError, InvalidOption, PaiError
from openpai_tasks.hooks import hook
from openpai_tasks.hooks.hook import JobHooks
from openpai_tasks.portal.labels import LABELS
from openpai_tasks.portal.pages.job import check_files, find_job
from openpai_tasks.portal.pages.job_document import resubmission_values, wants_resume, with_dependents
from openpai_tasks.portal.pages.submit import Refusal, preview_of, submit
from openpai_tasks.portal.request import PortalRequest, redirect
from openpai_tasks.portal.uploads import Upload
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.policy import priority_word
from openpai_tasks.protocol.document.reading import read_request
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.amounts import parse_int, read
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.options import JobOptions
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.settings.config import Settings, load_settings

TEXTS = (
    *("job_name", "image", "virtual_cluster", "memoryMB", "shm", "max_time", "priority"),
    *("grace", "idle_stop", "keep_failed"),
)
NUMBERS = ("instances", "cpu", "gpu", "retries", "requeue_on_timeout")
LISTS = {"outputs": "\n", "pip_installs": "\n", "tag": ","}
"""Fields with several values, and what separates them."""
AFTER = {"succeeded": "after", "ended": "after_any", "failed": "after_failed"}
"""The choices of how other jobs have to end, and their options."""


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a form shows: its fields, variables, and the names of secrets."""

    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variables: tuple[tuple[str, str], ...] = ()
    secret_names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FormJob:
    """A filled form: what was entered, its options and settings, and where the sources are."""

    given: dict[str, Any]
    options: JobOptions
    settings: Settings
    secrets: dict[str, str] = dataclasses.field(repr=False)
    here: Path
    mounts: Mounts

    def request(self) -> JobRequest:
        return sdk.templates.build_request(self.options, self.settings, self._secret, self.here)

    def _secret(self, name: str) -> str:
        if not self.secrets[name]:
            raise ConfigError(f"enter the value of the secret {name}")
        return self.secrets[name]


def page(request: PortalRequest) -> Response:
    return _page(request, None, sorted(request.client.virtual_clusters()), Filled())


def resubmit(request: PortalRequest) -> Response:
    """Show the form filled in from a job; or the job's document, if the form cannot express it."""
    job, document = sdk.jobs.job_document(request.client, request.params["key"])
    known, left = read_request(document)
    if left or len({one.when for one in known.policy.after}) > 1:
        return redirect("c", request.alias, "jobs", request.params["key"], "resubmit", "document")
    return _page(request, None, sorted(request.client.virtual_clusters()), _filled(known, job))


def _filled(known: JobRequest, job: JobInfo) -> Filled:
    """Return the fields for a request, without amounts that were only defaults."""
    fields = {
        "command": known.command,
        "image": known.image,
        "gpu": known.gpu,
        "cpu": known.cpu,
        "memoryMB": known.memory_mb if known.is_memory_asked else None,
        "instances": known.instances,
        "virtual_cluster": known.virtual_cluster,
        "retries": known.retries or None,
        "max_time": known.max_seconds and f"{known.max_seconds}s",
        "keep_failed": f"{known.policy.keep_failed}s" if known.policy.keep_failed else None,
        "shm": known.shm_mb,
        "tag": ", ".join(job.tags),
        "outputs": "\n".join(known.outputs),
        "pip_installs": "\n".join(known.pip_installs),
        "after": ", ".join(one.job for one in known.policy.after),
        "after_when": next((one.when for one in known.policy.after), None),
        "priority": priority_word(known.priority),
        "requeue_on_timeout": known.policy.requeues or None,
        "grace": f"{known.policy.grace}s" if known.policy.grace else None,
        "idle_stop": f"{known.policy.idle_stop}s" if known.policy.idle_stop else None,
    }
    given = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return Filled(given, tuple(known.environment.items()), tuple(known.secrets))


def send(request: PortalRequest) -> Response:
    """Submit the job; show the form again with the reason if it is refused."""
    answer = submit(request, lambda: _prepare(request))
    if isinstance(answer, Refusal):
        names, values = request.lists.get("env_name", ()), request.lists.get("env_value", ())
        pairs = tuple(pair for pair in zip(names, values, strict=False) if any(pair))
        secret_names = tuple(filter(None, request.lists.get("secret_name", ())))
        return _page(request, answer, _virtual_clusters(request), Filled(request.form, pairs, secret_names))
    Upload(request).clear()
    return answer


def check(request: PortalRequest) -> Response:
    """Return the same request as a command line and as Python, and what is wrong with it."""
    alias = "" if request.alias == load_settings().cluster_alias else request.alias
    answer = {"command": "", "python": "", "problem": "", "field": ""}
    try:
        form = _read(request)
        if form.options.command:
            if "key" not in request.params:  # a job that is submitted again has its own files
                answer["command"] = sdk.jobs.as_command(form.given, alias)
                answer["python"] = sdk.jobs.as_python(form.given, alias)
            wanted = form.request()
            sdk.jobs.check_request(wanted, form.here)
            answer["problem"] = sdk.jobs.describe_shortage(
                request.client, wanted.virtual_cluster, wanted.all_roles, wanted.is_memory_asked
            )
    except PaiError as err:
        answer |= {"problem": str(err), "field": err.field}
    return JSONResponse(answer)


def preview(request: PortalRequest) -> Response:
    """Return the plan of the job, and exactly what would be sent, with its secrets masked."""
    return JSONResponse(preview_of(request, _prepare(request)))


def upload(request: PortalRequest) -> Response:
    """Keep files for the job: each has its relative name in the field ``path``."""
    names = request.lists.get("path", ())
    if len(names) != len(request.files):
        raise ConfigError("this upload is incomplete: try again")
    sent = Upload(request)
    sent.add([(name, file.file) for name, file in zip(names, request.files, strict=True)])
    return _uploaded(sent)


def remove(request: PortalRequest) -> Response:
    """Forget a file or folder of the job."""
    sent = Upload(request)
    sent.remove(request.form.get("path", ""))
    return _uploaded(sent)


def _uploaded(sent: Upload) -> Response:
    return JSONResponse([dataclasses.asdict(entry) for entry in sent.entries()])


def _virtual_clusters(request: PortalRequest) -> list[str]:
    """Return the virtual clusters to choose from: if the cluster does not answer, the chosen one."""
    try:
        return sorted(request.client.virtual_clusters())
    except PaiError:
        return list(filter(None, [request.form.get("virtual_cluster")]))


def _page(
    request: PortalRequest, trouble: Refusal | None, virtual_clusters: list[str], filled: Filled
) -> Response:
    draft = request.form.get("draft")
    return request.page(
        "submit_form.html",
        trouble.status if trouble else 200,
        form=filled.fields,
        labels=LABELS,
        trouble=trouble,
        variables=filled.variables,
        secret_names=filled.secret_names,
        uploaded=Upload(request).entries() if draft else [],
        draft=draft or secrets.token_urlsafe(16),
        settings=_settings(request, JobOptions()),
        virtual_clusters=virtual_clusters,
        notes=sdk.clusters.engine_notes(request.client),
        **resubmission_values(request),
    )


def _prepare(request: PortalRequest) -> Submission:
    """Name the job, pack its sources and build its document, as `job.sub` or `job.resubmit` does."""
    form = _read(request)
    client, wanted = request.client, form.request()
    if key := request.params.get("key"):
        check_files(request, find_job(request).user)
        made = sdk.jobs.repeat_with_request(
            client, key, wanted, form.here, request.records, form.mounts, wants_resume(request)
        )
        made = with_dependents(request, made)
    else:
        made = sdk.jobs.prepare(client, wanted, form.here, form.mounts)
    sdk.jobs.check_tags(client, made.tags)
    origin = made.origin
    if request.session.only:
        return dataclasses.replace(made, origin=None)  # no record in the owner's project
    return dataclasses.replace(made, origin=origin and dataclasses.replace(origin, folder=request.project))


def _read(request: PortalRequest) -> FormJob:
    given, sent = _given(request), Upload(request)
    if sent.names:
        given["sources"] = sent.names
    options = sdk.jobs.read_options(given)
    hooks = JobHooks(options.notify)
    sdk.jobs.hooks_to_notify(request.client, hooks, is_watched=False, is_asked=bool(options.notify))
    settings = _settings(request, options)
    mounts = () if request.session.only else sdk.files.mounts(settings)
    hidden, here = dict(_pairs(request, "secret")), sent.folder if sent.names else request.project
    return FormJob(given, options, settings, hidden, here, mounts)


def _settings(request: PortalRequest, options: JobOptions) -> Settings:
    """Return the settings with the options.

    Other users do not send the sources of the owner's project, and a job that is submitted again has its own.
    The owner's hooks are for the owner's jobs.
    """
    given = load_settings(sdk.jobs.setting_overrides(options))
    if request.session.only:
        given = dataclasses.replace(given, notify=())
    if (request.session.only or "key" in request.params) and not options.sources:
        return dataclasses.replace(given, sources=())
    return given


def _given(request: PortalRequest) -> dict[str, Any]:
    """Return the fields of the form by the names of the options, without fields that were left empty."""
    form = {name: value.strip().replace("\r\n", "\n") for name, value in request.form.items()}
    given: dict[str, Any] = {"command": form.get("command", "")}
    given |= {name: form.get(name, "") for name in TEXTS}
    given |= {name: read(name, parse_int, form[name]) for name in NUMBERS if form.get(name)}
    given["notify"] = _check_address(request, form.get("notify", ""))
    for name, separator in LISTS.items():
        given[name] = tuple(word.strip() for word in form.get(name, "").split(separator) if word.strip())
    option = AFTER.get(form.get("after_when", ""), "after")
    given[option] = tuple(name.strip() for name in form.get("after", "").split(",") if name.strip())
    given |= {"env": dict(_pairs(request, "env")), "secret": tuple(dict(_pairs(request, "secret")))}
    return {name: value for name, value in given.items() if value not in ("", (), {})}


def _check_address(request: PortalRequest, text: str) -> str:
    """Return the address to notify; the variables of this process are only for the portal's owner."""
    if text and read("notify", hook.parse, {"post": text}).post.startswith("env:") and request.session.only:
        raise InvalidOption("notify", ": env:NAME is for the portal's owner; enter the address itself")
    return text


def _pairs(request: PortalRequest, kind: str) -> list[tuple[str, str]]:
    names, values = (request.lists.get(f"{kind}_{part}", ()) for part in ("name", "value"))
    pairs = [(name.strip(), value) for name, value in zip(names, values, strict=False) if name or value]
    for name, _ in pairs:
        if not name or "=" in name:
            raise ConfigError(f"the variable {name!r} needs a name without =")
    return pairs
