"""Show and change the settings."""

from __future__ import annotations

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy import lazy
from openpai_tasks.tasks import _output, _parser
from openpai_tasks.tasks._base import say, settings, show, task

commands = lazy("openpai_tasks.tasks._commands")
config = lazy("openpai_tasks.config")

COLUMNS = ("name", "value", "origin", "about")


@task(name="show", default=True)
def show_(c, output=None):
    """Show every setting, its value and where it came from."""
    loaded = settings(c)
    rows = [
        {
            "name": name,
            "value": getattr(loaded, variable.field),
            "origin": loaded.origins[name],
            "about": variable.about,
        }
        for name, variable in config.VARIABLES.items()
    ]
    show(c, rows, COLUMNS, output)


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
    path = config.defaults_path(is_global)
    changes = dict(_pair(word) for word in values)
    config.change_defaults(path, changes)
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
    path = config.defaults_path(is_global)
    config.change_defaults(path, {}, [_known(name, path) for name in names])
    say(f"unset {', '.join(names)} in {path}")


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
    _output.exact(commands.completion_script(_parser.running[0], shell, program) + "\n")


def _pair(word):
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is not name=value")
    variable = config.find(name)
    if not text.strip():
        raise ConfigError(f"{variable.name} would be empty; `config.unset {variable.name}` removes it")
    return variable.name, variable.read(text, "config.set")


def _known(name, path):
    """The name of a setting; one that only the file knows can be removed too."""
    return name if name in config.read_defaults(path) else config.find(name).name
