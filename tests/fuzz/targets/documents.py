"""Files that come with a project: job files, settings, lists of clusters, templates, sweeps; and hooks."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.paddlecloud import config_file
from openpai_tasks.errors import PaiError
from openpai_tasks.hooks import hook
from openpai_tasks.protocol import diagnostics, environment
from openpai_tasks.protocol.document import shape
from openpai_tasks.protocol.document.reading import read_request
from openpai_tasks.protocol.legacy.conversion import fit_names
from openpai_tasks.sdk.jobs import documents, provenance
from openpai_tasks.sdk.jobs.submission import read_document
from openpai_tasks.sdk.notebooks import running, serving
from openpai_tasks.sdk.sweeps import grid
from openpai_tasks.sdk.templates import catalog
from openpai_tasks.settings import config, registry
from openpai_tasks.settings.project import load_config
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke
from openpai_tasks.tasks.program import PaiProgram, TasksLoader
from tests.fuzz.feeding import replacing
from tests.fuzz.scratch import empty_folder, home_folder
from tests.fuzz.target import Target
from tests.properties.answers import DOCUMENT, DOCUMENT_V1, RETRYING

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
TEMPLATES = sorted(catalog.packaged_folder().glob("*.yaml"))


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def file_of(data: bytes, name: str) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def parse_job_file(data: bytes) -> None:
    """Validate a job file and make the job of it."""
    path = file_of(data, "job.yaml")
    documents.validate_file(path)
    made = read_document(text_of(data), takes_v1=True)
    made.folded.encode()


def parse_document(data: bytes) -> None:
    """Use the document of a job as a server sends it."""
    found = protocol.read(text_of(data)).value
    if not isinstance(found, dict):
        return
    documents.describe_roles(found)
    document = documents.as_v2(found)
    if shape.first_mismatch(document):
        return
    provenance.read_stamp(document), running.read_run_mark(document), serving.read_server_mark(document)
    read_request(document)
    shown = protocol.dump(documents.sort_keys(document))
    documents.fold_text(shown).encode()
    protocol.validate(shown)


def parse_v1(data: bytes) -> None:
    """Convert a document of version 1."""
    if found := documents.as_v1(text_of(data)):
        fitting, _ = fit_names(protocol.validate_v1(found))
        protocol.validate(protocol.dump(protocol.to_v2(fitting)))


def parse_diagnostics(data: bytes) -> None:
    found = diagnostics.read({"appExitDiagnostics": text_of(data)})
    assert len(found.summary.splitlines()) < 2


def parse_settings(data: bytes) -> None:
    """Read the settings of a project, which need not be the user's."""
    project = FOLDER / "project"
    project.mkdir(exist_ok=True)
    (project / "invoke.yaml").write_bytes(data)
    before = os.getcwd()
    os.chdir(project)
    try:
        config.Settings.load(load_config()[0], withhold=True)
        config.project_claims(project, project)
    finally:
        os.chdir(before)


def run_program(data: bytes) -> None:
    """Run commands in a project with these settings; each prints something, or one error."""
    project, before, path = empty_folder("project"), os.getcwd(), list(sys.path)
    (project / "invoke.yaml").write_bytes(data)
    os.chdir(project)
    patch_invoke()
    try:
        for line in (["pai", "config.show"], ["pai", "cluster.list"]):
            program = PaiProgram(name="pai", binary="pai", binary_names=["pai"], loader_class=TasksLoader)
            out, err = StringIO(), StringIO()
            with home_folder({}), redirect_stdout(out), redirect_stderr(err), contextlib.suppress(SystemExit):
                program.run(line)
            assert "Traceback" not in err.getvalue(), err.getvalue()
    finally:
        os.chdir(before)
        sys.path[:] = path


def parse_defaults(data: bytes) -> None:
    """Read a defaults.yaml."""
    found = config.defaults_layer(file_of(data, "defaults.yaml"))
    for variable, _, value in config._known(found):
        variable.read(value, "defaults.yaml")
    config.claims(config.project_layer(found), FOLDER)


def parse_clusters(data: bytes) -> None:
    """Read a clusters.yaml, and write it again."""
    found = registry.parse(text_of(data), FOLDER / "clusters.yaml")
    for cluster, _ in found:
        repr((cluster.destination, cluster.certificate, cluster.unique_name))
        [registry.storage_destination(cluster, record) for record in cluster.own_storages]
    again = registry.parse(registry.dump(cluster for cluster, _ in found), FOLDER / "clusters.yaml")
    assert [one.alias for one, _ in again] == [one.alias for one, _ in found]


def parse_paddle_config(data: bytes) -> None:
    path = file_of(data, "paddle-config")
    with replacing(config_file, "path", lambda: path):
        config_file.foreign_clusters(["lab"])


def parse_template(data: bytes) -> None:
    """Read a template and fill in its own values."""
    path = file_of(data, "template.yaml")
    found = catalog.find_template(str(path), FOLDER)
    catalog.fill(found, {one.name: one.default for one in found.parameters}, "train")


def parse_sweep(name: str) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        """Read the points of a sweep."""
        points = grid.parse_points((), str(file_of(data, name)))
        grid.job_names("sweep", points)

    return parse


def refusing(read: Callable[[Any], Any]) -> Callable[[bytes], None]:
    """Parse a header; ValueError is what the server answers with the status 400."""

    def parse(data: bytes) -> None:
        with contextlib.suppress(ValueError, PaiError):
            found = read(text_of(data))
            found.encode() if isinstance(found, hook.JobHooks) else None

    return parse


V2 = protocol.dump(DOCUMENT | {"secrets": {"KEY": "x"}}).encode()
SETTINGS = b"""openpai:
  cluster-alias: lab
  cpu: 3
  http-timeout: 30.5
  sources: [train.py, "data/*.csv"]
  notify: [{post: "https://hooks.slack.com/x", when: [end]}]
  local: {engine: process, keep: 30d}
run: {echo: true}
"""
DEFAULTS = b"cluster-alias: lab\ncpu: 3\nsources: [train.py]\nlocal: {engine: process}\nmemoryMB: '4096'\n"
CLUSTERS = b"""- cluster_alias: lab
  pai_uri: https://lab.example.org:8443
  user: ann
  password: secret
  type: openpai
  generation: "1.8"
  info: {version: v1.8.1}
  virtual_clusters: [default]
  storages: [{name: team, default: true}]
  own_storages: [{name: a, type: nfs, address: nas, path: /x, options: {ca: x}}]
  options: {usercert: /a, userkey: /b}
"""
PADDLE = b"""datacenters:
- {name: dc1, username: ann, password: x, endpoint: "http://cloud.example.org"}
- {name: dc2, username: ann, usercert: ann.pem, userkey: ann-key.pem, endpoint: cloud:8080}
current-datacenter: dc1
"""
OLD_PADDLE = b"dc1:\n  username: ann\n  endpoint: http://cloud.example.org\ncurrent-datacenter: dc1\n"
HOOKS = hook.JobHooks(
    (hook.parse("https://ntfy.sh/x"), hook.parse({"command": "mail", "when": "waiting>10m"})), "s"
)
HOOK = b'{"post": "slack+https://example.org/x", "when": ["end", "waiting>10m"], "secret": "s"}'
ENVIRONMENT = {"PATH": "/bin", "LANG": "C", "VIRTUAL_ENV": "/v"}
V1 = json.dumps(DOCUMENT_V1).encode()
TARGETS = (
    Target("job-file", parse_job_file, (V2, V1, *(path.read_bytes() for path in TEMPLATES))),
    Target("job-document", parse_document, (V2, V1)),
    Target("job-v1", parse_v1, (V1,)),
    Target("job-diagnostics", parse_diagnostics, (RETRYING["jobStatus"]["appExitDiagnostics"].encode(),)),
    Target("project-settings", parse_settings, (b"openpai: {cpu: 3}\n", b"run: {echo: true}\n", SETTINGS)),
    Target("project-program", run_program, (b"openpai: {cpu: 3}\n", b"run: {echo: true}\n", SETTINGS)),
    Target("project-defaults", parse_defaults, (DEFAULTS,)),
    Target("clusters-yaml", parse_clusters, (CLUSTERS,)),
    Target("paddle-config", parse_paddle_config, (PADDLE, OLD_PADDLE)),
    Target("job-template", parse_template, tuple(path.read_bytes() for path in TEMPLATES)),
    Target("sweep-yaml", parse_sweep("points.yaml"), (b"- {lr: 0.1, n: 1}\n- {lr: 0.2, n: 2}\n",)),
    Target("sweep-csv", parse_sweep("points.csv"), (b"lr,n\n0.1,1\n0.2,2\n",)),
    Target("sweep-json", parse_sweep("points.json"), (b'[{"lr": 0.1, "n": 1}]', b'{"lr": 1}\n{"lr": 2}')),
    Target("hook", refusing(hook.parse), (b"https://ntfy.sh/x", HOOK)),
    Target("hooks-header", refusing(hook.JobHooks.decode), (HOOKS.encode().encode(),)),
    Target("environment-header", refusing(environment.decode), (environment.encode(ENVIRONMENT).encode(),)),
)
