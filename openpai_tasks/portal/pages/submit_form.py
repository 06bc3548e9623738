"""Submit a command by a form: the request of `job.sub`, with sources that the browser sends."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.portal.field_names import LABELS, in_field_names, naming_fields
from openpai_tasks.portal.once import once
from openpai_tasks.portal.pages.submit import NotSubmitted, explain, preview_of
from openpai_tasks.portal.request import PortalRequest, data, go
from openpai_tasks.portal.uploads import SourceUpload
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.amounts import parse_int
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.settings.config import Settings, load_settings

TEXTS = ("job_name", "image", "virtual_cluster", "memoryMB", "shm", "max_time")
NUMBERS = ("instances", "cpu", "gpu", "retries")
LISTS = {"outputs": "\n", "pip_installs": "\n", "tag": ","}
"""Fields with several values, and what separates them."""


@dataclasses.dataclass(frozen=True)
class FormJob:
    """A filled form: its flags of `job.sub`, the settings beneath them, and where the sources are."""

    flags: dict[str, Any]
    settings: Settings
    secrets: dict[str, str] = dataclasses.field(repr=False)
    here: Path
    mounts: Mounts

    def request(self) -> JobRequest:
        return sdk.templates.request_from_flags(self.flags, self.settings, self._secret, self.here)

    def _secret(self, name: str) -> str:
        if not self.secrets[name]:
            raise ConfigError(f"enter the value of the secret {name}")
        return self.secrets[name]


def page(request: PortalRequest) -> Response:
    return _page(request, None, sorted(request.client.virtual_clusters()))


def send(request: PortalRequest) -> Response:
    """Submit the job; show the form again with the reason if it is refused."""
    names: list[str] = []

    def submit() -> str:
        with naming_fields():
            made = _prepare(request)
            names.append(made.name)
            key = sdk.jobs.submit_when_ready(request.client, made, lambda line: None).key
        SourceUpload(request).clear()
        return key

    try:
        return go("c", request.alias, "jobs", once(request, submit))
    except PaiError as err:
        return _page(request, explain(request, err, "".join(names)), _virtual_clusters(request))


def check(request: PortalRequest) -> Response:
    """Return the same request as a command line and as Python, and what is wrong with it."""
    alias = "" if request.alias == load_settings().cluster_alias else request.alias
    answer = {"command": "", "python": "", "problem": ""}
    try:
        form = _read(request)
        if form.flags["command"]:
            answer["command"] = sdk.jobs.as_command(form.flags, alias)
            answer["python"] = sdk.jobs.as_python(form.flags, alias)
            wanted = form.request()
            sdk.jobs.check_request(wanted, form.here)
            answer["problem"] = sdk.jobs.describe_shortage(request.client, wanted)
    except PaiError as err:
        answer["problem"] = in_field_names(str(err))
    return data(answer)


def preview(request: PortalRequest) -> Response:
    """Return exactly what would be sent, with its secrets masked."""
    with naming_fields():
        return data(preview_of(request, _prepare(request)))


def upload(request: PortalRequest) -> Response:
    """Keep files for the job: each has its relative name in the field ``path``."""
    names = request.lists.get("path", ())
    if len(names) != len(request.files):
        raise ConfigError("this upload is incomplete: try again")
    sent = SourceUpload(request)
    sent.add([(name, file.file) for name, file in zip(names, request.files, strict=True)])
    return _uploaded(sent)


def remove(request: PortalRequest) -> Response:
    """Forget a file or folder of the job."""
    sent = SourceUpload(request)
    sent.remove(request.form.get("path", ""))
    return _uploaded(sent)


def _uploaded(sent: SourceUpload) -> Response:
    return data([dataclasses.asdict(entry) for entry in sent.entries()])


def _virtual_clusters(request: PortalRequest) -> list[str]:
    """Return the virtual clusters to choose from: if the cluster does not answer, the chosen one."""
    try:
        return sorted(request.client.virtual_clusters())
    except PaiError:
        return list(filter(None, [request.form.get("virtual_cluster")]))


def _page(request: PortalRequest, trouble: NotSubmitted | None, virtual_clusters: list[str]) -> Response:
    form = request.form
    names, values = request.lists.get("env_name", ()), request.lists.get("env_value", ())
    given = _settings(request, {})
    return request.page(
        "submit_form.html",
        trouble.status if trouble else 200,
        form=form,
        labels=LABELS,
        trouble=trouble,
        variables=[pair for pair in zip(names, values, strict=False) if any(pair)],
        secret_names=[name for name in request.lists.get("secret_name", ()) if name],
        uploaded=SourceUpload(request).entries() if form.get("draft") else [],
        draft=form.get("draft") or secrets.token_urlsafe(16),
        settings=given,
        virtual_clusters=virtual_clusters,
    )


def _prepare(request: PortalRequest) -> Submission:
    """Name the job, pack its sources and build its document, as `job.sub` does."""
    form = _read(request)
    made = sdk.jobs.prepare(request.client, form.request(), form.here, form.mounts)
    sdk.jobs.check_tags(request.client, made.tags)
    origin = made.origin
    if request.session.only:
        return dataclasses.replace(made, origin=None)  # no record in the owner's project
    return dataclasses.replace(made, origin=origin and dataclasses.replace(origin, folder=request.project))


def _read(request: PortalRequest) -> FormJob:
    flags = _flags(request)
    sent = SourceUpload(request)
    if sent.names:
        flags["sources"] = sent.names
    hidden = dict(_pairs(request, "secret"))
    given = _settings(request, flags)
    mounts = () if request.session.only else sdk.files.mounts(given)
    return FormJob(flags, given, hidden, sent.folder if sent.names else request.project, mounts)


def _settings(request: PortalRequest, flags: dict[str, Any]) -> Settings:
    """Return the settings with the flags; other users do not send the sources of the owner's project."""
    given = load_settings(sdk.jobs.setting_overrides(flags))
    if request.session.only and not flags.get("sources"):
        return dataclasses.replace(given, sources=())
    return given


def _flags(request: PortalRequest) -> dict[str, Any]:
    """Return the form as flags of `job.sub`, without fields that were left empty."""
    form = {name: value.strip().replace("\r\n", "\n") for name, value in request.form.items()}
    flags: dict[str, Any] = {"command": form.get("command", "")}
    flags |= {name: form[name] for name in TEXTS if form.get(name)}
    flags |= {name: parse_int(form[name], f"--{name}") for name in NUMBERS if form.get(name)}
    for name, separator in LISTS.items():
        words = tuple(word.strip() for word in form.get(name, "").split(separator) if word.strip())
        flags |= {name: words} if words else {}
    variables = tuple(f"{name}={value}" for name, value in _pairs(request, "env"))
    hidden = tuple(name for name, _ in _pairs(request, "secret"))
    return flags | ({"env": variables} if variables else {}) | ({"secret": hidden} if hidden else {})


def _pairs(request: PortalRequest, kind: str) -> list[tuple[str, str]]:
    names, values = (request.lists.get(f"{kind}_{part}", ()) for part in ("name", "value"))
    pairs = [(name.strip(), value) for name, value in zip(names, values, strict=False) if name or value]
    for name, _ in pairs:
        if not name or "=" in name:
            raise ConfigError(f"the variable {name!r} needs a name without =")
    return pairs
