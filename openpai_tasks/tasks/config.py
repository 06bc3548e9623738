"""Show and change the settings."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import parser, terminal
from openpai_tasks.tasks.framework.base import say, settings_in_force, show, task

COLUMNS = ("name", "value", "origin", "about")
FOLDER = {"folder": "the project folder; those whose settings count here if not given"}


@task(name="show", default=True)
def show_(c, output=None):
    """Show every setting, its value and where it came from."""
    loaded = settings_in_force(c)
    rows = [_row(loaded, variable) for variable in user_settings.config.VARIABLES.values()]
    show(c, rows, COLUMNS, output or loaded.output)
    for file, lines in user_settings.trust.by_file(loaded.withheld):
        say(f"not trusted, so it does not count: {', '.join(lines)} ({file})")
    for folder in user_settings.trust.folders():
        say(f"trusted: {folder}")


@task(
    name="set",
    iterable=["values"],
    help={
        "values": "name=value, and more of them; a list as name=a,b",
        "is-global": "for all your projects (~/.openpai), not only for this folder (./.openpai)",
    },
)
def set_(c, values, is_global=False):
    """Set defaults for this folder, or for all your projects."""
    path = user_settings.layers.defaults_path(is_global)
    changes = dict(_pair(word) for word in values)
    user_settings.config.change_defaults(path, changes)
    say(f"set {', '.join(changes)} in {path}")


@task(
    iterable=["names"],
    help={
        "names": "the settings to forget",
        "is-global": "in ~/.openpai, not in this folder's ./.openpai",
    },
)
def unset(c, names, is_global=False):
    """Remove defaults of this folder, or of all your projects."""
    path = user_settings.layers.defaults_path(is_global)
    user_settings.config.change_defaults(path, {}, [_known(name, path) for name in names])
    say(f"unset {', '.join(names)} in {path}")


@task(positional=["folder"], help=FOLDER)
def trust(c, folder=None):
    """Let a project folder reach further than its jobs."""
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"no folder {folder!r}")
    for one in _folders(c, folder):
        wanted = user_settings.config.project_claims(one, one if folder else Path.cwd())
        user_settings.trust.remember(wanted)
        for file, lines in user_settings.trust.by_file(wanted):
            say(f"trusted: {', '.join(lines)} ({file})")
        if not wanted:
            say(f"nothing in {one} needs trust")


@task(positional=["folder"], help=FOLDER)
def untrust(c, folder=None):
    """Trust a project folder no more."""
    for one in _folders(c, folder):
        say(f"no longer trusted: {one}" if user_settings.trust.forget(one) else f"{one} was not trusted")


@task(
    positional=["shell"],
    iterable=["program"],
    help={
        "shell": "bash, zsh or fish",
        "program": "the command whose lines to complete, such as inv; repeat for more",
    },
)
def completion(c, shell, program=None):
    """Print the script that completes command lines at a TAB."""
    from openpai_tasks.tasks.framework.command_table import completion_script

    terminal.exact(completion_script(parser.running[0], shell, program) + "\n")


def _row(loaded, variable):
    """A setting, marked for programs if it is not trusted or may not lead out of a folder."""
    value = getattr(loaded, variable.field)
    row = {
        "name": variable.name,
        "value": value,
        "origin": loaded.origins[variable.name],
        "about": variable.about,
        "not_trusted": [f"{one.file} sets {one}" for one in loaded.withheld if one.setting == variable.name],
        "within": getattr(value, "folder", ""),
    }
    return {key: item for key, item in row.items() if key in COLUMNS or item}


def _folders(c, given):
    """The folder named, or those whose files count here: this one, and the one with the invoke.yaml."""
    if given is not None:
        return [Path(given).absolute()]
    above = getattr(c.config, "_project_prefix", None)
    return list(dict.fromkeys([Path.cwd(), *([Path(above)] if above else [])]))


def _pair(word):
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is not name=value")
    variable = user_settings.config.find(name)
    if not text.strip():
        raise ConfigError(f"{variable.name} would be empty; `config.unset {variable.name}` removes it")
    return variable.name, variable.read(text, "config.set")


def _known(name, path):
    """The name of a setting; one that only the file knows can be removed too."""
    return name if name in user_settings.layers.read_defaults(path) else user_settings.config.find(name).name
