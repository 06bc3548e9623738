"""Show and remove the files that jobs and copies left on a storage."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.plain_text import counted
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.prompts import confirm
from openpai_tasks.tasks.framework.screen import say_view
from openpai_tasks.tasks.framework.task import task

WORKSPACE = "folder on the storage (default: the selected workspace, or yours on the default storage)"
STATES = "only files of jobs in this state (SUCCEEDED, FAILED, STOPPED, GONE); repeat for more"


@task(help={"workspace": WORKSPACE})
def usage(c, workspace=None, cluster_alias=None, output=None):
    """Show the files that jobs left on the storage, and their size."""
    client, home = _home(c, cluster_alias, workspace)
    show(c, sdk.files.find_leftovers(client, home), views.leftovers.usage, output)


@task(
    positional=["paths"],
    iterable=["paths", "state"],
    help={
        "paths": "remove what interrupted copies left below these folders, instead of files of jobs",
        "older-than": "only files of jobs that ended, or parts of copies of other machines that changed, "
        "longer ago than this: 30d, 12h, 90m",
        "state": STATES,
        "yes": "do not ask",
        "preview": "only show what would be removed",
        "workspace": WORKSPACE,
    },
)
def clean(
    c,
    paths=None,
    older_than=None,
    state=None,
    yes=False,
    preview=False,
    workspace=None,
    cluster_alias=None,
    output=None,
):
    """Remove outputs and sources of ended jobs or, in given folders, what interrupted copies left."""
    seconds = None if older_than is None else sdk.amounts.parse_seconds(older_than, "--older-than")
    if paths:
        if state or workspace or cluster_alias:
            raise ConfigError(
                "--state, --workspace and --cluster-alias are for files of jobs, not for a path"
            )
        places = sdk.files.locate_all(paths, sdk.files.ClusterStorages(settings(c), say))
        parts = sdk.files.clean_parts(places, seconds, preview)
        show(c, parts, views.leftovers.cleaned_parts, output)
        return sdk.files.check_parts(parts)
    if seconds is None:
        raise ConfigError("--older-than is required, for example --older-than 30d")
    client, home = _home(c, cluster_alias, workspace)
    cleaning = sdk.files.plan_cleanup(sdk.files.find_leftovers(client, home), seconds, state or ())
    if not preview and not yes and (cleaning.jobs or cleaning.archives):
        _ask(cleaning, home.url)
    cleaned = sdk.files.clean_up(client, home, cleaning, preview)
    show(c, cleaned, views.leftovers.cleaned, output)
    sdk.files.check_cleaned(cleaned)


def _home(c, cluster_alias, workspace):
    given = settings(c, workspace=workspace)
    client = connect(c, cluster_alias)
    home = sdk.files.require_home(client, given.workspace, sdk.files.mounts(given))
    if home.note:
        say(home.note)
    return client, home


def _ask(cleaning, url):
    """Show what would be removed, and ask; raise if there is no terminal to ask on."""
    jobs, archives = counted(len(cleaning.jobs), "job"), counted(len(cleaning.archives), "archive")
    count = f"{jobs} and {archives} of sources"
    if not sys.stdin.isatty():
        raise ConfigError(f"not removed from {url}: {count}; add --yes to remove or --preview to list them")
    say_view(views.leftovers.table(cleaning.jobs))
    confirm(f"remove the files of {count} ({render.size(cleaning.size)}) from {url}?")
