"""What jobs left behind on a storage, and its removal."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task
from openpai_tasks.tasks.framework.prompts import confirm
from openpai_tasks.tasks.framework.screen import say_view

WORKSPACE = "the folder on the storage; the selected one, or yours on the default storage, if not given"
STATES = "only of jobs in this state (SUCCEEDED, FAILED, STOPPED, GONE); repeat for more"


@task(help={"workspace": WORKSPACE})
def usage(c, workspace=None, cluster_alias=None, output=None):
    """Show what jobs left behind on the storage, and how large it is."""
    client, home = _home(c, cluster_alias, workspace)
    show(c, sdk.files.find_leftovers(client, home), views.leftovers.usage, output)


@task(
    positional=[],
    iterable=["state"],
    help={
        "older-than": "only of jobs that have been over for so long: 30d, 12h, 90m",
        "state": STATES,
        "yes": "do not ask",
        "preview": "only tell what would be removed",
        "workspace": WORKSPACE,
    },
)
def clean(
    c, older_than=None, state=None, yes=False, preview=False, workspace=None, cluster_alias=None, output=None
):
    """Remove what jobs left behind that are over: their output, and sources that no other job uses."""
    if older_than is None:
        raise ConfigError("say how old the files must be that are removed: --older-than 30d")
    seconds = sdk.amounts.seconds(older_than, "--older-than")
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
    """Show what would go, and ask; where nobody can be asked, nothing goes."""
    count = f"{len(cleaning.jobs)} jobs and {len(cleaning.archives)} archives of sources"
    if not sys.stdin.isatty():
        raise ConfigError(f"{count} would be removed from {url}; --yes removes them, --preview shows them")
    say_view(views.leftovers.table(cleaning.jobs))
    confirm(f"remove the files of {count} ({render.size(cleaning.size)}) from {url}?")
