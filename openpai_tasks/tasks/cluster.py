"""The clusters you work with, and the embedded one."""

from __future__ import annotations

import subprocess

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import chosen, say, settings, show, task

LISTED = ("alias", "selected", "uri", "user", "generation", "virtual_clusters")
UPDATED = ("alias", "uri", "generation", "virtual_clusters", "storages", "problem")
RESOURCES = ("cluster", "virtual_cluster", "gpus", "vcores", "memory_mb", "unavailable", "problem")

SECRETS = {
    "user": "your name there; not needed with a token that says it",
    "password-file": "file with the password; - for standard input",
    "token-file": "file with a token or an application token; - for standard input",
    "password": "the password itself, which others can see in the list of processes; better not",
    "token": "the token itself, with the same warning",
    "ca": "file with the CA (PEM) that the server's certificate is to be checked with",
}


@task(name="list", default=True)
def list_(c, output=None):
    """Show the known clusters, without asking them."""
    show(c, sdk.clusters.list_clusters(settings(c)), LISTED, output)


@task(
    positional=["cluster_alias", "pai_uri"],
    help={
        **SECRETS,
        "cluster-alias": "the name you want to call it by",
        "pai-uri": "its address, as in the browser; https is tried first if it has no scheme",
        "check": "log in now and see; --no-check only notes it down",
        "force": "put it in the place of another cluster with this alias",
    },
)
def add(
    c,
    cluster_alias,
    pai_uri,
    user=None,
    password_file=None,
    token_file=None,
    password=None,
    token=None,
    ca=None,
    check=True,
    force=False,
    output=None,
):
    """Add a cluster: connect, log in, remember it."""
    given = secrets.given(password, password_file, token, token_file)
    new = sdk.clusters.NewCluster(cluster_alias, pai_uri, user or "", given, ca or "", force)
    added = sdk.clusters.add(settings(c), new, check, secrets.ask, say)
    show(c, [sdk.clusters.cluster_row(settings(c), added)], LISTED, output)


@task(
    positional=["cluster_aliases"],
    iterable=["cluster_aliases"],
    help={"cluster-aliases": "the clusters to forget, with their passwords and tokens"},
)
def delete(c, cluster_aliases):
    """Forget clusters."""
    for cluster in sdk.clusters.delete(settings(c), cluster_aliases):
        say(f"deleted {cluster.alias} ({cluster.uri})")


@task(
    positional=["cluster_alias"],
    help={**SECRETS, "cluster-alias": "the cluster; all if not given", "login": "ask for the password again"},
)
def update(
    c,
    cluster_alias=None,
    login=False,
    user=None,
    password_file=None,
    token_file=None,
    password=None,
    token=None,
    ca=None,
    output=None,
):
    """Ask clusters again what they have, or renew the login of one."""
    given = secrets.given(password, password_file, token, token_file)
    if cluster_alias is None:
        secrets.refuse_for_all(given, user, ca, login)
        rows = sdk.clusters.update_all(settings(c), say)
    else:
        new = sdk.clusters.Renewal(user or "", given, ca or "", login)
        rows = [sdk.clusters.update(chosen(c, cluster_alias), cluster_alias, new, secrets.ask, say)]
    show(c, rows, UPDATED, output)
    sdk.clusters.check_updated(rows)


@task(help={"editor": "the program to edit with; else $VISUAL, $EDITOR or what is installed"})
def edit(c, editor=None):
    """Edit clusters.yaml by hand; it is checked before it is kept."""
    given = settings(c, editor=editor)
    command = sdk.clusters.editor_command(given.editor)
    draft = sdk.clusters.begin_edit(sdk.clusters.open_registry(given))
    # The editor gets the terminal itself: through c.run it would not learn of a resized window.
    code = subprocess.call([*command, str(draft.path)])
    say(f"changed {draft.registry.path}" if sdk.clusters.finish_edit(draft, code) else "nothing was changed")


@task(
    positional=["cluster_alias"],
    help={
        "cluster-alias": "the cluster that commands shall speak to",
        "is-global": "for all folders, not only this one",
    },
)
def select(c, cluster_alias, is_global=False):
    """Choose the cluster that commands speak to."""
    path = sdk.clusters.select(settings(c), cluster_alias, is_global)
    say(f"selected {cluster_alias} in {path}")
    now = settings(c)
    if now.cluster_alias != cluster_alias:
        origin = now.origins["cluster-alias"]
        say(f"warning: {origin} counts more here and says {now.cluster_alias}")


@task(positional=["cluster_alias"], help={"cluster-alias": "the cluster; all if not given"})
def resources(c, cluster_alias=None, output=None):
    """Show GPUs, vCores and memory, used/usable, per virtual cluster, and what is unavailable."""
    show(c, sdk.clusters.list_resources(chosen(c, cluster_alias), cluster_alias, say), RESOURCES, output)


@task(positional=["cluster_alias"])
def info(c, cluster_alias=None, output=None):
    """Ask a cluster what it is and what it has for you."""
    show(c, sdk.clusters.describe(chosen(c, cluster_alias), None, say), render.facts, output)


@task(positional=["cluster_alias"])
def credentials(c, cluster_alias=None, output=None):
    """Print address, user and token, to point other clients at the same cluster."""
    show(c, sdk.clusters.access_info(chosen(c, cluster_alias), None, say), render.facts, output)


@task(kinds={"port": int}, help={"port": "the port to listen on; else the one it had before"})
def start(c, port=0, output=None):
    """Start the embedded cluster."""
    started = sdk.clusters.start_embedded(sdk.clusters.local_options(settings(c), port))
    say("started the embedded cluster" if started else "the embedded cluster is running already")
    show(c, sdk.clusters.embedded_status(), render.facts, output)


@task(
    help={
        "keep-jobs": "let its jobs run on; they are found again at the next start",
        "force": "end it even if it does not answer",
    }
)
def stop(c, keep_jobs=False, force=False):
    """Stop the embedded cluster and its jobs."""
    stopped = sdk.clusters.stop_embedded(keep_jobs, say, force, settings(c).http_timeout)
    say("stopped the embedded cluster" if stopped else "the embedded cluster was not running")


@task()
def status(c, output=None):
    """Show the embedded cluster: process, port, folder, jobs."""
    show(c, sdk.clusters.embedded_status(), render.facts, output)
