"""The runtime plugins of a document: their steps before and after a task's commands.

``cmd`` and ``git`` are run; with ``ssh``, the commands wait for the SSH service. Plugins that only work in
containers are left out, with an event; an unknown plugin fails the job, unless its ``failurePolicy`` is
``ignore``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobDocument, states
from openpai_tasks.protocol.document import references, template
from openpai_tasks.protocol.document.roles import PLUGINS
from openpai_tasks.protocol.legacy.conversion import CODE_LINK, EXPORT_CODE
from openpai_tasks.protocol.yaml.values import text_of
from openpai_tasks.server.ssh import plugin as ssh_plugin
from openpai_tasks.server.ssh.plugin import SshRequest

Data = dict[str, Any]

CODE = "/usr/local/pai/code"
_STARTS, _ENDS = ("taskStarts", "containerStarts"), ("taskSucceeds", "containerEnds")


@dataclass(frozen=True)
class PluginStep:
    """A script of a plugin; if ``may_fail``, its failure does not end the task."""

    script: str
    may_fail: bool

    def __repr__(self) -> str:
        return f"PluginStep(may_fail={self.may_fail})"  # the script may contain secrets


@dataclass(frozen=True)
class PluginPlan:
    before: tuple[PluginStep, ...] = ()
    after: tuple[PluginStep, ...] = ()
    notes: tuple[str, ...] = ()  # what is left out, and why
    ssh: SshRequest | None = None

    def scripts(self, commands: str) -> dict[str, str]:
        """Return the scripts of a task by name: ``command``, which is run, and those of its steps."""
        if not (self.before or self.after):
            return {"command": commands}
        names = {f"command.before-{number}": step for number, step in enumerate(self.before)}
        last = {f"command.after-{number}": step for number, step in enumerate(self.after)}
        lines = [*map(_call, names, names.values()), _MAIN, *map(_call, last, last.values())]
        files = {name: step.script for name, step in {**names, **last}.items()}
        return {"command": "\n".join([_HEAD, *lines]), "command.main": commands, **files}


# Each script is a separate process, so that an `exit` ends only that script; the process that runs handles
# the TERM that all of them get. A TERM before the commands run keeps them from starting.
_HEAD = """\
stopped=
trap 'stopped=143' TERM
trap 'stopped=130' INT
folder=${0%/*}
strict=-eu; [ -z "${BASH-}" ] || strict='-eu -o pipefail'"""
_MAIN = """\
[ -z "$stopped" ] || exit "$stopped"
"${BASH:-sh}" $strict "$folder/command.main\""""


def _call(name: str, step: PluginStep) -> str:
    path = f'"$folder/{name}"'
    return f'"${{BASH:-sh}}" {path} || :' if step.may_fail else f'"${{BASH:-sh}}" -e {path}'


def plan(document: JobDocument, role: str) -> PluginPlan:
    """Return the steps and notes of all plugins of one task role, and the download of its code folder."""
    before: list[PluginStep] = []
    after: list[PluginStep] = []
    notes: list[str] = []
    ssh: SshRequest | None = None
    code = fetch_code(document, role)
    before += [PluginStep(code, may_fail=False)] if code else []
    for plugin in _plugins_of(document, role):
        name, may_fail = plugin["plugin"], _policy(plugin) == "ignore"
        if name in _SKIPPED:
            notes += [f"the plugin {name} is ignored: {_SKIPPED[name]}"] if _SKIPPED[name] else []
        elif name == "ssh":
            ssh = ssh_plugin.read(_parameters(document, role, plugin), document.gang, _policy(plugin))
            before.append(PluginStep(ssh_plugin.script(ssh), may_fail=not ssh.must))
        elif name in _RUN:
            first, last = _RUN[name](_parameters(document, role, plugin))
            before += [PluginStep(first, may_fail)] if first else []
            after[:0] = [PluginStep(last, may_fail)] if last else []
        elif may_fail:
            notes.append(f"the plugin {name} is ignored: it is unknown here")
        else:
            raise ConfigError(f"no runtime plugin named {name!r} here (known: {', '.join([*_RUN, 'ssh'])})")
    return PluginPlan(tuple(before), tuple(after), tuple(notes), ssh)


def _plugins_of(document: JobDocument, role: str) -> Iterator[Data]:
    """Yield the plugins of the role: those of its prerequisites, then those in the extras."""
    wanted = dict(references.roles(document.data))[role].get("prerequisites", ())
    given = {item["name"]: item for item in document.data.get("prerequisites", ())}
    for name in wanted:
        item = given[name]
        plugin = item.get("plugin")
        if isinstance(plugin, str) and plugin.startswith(f"{PLUGINS}."):
            about = {key: item[key] for key in ("failurePolicy",) if key in item}
            rest = {key: value for key, value in item.items() if key not in ("plugin", "type", *about)}
            yield {"plugin": plugin.removeprefix(f"{PLUGINS}."), "parameters": rest, **about}
    listed = document.extras.get(PLUGINS) or []
    if not isinstance(listed, list):
        raise ConfigError(f"extras.{PLUGINS} must be a list")
    for plugin in listed:
        if not isinstance(plugin, dict) or not isinstance(plugin.get("plugin"), str):
            raise ConfigError(f"extras.{PLUGINS}: each item needs the name of a plugin")
        if _is_for(plugin.get("taskroles"), role):
            yield plugin


def _is_for(roles: Any, role: str) -> bool:
    names = (role, states.role_key(role))
    return not isinstance(roles, list) or any(one in names for one in roles)


def _policy(plugin: Data) -> str:
    """Return the failure policy; empty if none is given."""
    return str(plugin.get("failurePolicy", "")).lower()


def _parameters(document: JobDocument, role: str, plugin: Data) -> Data:
    """Return the plugin's parameters with their templates rendered."""
    given = plugin.get("parameters") or {}
    if not isinstance(given, dict):
        raise ConfigError(f"plugin {plugin['plugin']}: its parameters must be a mapping")
    rendered: Data = _render(document, role, given)
    return rendered


def _render(document: JobDocument, role: str, value: Any) -> Any:
    """Render the templates in all strings of the parameters, including secrets."""
    if isinstance(value, str):
        names = references.names(document.data, role)
        return template.render(value, {**names, "$secrets": document.secrets})
    if isinstance(value, list):
        return [_render(document, role, one) for one in value]
    if isinstance(value, dict):
        return {key: _render(document, role, one) for key, one in value.items()}
    return value


def _cmd(parameters: Data) -> tuple[str, str]:
    """Return the commands before and after, given directly or by event."""
    callbacks = parameters.get("callbacks")
    if callbacks is None:
        return _join_lines(parameters.get("preCommands")), _join_lines(parameters.get("postCommands"))
    if "preCommands" in parameters or "postCommands" in parameters:
        raise ConfigError("plugin cmd: give callbacks, or preCommands and postCommands, not both")
    found = [one for one in callbacks if isinstance(one, dict)] if isinstance(callbacks, list) else []
    first, last = (
        "\n".join(_join_lines(one.get("commands")) for one in found if one.get("event") in events)
        for events in (_STARTS, _ENDS)
    )
    return first, last


def _git(parameters: Data) -> tuple[str, str]:
    """Return a clone command; like storages, an absolute folder is below the folder of mounts."""
    if not parameters.get("repo_uri"):
        raise ConfigError("plugin git: it needs a repo_uri")
    given = parameters.get("options") or []
    if not isinstance(given, list):
        raise ConfigError("plugin git: its options must be a list")
    try:
        options = [word for one in given for word in shlex.split(text_of(one))]
    except ValueError as err:
        raise ConfigError(f"plugin git: invalid options: {err}") from None
    folder = text_of(parameters.get("clone_dir") or CODE)
    target = f'"$PAI_MOUNT_ROOT"{shlex.quote(folder)}' if folder.startswith("/") else shlex.quote(folder)
    words = shlex.join(["git", "clone", *options, "--", text_of(parameters["repo_uri"])])
    return f"export GIT_TERMINAL_PROMPT=0\n{words} {target}", ""


def _join_lines(commands: Any) -> str:
    return "\n".join(text_of(one) for one in commands) if isinstance(commands, list) else ""


def fetch_code(document: JobDocument, role: str) -> str:
    """Return the script that gets the ``codeDir`` of a job of version 1; empty if the role has none.

    OpenPAI 0.14 downloads the folder from its HDFS to the working folder, under its own name, before the
    commands begin; old guides also find it at ``CODE_LINK``. Here, a path without a server is looked for in
    the user's storage, then on this machine.
    """
    if EXPORT_CODE not in references.commands(document.data, role):
        return ""
    name = dict(references.roles(document.data))[role].get("script")
    uri = str(references.prerequisite(document.data, "script", name).get("uri", ""))
    copy = shlex.join([sys.executable, "-I", "-c", _RUN_PAI, _PACKAGES, "storage.copy"])
    return _FETCH.format(code=f'"{uri}"', copy=copy, link=CODE_LINK) if uri else ""


_PACKAGES = str(Path(__file__).parents[3])
_RUN_PAI = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from openpai_tasks.__main__ import main; "
    "sys.argv[0] = 'pai'; main()"
)
_FETCH = """\
pai_code={code}
pai_name=${{pai_code%"${{pai_code##*[!/]}}"}} && pai_name=${{pai_name##*/}}
pai_stop() {{ echo "error: cannot get the codeDir $pai_code: $1" >&2; exit 1; }}
case $pai_code in
hdfs://* | webhdfs://*)
  case $pai_code in *@*) ;; *) pai_code=${{pai_code%%://*}}://$PAI_USER_NAME@${{pai_code#*://}} ;; esac
  if [ -n "${{PAI_MOUNT_ROOT-}}" ]; then
    {copy} "$pai_code" "./$pai_name" >/dev/null || pai_stop "see above"
  elif command -v hdfs >/dev/null; then
    HADOOP_USER_NAME=$PAI_USER_NAME hdfs dfs -get "$pai_code" . || pai_stop "see above"
  else
    pai_stop "the image has no hdfs command"
  fi ;;
*)
  pai_found=
  for pai_place in "${{PAI_MOUNT_ROOT-}}/mnt/home/${{pai_code#/}}" "$pai_code"; do
    [ -n "$pai_found" ] || [ ! -e "$pai_place" ] || pai_found=$pai_place
  done
  [ -n "$pai_found" ] || pai_stop "no such folder in your storage or on this machine"
  cp -R -- "$pai_found" . || pai_stop "see above" ;;
esac
pai_link=${{PAI_MOUNT_ROOT-}}{link}
[ -e "$pai_link" ] || {{ mkdir -p "${{pai_link%/*}}" && ln -s "$PWD/$pai_name" "$pai_link"; }} 2>/dev/null ||
  echo "note: the codeDir is in ./$pai_name only, as $pai_link cannot be written" >&2"""
_RUN: dict[str, Callable[[Data], tuple[str, str]]] = {"cmd": _cmd, "git": _git}
_SKIPPED = {
    "tensorboard": "start tensorboard with a command of the job instead",
    "teamwise_storage": "",  # mounted like all other storages
}
