"""Manage the clusters you use, and the embedded one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import connect, say, settings, settings_for, show
from openpai_tasks.tasks.framework.prompts import confirm, require_terminal
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.tasks.framework.task import with_flags
from openpai_tasks.tasks.framework.terminal import exact
from openpai_tasks.tasks.views.job_flags import describe_job, job_options, job_task
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

LISTED = ("alias", "selected", "uri", "user", "product", "virtual_clusters")
UPDATED = ("alias", "uri", "generation", "virtual_clusters", "storages", "problem")
FITS = ("cluster", "fits", "waiting", "why")
REPORTED = ("name", "jobs", "gpu_hours", "gpu_used", "cpu_hours", "cpu_used", "waited", "failed")
RESOURCES = ("cluster", "virtual_cluster", "gpus", "vcores", "memory_mb", "unavailable", "problem")

LOGIN_HELP = {
    "user": "your user name there; not needed with a token that contains it",
    "password-file": "file with the password; - for standard input",
    "token-file": "file with a token or an application token; - for standard input",
    "password": "the password itself; other users can see it in the process list, prefer --password-file",
    "token": "the token itself; other users can see it in the process list, prefer --token-file",
    "ca": "file with the CA (PEM) to check the server's certificate with",
}

login_flags = with_flags(inspect.signature(secrets.from_flags).parameters.values())


@task(name="list", default=True)
def list_(c: Context, output: str | None = None) -> None:
    """List the known clusters, without contacting them."""
    show(c, sdk.clusters.list_clusters(settings(c), say), LISTED, output)


@task(
    positional=["cluster_alias", "pai_uri"],
    help={
        **LOGIN_HELP,
        "cluster-alias": "your name for the cluster",
        "pai-uri": "its address, as in the browser; https is tried first if there is no scheme",
        "ssh": "machine to run jobs on, [USER@]HOST[:PORT], also a name in your ~/.ssh/config",
        "engine": "what runs jobs there: process, docker, podman, slurm or kubernetes (default: as before)",
        "remote-program": "pai on that machine, if it is not found there, such as ~/venv/bin/pai",
        "install": "install this version of openpai-tasks there, in ~/.openpai/venv",
        "check": "log in now to check the address and login; --no-check only saves them",
        "force": "replace another cluster with this alias",
        "type": "kind of cluster: openpai, paddlecloud, ssh, slurm, or a kind from another package",
        "option": "NAME=VALUE, for a kind that has options; repeat for more",
        "datacenter": "name of a PaddleCloud datacenter in its paths /pfs/NAME/... (default: the alias)",
    },
)
@login_flags
def add(
    c: Context,
    cluster_alias: str,
    pai_uri: str | None = None,
    *,
    flags: dict[str, str],
    check: bool = True,
    force: bool = False,
    type: str = "openpai",
    datacenter: str | None = None,
    ssh: str | None = None,
    engine: str | None = None,
    remote_program: str | None = None,
    install: bool = False,
    option: list[str] | None = None,
    output: str | None = None,
) -> None:
    """Add a cluster: log in and save it."""
    address, kind = sdk.clusters.address_and_kind(pai_uri, ssh, type)
    if install:
        sdk.clusters.install_on(address, kind, say)
    own = {"datacenter": datacenter, "engine": engine}
    new = sdk.clusters.NewCluster(
        cluster_alias,
        address,
        *secrets.from_flags(**flags),
        force,
        kind,
        remote_program or "",
        (*(option or ()), *(f"{name}={value}" for name, value in own.items() if value)),
    )
    added = sdk.clusters.add(settings(c), new, check, secrets.ask_password, say)
    show(c, [sdk.clusters.cluster_row(settings(c), added)], LISTED, output)


@task(
    help={
        "cluster-aliases": "clusters to remove, with their passwords and tokens",
        "ask": "ask first on a terminal",
        "stop": "also stop the server on a machine that is reached by ssh, and its jobs",
    },
)
def delete(
    c: Context, cluster_aliases: list[str], ask: bool = False, yes: bool = False, stop: bool = False
) -> None:
    """Remove clusters from the list of known ones."""
    if ask and not yes and sys.stdin.isatty():
        confirm(f"remove {', '.join(cluster_aliases)} and the login from the list of known clusters?")
    for cluster in sdk.clusters.delete(settings(c), cluster_aliases, stop):
        say(f"deleted {cluster.alias} ({cluster.uri})")


@task(
    positional=["cluster_alias"],
    help={**LOGIN_HELP, "cluster-alias": "the cluster (default: all)", "login": "ask for the password again"},
)
@login_flags
def update(
    c: Context,
    cluster_alias: str | None = None,
    login: bool = False,
    *,
    flags: dict[str, str],
    output: str | None = None,
) -> None:
    """Refresh what is known about clusters, or renew the login to one."""
    given = secrets.from_flags(**flags)
    if cluster_alias is None:
        if any(given) or login:
            raise ConfigError(f"name the cluster that the login is for: `{command('cluster.update')} ALIAS`")
        rows = sdk.clusters.update_all(settings(c), say)
    else:
        new, known = sdk.clusters.ClusterUpdate(*given, login), settings_for(c, cluster_alias)
        rows = [sdk.clusters.update(known, cluster_alias, new, secrets.ask_password, say)]
    show(c, rows, UPDATED, output)
    sdk.clusters.check_updated(rows)


@task(help={"editor": "editor to use (default: $VISUAL, $EDITOR, VS Code or another installed one)"})
def edit(c: Context, editor: str | None = None) -> None:
    """Edit clusters.yaml; it is checked before it is saved."""
    given = settings(c, editor=editor)
    registry = sdk.clusters.open_registry(given)
    if editor is None:
        require_terminal(f"cluster.edit needs a terminal, or --editor COMMAND; the file is {registry.path}")
    command = sdk.clusters.editor_command(given.editor)
    draft = sdk.clusters.begin_edit(registry)
    # The editor gets the terminal itself: through c.run it would not notice a resized window.
    code = subprocess.call([*command, str(draft.path)], env=user_settings.credentials.hidden_environment())
    say(f"changed {draft.registry.path}" if sdk.clusters.finish_edit(draft, code) else "nothing changed")


@task(
    help={
        "cluster-alias": "the cluster to use",
        "is-global": "for all your projects, not only this one",
    },
)
def select(c: Context, cluster_alias: str, is_global: bool = False) -> None:
    """Select the cluster that commands use."""
    path = sdk.clusters.select(settings(c), cluster_alias, is_global)
    say(f"selected {cluster_alias} in {path}")
    now = settings(c)
    if now.cluster_alias != cluster_alias:
        origin = now.origins["cluster-alias"]
        say(f"warning: {origin} overrides it here and selects {now.cluster_alias}")


@job_task(
    *("gpu", "cpu", "memoryMB", "instances", "image", "virtual_cluster"),
    positional=["cluster_alias"],
    help={
        "cluster-alias": "the cluster (default: all)",
        "fits": "show instead which clusters could start a job now, described by the other flags",
        "gpu-type": "with --fits: type of the GPUs, such as A100",
    },
)
def resources(
    c: Context,
    cluster_alias: str | None = None,
    *,
    flags: dict[str, Any],
    fits: bool = False,
    gpu_type: str | None = None,
    output: str | None = None,
) -> None:
    """Show used and usable resources per virtual cluster, or which clusters could start a job now."""
    if fits:
        wanted = describe_job(c, job_options(flags, command="true"), gpu_type=gpu_type or "")
        show(c, sdk.jobs.list_fits(settings(c), cluster_alias, wanted, say), FITS, output)
        return
    if flags or gpu_type:
        raise ConfigError("flags that describe a job need --fits")
    rows = sdk.clusters.list_resources(settings_for(c, cluster_alias), cluster_alias, say)
    show(c, rows, RESOURCES, output)


@task(
    positional=["cluster_alias"],
    help={
        "since": "from when on: a duration such as 30d, or a time such as 2026-01-31T12:00",
        "by": "a line for each user, tag or sweep",
        "user": "whose jobs; 'all' for everyone's (default: all for administrators, else yours)",
    },
)
def report(
    c: Context,
    cluster_alias: str | None = None,
    since: str = "30d",
    by: str = "user",
    user: str | None = None,
    output: str | None = None,
) -> None:
    """Report GPU-hours and CPU-hours, how much of them was used, waiting time and failures."""
    found = sdk.usage_report.report_usage(connect(c, cluster_alias), by, since, user)
    say(render.report_title(found))
    show(c, found.rows, REPORTED, output)
    for note in found.notes:
        say(f"note: {note}")


@task(positional=["cluster_alias"])
def info(c: Context, cluster_alias: str | None = None, output: str | None = None) -> None:
    """Show a cluster's version, your account there, and what you may use."""
    show(c, sdk.clusters.describe(settings_for(c, cluster_alias), None, say), render.facts, output)


@task(
    positional=["cluster_alias"],
    help={"type": "openpai, or paddlecloud for a ~/.paddle/config of the embedded cluster"},
)
def credentials(
    c: Context, cluster_alias: str | None = None, type: str = "openpai", output: str | None = None
) -> None:
    """Print address, user and token, for other clients of the same cluster."""
    if type == "paddlecloud":
        from openpai_tasks.paddlecloud import datacenters

        exact(datacenters.config_text(settings_for(c, cluster_alias), cluster_alias, say))
        return
    if type != user_settings.registry.DEFAULT_KIND:
        raise ConfigError(f"--type: expected openpai or paddlecloud, got {type!r}")
    show(c, sdk.clusters.access_info(settings_for(c, cluster_alias), None, say), render.facts, output)


@task(
    help={
        "port": "port to listen on; 0 for any (default: the one it had before)",
        "engine": "what runs jobs: auto, process, docker, podman, slurm or kubernetes (default: as before)",
        "option": "NAME=VALUE, an option of the engine, such as kubeconfig=FILE; repeat for more",
        "fresh": "use your settings, not the options of its last start",
    },
)
def start(
    c: Context,
    port: int | None = None,
    engine: str | None = None,
    option: list[str] | None = None,
    fresh: bool = False,
    output: str | None = None,
) -> None:
    """Start the embedded cluster."""
    request = sdk.clusters.start_request(settings(c), port, engine, fresh, option or ())
    started = sdk.clusters.start_embedded(request, say)
    say("started the embedded cluster" if started else "the embedded cluster is already running")
    show(c, sdk.clusters.embedded_status(), render.facts, output)


@task(
    positional=["cluster_alias"],
    help={
        "cluster-alias": "a cluster that is reached by ssh (default: the embedded cluster)",
        "install": "first install this version of openpai-tasks on that machine",
    },
)
def restart(
    c: Context, cluster_alias: str | None = None, install: bool = False, output: str | None = None
) -> None:
    """Restart the server of the embedded cluster or of a machine with ssh; its jobs continue."""
    if cluster_alias not in (None, user_settings.registry.LOCAL):
        sdk.clusters.restart_server(settings(c), cluster_alias, install, say)
    elif install:
        raise ConfigError("--install is for a cluster that is reached by ssh")
    else:
        sdk.clusters.restart_embedded(sdk.clusters.start_request(settings(c)), say)
    status.body(c, cluster_alias, output)


@task(
    help={
        "keep-jobs": "leave its jobs running; the next start finds them again",
        "force": "kill it if it does not answer; give up jobs whose engine cannot be used any more",
    }
)
def stop(c: Context, keep_jobs: bool = False, force: bool = False) -> None:
    """Stop the embedded cluster and its jobs."""
    stopped = sdk.clusters.stop_embedded(keep_jobs, say, force, settings(c).http_timeout)
    say("stopped the embedded cluster" if stopped else "the embedded cluster was not running")
    views.browsing.report_portals()


@task(
    help={
        "keep": "finished jobs to keep: age, number and size, such as 30d,1000,1GB (default: local.keep)",
        "orphans": "instead: remove what deleted embedded clusters of this machine left on Kubernetes",
        "preview": "only show what would be removed",
    },
)
def clean(
    c: Context,
    keep: str | None = None,
    orphans: bool = False,
    preview: bool = False,
    yes: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Remove old finished jobs from the embedded cluster; outputs on its storage stay."""
    given = settings_for(c, cluster_alias)
    client = connect(c, cluster_alias)
    if orphans:
        left = views.listings.clean_orphans(client, preview, yes)
        show(c, left, views.listings.removed_orphans, output)
        say(f"{'would remove' if preview else 'removed'} {counted(len(left), 'orphan')}")
        return
    limits = keep or given.local_keep
    user_settings.keeping.parse_keep(limits, "--keep")
    found = client.clean_jobs(limits, preview=True)
    if found and not preview:
        if not yes:
            size = render.size(sum(job.size for job in found))
            views.listings.confirm_cleanup(
                views.listings.removed_jobs(found),
                f"remove {len(found)} finished jobs ({size})?",
                f"{counted(len(found), 'job')} not removed: add --yes to remove or --preview to list them",
            )
        found = client.clean_jobs(limits, preview=False)
    show(c, found, views.listings.removed_jobs, output)
    total = f"{len(found)} finished jobs, {render.size(sum(job.size for job in found))}"
    say(f"would remove {total}" if preview else f"removed {total}")


@task(
    positional=["cluster_alias"],
    help={"cluster-alias": "a cluster that is reached by ssh, to show the connection to its machine"},
)
def status(c: Context, cluster_alias: str | None = None, output: str | None = None) -> None:
    """Show the process, port, folder and jobs of the embedded cluster, or a connection by ssh."""
    if cluster_alias in (None, user_settings.registry.LOCAL):
        show(c, sdk.clusters.embedded_status(), render.facts, output)
    else:
        show(c, sdk.clusters.tunnel_status(settings(c), cluster_alias), render.facts, output)


@task(
    positional=["cluster_alias"],
    help={
        "cluster-alias": "the cluster to show first (default: the selected one)",
        "port": "port to listen on (default: the one it had before)",
        "no-browser": "only print the link, which signs in once",
        "stop": "stop the portal of this folder; it also stops after half an hour without use",
    },
)
def portal(
    c: Context, cluster_alias: str | None = None, port: int = 0, no_browser: bool = False, stop: bool = False
) -> None:
    """Open the web portal: see, submit and stop jobs in a browser."""
    if stop:
        say("stopped the portal" if views.browsing.stop_portal() else "the portal was not running")
        return
    given = settings_for(c, cluster_alias)
    alias = sdk.clusters.open_registry(given).get(given.cluster_alias).alias
    views.browsing.open_portal(alias, port, no_browser)
