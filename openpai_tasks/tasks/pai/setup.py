"""Set up a project, and check that everything works."""

from __future__ import annotations

import sys
from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.hints import command
from openpai_tasks.tasks.framework.base import say, show, trusted_settings
from openpai_tasks.tasks.framework.prompts import answer
from openpai_tasks.tasks.framework.task import task


@task(
    positional=["folder"],
    help={
        "folder": "the project folder; created if missing (default: this folder)",
        "image": "the docker image that jobs run in; asked for on a terminal",
        "cluster-alias": "the cluster that jobs run on (default: the selected one); asked for on a terminal",
        "yes": "do not ask",
    },
)
def init(c, folder=".", image=None, cluster_alias=None, yes=False, output=None):
    """Write the files of a new project: invoke.yaml, tasks.py and .paiignore."""
    given = trusted_settings(c, image=image, cluster_alias=cluster_alias)
    known = [cluster.alias for cluster in sdk.clusters.list_clusters(given)]
    chosen = {"image": given.image} | ({"cluster-alias": cluster_alias} if cluster_alias else {})
    if not yes and sys.stdin.isatty():
        chosen["image"] = chosen["image"] if image else _ask("image of jobs", given.image)
        if not cluster_alias and len(known) > 1:
            chosen["cluster-alias"] = _ask(f"cluster ({', '.join(known)})", given.cluster_alias)
    sdk.clusters.open_registry(given).get(chosen.get("cluster-alias", given.cluster_alias))
    sdk.images.check_reference(chosen["image"], "--image")
    show(c, sdk.project_files.write_project(Path(folder), chosen), ("file", "result"), output)
    say(f'next: `{command("config.doctor")}`, then `{command("job.sub")} "python train.py" --sources .`')


@task()
def doctor(c, cluster_alias=None, output=None):
    """Check Python, the engine, the cluster and login, storage, ssh and image; say what to do."""
    found = list(sdk.doctor.examine(trusted_settings(c, cluster_alias=cluster_alias)))
    show(c, found, _lines, output)
    sdk.doctor.check_findings(found)


def _ask(what, default):
    return answer(f"{what} [{default}]: ") or default


def _lines(found):
    """Return a line for each finding, and one for what to do."""
    lines = []
    for one in found:
        lines.append(f"{one.state:5} {one.check:9} {one.about}")
        if one.command:
            lines.append(f"{'':15} → {one.command}")
    return "\n".join(lines)
