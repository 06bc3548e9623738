"""Show and change the settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.compat import project_folder
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import parser, terminal
from openpai_tasks.tasks.framework.base import say, show, trusted_settings
from openpai_tasks.tasks.framework.prompts import answer
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.text.hints import command

if TYPE_CHECKING:
    from openpai_tasks.sdk.doctor import HealthCheck
    from openpai_tasks.settings.config import Settings, Variable

COLUMNS = ("name", "value", "origin", "about")
FOLDER_HELP = {"folder": "the project folder (default: the folders whose settings apply here)"}


@task(name="show", default=True)
def show_(c: Context, output: str | None = None) -> None:
    """Show all settings, their values and where they come from."""
    loaded = trusted_settings(c)
    rows = [_row(loaded, variable) for variable in user_settings.config.all_variables()]
    show(c, rows, COLUMNS, output or loaded.output)
    for file, lines in user_settings.trust.claims_by_file(loaded.withheld):
        say(f"ignored, not trusted: {', '.join(lines)} ({file})")
    for folder in user_settings.trust.folders():
        say(f"trusted: {folder}")


@task(
    name="set",
    help={
        "values": "name=value, one or more; lists as name=a,b",
        "is-global": "for all your projects (~/.openpai), not only this one (.openpai in its folder)",
    },
)
def set_(c: Context, values: list[str], is_global: bool = False) -> None:
    """Set defaults for this project, or for all your projects."""
    path = user_settings.layers.defaults_path(is_global)
    needed = [word for word in values if not _explain_old(word.partition("=")[0])]
    changes = dict(_pair(word) for word in needed)
    if changes:
        user_settings.config.change_defaults(path, changes)
        say(f"set {', '.join(changes)} in {path}")


@task(
    help={
        "names": "settings to remove",
        "is-global": "from ~/.openpai, not from this project's .openpai",
    },
)
def unset(c: Context, names: list[str], is_global: bool = False) -> None:
    """Remove defaults for this project, or for all your projects."""
    path = user_settings.layers.defaults_path(is_global)
    kept = user_settings.layers.read_defaults(path)
    needed = [name for name in names if name in kept or not _explain_old(name)]
    if needed:
        given = [name if name in kept else user_settings.config.find(name).name for name in needed]
        removed = user_settings.config.change_defaults(path, {}, given)
        if removed:
            sdk.clusters.forget_settings(removed)
            say(f"unset {', '.join(removed)} in {path}")
        if absent := [name for name in given if name not in removed]:
            say(f"not set in {path}: {', '.join(absent)}")


@task(positional=["folder"], help=FOLDER_HELP)
def trust(c: Context, folder: str | None = None) -> None:
    """Trust a project folder with settings that reach further than its jobs."""
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"no such folder: {folder!r}")
    for one in _folders(c, folder):
        wanted = user_settings.config.project_claims(one, one if folder else Path.cwd())
        user_settings.trust.remember(wanted)
        for file, lines in user_settings.trust.claims_by_file(wanted):
            say(f"trusted: {', '.join(lines)} ({file})")
        if not wanted:
            say(f"nothing in {one} needs trust")


@task(positional=["folder"], help=FOLDER_HELP)
def untrust(c: Context, folder: str | None = None) -> None:
    """Stop trusting a project folder."""
    for one in _folders(c, folder):
        say(f"no longer trusted: {one}" if user_settings.trust.forget(one) else f"{one} was not trusted")


@task(
    help={
        "shell": "bash, zsh or fish",
        "program": "command to complete, such as inv; repeat for more (default: this program)",
    },
)
def completion(c: Context, shell: str, program: list[str] | None = None) -> None:
    """Print the completion script for a shell."""
    from openpai_tasks.tasks.framework.command_table import completion_script

    line = parser.current_line.get()
    if line is None:
        raise ConfigError("config.completion runs only from a command line")
    terminal.exact(completion_script(line.program, shell, program) + "\n")


def _row(loaded: Settings, variable: Variable) -> dict[str, Any]:
    """Return a setting as a row; ``not_trusted`` and ``within`` tell programs about its limits."""
    value = loaded.value(variable)
    row = {
        "name": variable.name,
        "value": variable.shown(value),
        "origin": loaded.origin(variable),
        "about": variable.about,
        "not_trusted": [f"{one.file} sets {one}" for one in loaded.withheld if one.setting == variable.name],
        "within": getattr(value, "folder", ""),
    }
    return {key: item for key, item in row.items() if key in COLUMNS or item}


def _folders(c: Context, given: str | None) -> list[Path]:
    """Return the given folder, or those whose settings count here: this one, and that of the invoke.yaml."""
    if given is not None:
        return [Path(given).absolute()]
    above = project_folder(c.config)
    here = Path.cwd()
    own = user_settings.project.own_folder(here)
    return list(dict.fromkeys([here, own, *([Path(above)] if above else [])]))


def _explain_old(name: str) -> bool:
    """Explain a setting of the older clients that is not needed here; return whether it is such a setting."""
    about = user_settings.config.OLD_NAMES.get(name)
    if about:
        say(f"{name} is not needed here, and was not set: {about}")
    return bool(about)


def _pair(word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"invalid setting {word!r}: expected name=value")
    variable = user_settings.config.find(name)
    if not text.strip():
        unset = command("config.unset", variable.name)
        raise ConfigError(f"no value for {variable.name}; `{unset}` removes the setting")
    return variable.name, variable.read(text, "config.set")


@task(
    positional=["folder"],
    help={
        "folder": "the project folder; created if missing (default: this folder)",
        "image": "the docker image that jobs run in; asked for on a terminal",
        "cluster-alias": "the cluster that jobs run on (default: the selected one); asked for on a terminal",
    },
)
def init(
    c: Context,
    folder: str = ".",
    image: str | None = None,
    cluster_alias: str | None = None,
    yes: bool = False,
    output: str | None = None,
) -> None:
    """Write the files of a new project: invoke.yaml, tasks.py, fabfile.py and .paiignore."""
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


@task(
    positional=["address"],
    help={
        "address": "an address to try, as for --notify (default: the hooks of the setting notify)",
        "test": "send a trial message from this machine",
    },
)
def notify(c: Context, address: str | None = None, test: bool = False, output: str | None = None) -> None:
    """Show the hooks that are notified of jobs, or send them a trial message."""
    hooks = sdk.jobs.read_hooks(address) or sdk.jobs.setting_hooks(trusted_settings(c))
    if test:
        sdk.jobs.send_trial(hooks, say)
    else:
        show(c, [{"hook": str(one)} for one in hooks], ("hook",), output)


@task()
def doctor(c: Context, cluster_alias: str | None = None, output: str | None = None) -> None:
    """Check Python, the engine, the cluster and login, storage, ssh and image; say what to do."""
    found = list(sdk.doctor.examine(trusted_settings(c, cluster_alias=cluster_alias)))
    show(c, found, _lines, output)
    sdk.doctor.check_findings(found)


def _ask(what: str, default: str) -> str:
    return answer(f"{what} [{default}]: ") or default


def _lines(found: Iterable[HealthCheck]) -> str:
    """Return a line for each finding, and one for what to do."""
    lines = []
    for one in found:
        lines.append(f"{one.state:5} {one.check:9} {one.about}")
        if one.command:
            lines.append(f"{'':15} → {one.command}")
    return "\n".join(lines)
