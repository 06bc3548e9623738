"""Shell scripts for generated jobs, in POSIX sh.

Servers join commands with newlines or with ``&&``, so each step ends the job itself when it fails.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from openpai_tasks.errors import ProtocolError

MARK = "# openpai-tasks: "
"""Begins the first line of every generated step, so that it can be recognised and left out of views."""
MOUNTS = "/mnt/"
OUTPUT = "PAI_OUTPUT_DIR"
"""The variable with the folder for a job's outputs, which are kept."""
INTERACTIVE = "PAI_INTERACTIVE"
"""The variable that marks a container to work in."""
TIMED_OUT = 124
REQUEUED = 143
"""The exit code of a task that is to run again: OpenPAI retries it without counting it as a failure."""
_RUNS_AGAIN = "; the job runs again"
"""The end of a line among the last of such a task."""
GRACE = 10  # seconds between TERM and KILL when the time is up
LOGIN_LINE = 1000  # characters; some versions of sshd split longer lines

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.:@+, -]+")
_TIME_LIMIT = re.compile(
    rf"exit code (?:{TIMED_OUT}|\$pai_code): the time limit of (\d{{1,9}}) s was reached"
)
_ASKS_TO_RUN_AGAIN = re.compile(
    rf"exit code {REQUEUED}: the time limit of \d{{1,9}} s was reached{_RUNS_AGAIN}\r?$".encode(), re.M
)
_REQUEUES = re.compile(r"^pai_limit=\d{1,9} pai_grace=(\d{1,9}) pai_requeues=(\d{1,9})$", re.M)


def variable(name: str) -> str:
    """Return the name if a shell can export it, else raise."""
    if not _VARIABLE.fullmatch(name):
        raise ProtocolError(f"invalid variable name {name!r}: letters, digits and _ only")
    return name


def export(name: str, value: str) -> str:
    return f"export {variable(name)}={shlex.quote(value)}"


def read_export(step: str) -> dict[str, str]:
    """Return the variable of a step that only exports a value; empty for another step, or a secret."""
    if not step.startswith("export ") or "<%" in step:
        return {}
    try:
        words = shlex.split(step)
    except ValueError:
        return {}
    name, _, value = words[1].partition("=")
    return {name: value} if words[2:] == ["||", "exit", "1"] else {}


def secret_value(value: str) -> str:
    """Encode a secret for the document, as octal escapes for printf unless it is plain.

    The renderers of real servers turn ``&``, ``<``, quotes and other characters into HTML entities.
    """
    if _PLAIN.fullmatch(value):
        return value
    return "".join(f"\\{byte:03o}" for byte in value.encode())


def export_secret(name: str, value: str) -> str:
    """Return the export of a secret whose value is filled in only when the job runs."""
    hole = f"<% $secrets.{variable(name)} %>"
    if _PLAIN.fullmatch(value):
        return f"export {name}='{hole}'"
    return f"""{name}=$(printf '{hole}x') && export {name}="${{{name}%x}}\""""


_FOR_LOGINS = (
    f"{MARK}for logins: {{names}}\n"
    + """\
pai_login=/root/.ssh/environment
if [ -n "${{PAI_MOUNT_ROOT-}}" ]; then pai_login=$PAI_WORK_DIR/../ssh/environment; fi
if [ -w "$pai_login" ]; then printf '%s\\n' {lines} >>"$pai_login" || :; fi"""
)


def export_to_logins(variables: Mapping[str, str]) -> str:
    """Make exported variables visible in ssh sessions, by adding them to the file of the ssh plugin.

    Values with line breaks, or too long for one line, are left out; without the file, nothing is done.
    """
    names = [
        name
        for name, value in variables.items()
        if len(f"{name}={value}".encode("utf-8", "surrogateescape")) < LOGIN_LINE
        and not re.search(r"[\n\r\0]", name + value)
    ]
    lines = " ".join(f'"{name}=${{{variable(name)}-}}"' for name in names)
    return _FOR_LOGINS.format(names=", ".join(names), lines=lines) if names else ""


_LAYER = """\
import os, site, subprocess, sys, sysconfig, venv
layer, *packages = sys.argv[1:]
venv.create(layer, symlinks=True)
modules = sysconfig.get_path("purelib", "posix_prefix", {"base": layer, "platbase": layer})
known = site.getsitepackages() + [site.getusersitepackages()] * bool(site.ENABLE_USER_SITE)
with open(os.path.join(modules, "pai_base.pth"), "w") as file:
    file.writelines(f"import site; site.addsitedir({path!r})\\n" for path in known)
os.symlink(modules, os.path.join(layer, "modules"))
python = os.path.join(layer, "bin", "python")
if subprocess.run([python, "-c", "import pip"], stderr=subprocess.DEVNULL).returncode:
    if subprocess.run([python, "-m", "ensurepip"], capture_output=True).returncode:
        here = f"{sys.executable} has no pip, and cannot install it"
        sys.exit(f"error: cannot install packages: {here}; install python3-pip, or python3-venv")
os.execve(python, [python, "-m", "pip", "install", *packages], {**os.environ, "PIP_USER": "0"})
"""
_INSTALL = (
    f"{MARK}{{title}}\n"
    + """\
if [ -n "${{PAI_MOUNT_ROOT-}}" ]; then
  pai_layer=${{PAI_WORK_DIR%/work}}/packages
  {python} -c {layer} "$pai_layer" {packages} || exit 1
  export PATH="$PATH:$pai_layer/bin" PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$pai_layer/modules"
else
  {python} -m pip install {packages} || exit 1
fi"""
)


def install(python: str, packages: Iterable[str]) -> str:
    """Install packages in the container; in a job that is a process of this machine, for that job only.

    There they go into a layer over the packages that the job's Python can import: a virtual environment that
    sees these and no others, and whose modules come after those of the job's sources.
    """
    words = " ".join(map(shlex.quote, packages))
    title = f"{python} -m pip install {words}".replace("\n", " ")
    layer = shlex.quote(_LAYER)
    return _INSTALL.format(title=title, python=shlex.quote(python), layer=layer, packages=words)


def step(command: str) -> str:
    """Return the command with an exit from the job if it fails."""
    return f"{command} || exit 1"


def quote_mounted(path: str) -> str:
    """Quote a path, relative to PAI_MOUNT_ROOT on clusters that cannot mount at the root."""
    escaped = re.sub(r'([\\"$`])', r"\\\1", path)
    return f'"${{PAI_MOUNT_ROOT-}}{escaped}"' if path.startswith(MOUNTS) else f'"{escaped}"'


_SCRIPT, _OPTIONS = "pai_script=", "\npai_options=$(set +o)\n"
_LIMITED = (
    f"{_SCRIPT}{{script}}{_OPTIONS}"
    + """\
case $- in *e*) pai_options="$pai_options; set -e" ;; esac
pai_script="$pai_options
${{pai_on_exit-}}
$pai_script"
pai_child= pai_clock= pai_stopped= pai_begun=$(date +%s)
trap 'pai_stopped=1; [ -z "$pai_child" ] || kill -TERM "$pai_child" 2>/dev/null || :' TERM
if timeout -k 1 1 true 2>/dev/null; then
  timeout -k {grace} {seconds} "${{BASH:-sh}}" -c "$pai_script" & pai_child=$!
else
  "${{BASH:-sh}}" -c "$pai_script" & pai_child=$!
  (sleep {seconds}; kill -TERM "$pai_child") >/dev/null 2>&1 & pai_clock=$!
fi
[ -z "$pai_stopped" ] || kill -TERM "$pai_child" 2>/dev/null || :
pai_code=
while :; do
  pai_stopped=
  [ -z "$pai_clock" ] || kill -0 "$pai_child" 2>/dev/null ||
    {{ kill -KILL "$pai_clock" && wait "$pai_clock"; }} 2>/dev/null || :
  wait "$pai_child" 2>/dev/null && pai_last=0 || pai_last=$?
  case $pai_last in 127 | -*) [ -z "$pai_code" ] || break ;; esac
  pai_code=$pai_last
  [ -n "$pai_stopped" ] || break
done
[ -n "$pai_clock" ] || [ "$pai_code" -le 128 ] || kill -TERM "-$pai_child" 2>/dev/null || :
if [ -n "$pai_clock" ]; then
  kill -TERM "$pai_clock" 2>/dev/null || :
  if [ "$pai_code" -gt 128 ] && [ "$(($(date +%s) - pai_begun))" -ge {seconds} ]; then
    pai_code={timed_out}
  fi
fi
if [ "$pai_code" -eq {timed_out} ]; then
  echo "exit code {timed_out}: the time limit of {seconds} s was reached" >&2
fi
exit "$pai_code"
"""
)

_REQUEUED = (
    f"{_SCRIPT}{{script}}{_OPTIONS}"
    + """\
pai_limit={seconds} pai_grace={grace} pai_requeues={requeues}
case $- in *e*) pai_options="$pai_options; set -e" ;; esac
pai_script="$pai_options
${{pai_on_exit-}}
trap 'pai_last=\\$?; [ \\$pai_last -eq 0 ] || exit \\$pai_last' TERM
$pai_script"
pai_child= pai_stopped= pai_begun=$(date +%s)
case ${{SLURM_JOB_END_TIME-}} in
  '' | *[!0-9]*) ;;
  *) pai_left=$((SLURM_JOB_END_TIME - pai_begun - 5))
    [ "$pai_left" -ge "$pai_limit" ] || pai_limit=$((pai_left > pai_grace ? pai_left : pai_grace + 1)) ;;
esac
pai_tree() {{
  echo "$1"
  for pai_one in $(cat "/proc/$1/task/"*/children 2>/dev/null); do pai_tree "$pai_one"; done
}}
pai_signal() {{ kill "-$1" $(pai_tree "$2") 2>/dev/null || :; }}
trap 'pai_stopped=1; [ -z "$pai_child" ] || pai_signal TERM "$pai_child"' TERM
"${{BASH:-sh}}" -c "$pai_script" & pai_child=$!
(
  trap - TERM
  sleep $((pai_limit - pai_grace))
  pai_signal TERM "$pai_child"
  sleep "$pai_grace"
  pai_signal KILL "$pai_child"
) >/dev/null 2>&1 & pai_clock=$!
[ -z "$pai_stopped" ] || pai_signal TERM "$pai_child"
pai_code=
while :; do
  pai_stopped=
  wait "$pai_child" 2>/dev/null && pai_last=0 || pai_last=$?
  case $pai_last in 127 | -*) [ -z "$pai_code" ] || break ;; esac
  pai_code=$pai_last
  [ -n "$pai_stopped" ] || break
done
{{ pai_signal KILL "$pai_clock" && wait "$pai_clock"; }} 2>/dev/null || :
pai_left=$((pai_begun + pai_limit - $(date +%s)))
if [ "$pai_code" -ne 0 ] && [ "$pai_left" -le "$pai_grace" ]; then
  pai_code={timed_out} pai_then=
  if [ "${{PAI_REQUEUES:-${{FC_FRAMEWORK_ATTEMPT_ID:-$pai_requeues}}}}" -lt "$pai_requeues" ]; then
    pai_code={requeued} pai_then="{again}"
  fi
  if [ "${{PAI_TASKS_NUM:-1}}" -gt 1 ] && [ "$pai_left" -gt 0 ]; then
    sleep "$pai_left" & wait $! || :
  fi
  echo "exit code $pai_code: the time limit of {seconds} s was reached$pai_then" >&2
fi
exit "$pai_code"
"""
)


def limit_time(command: str, seconds: int, requeues: int = 0, grace: int = 0) -> str:
    """Limit the time of a command with ``timeout`` or, without it, with the shell.

    The command runs in the same kind of shell with the same options, and gets the same signals. A ``wait``
    that a signal interrupted is repeated; 127 then means that the child had ended already. ``timeout`` can
    end without its command if a signal comes as soon as it has started it, so its process group is signalled
    again. The clock is waited for where it is killed, since bash would report its end in the job's output.

    With ``requeues``, every process of the command gets TERM ``grace`` seconds before the limit, and the exit
    code is REQUEUED unless the command then ends with 0. They get it at once, each before its children, whose
    end could otherwise end it before it has saved. The server counts the runs in PAI_REQUEUES; on OpenPAI,
    all attempts of the job count. A task of several waits for the limit, as the first to end stops the
    others, which may still be saving. Slurm's own limit counts if it comes earlier.
    """
    script = shlex.quote(command)
    if requeues:
        ends = {"timed_out": TIMED_OUT, "requeued": REQUEUED, "again": _RUNS_AGAIN}
        limits = {"seconds": seconds, "grace": grace or default_grace(seconds), "requeues": requeues}
        return _REQUEUED.format(script=script, **ends, **limits).rstrip("\n")
    return _LIMITED.format(script=script, seconds=seconds, grace=GRACE, timed_out=TIMED_OUT).rstrip("\n")


def default_grace(seconds: int) -> int:
    """Return the seconds before a time limit at which a command that can be requeued gets TERM."""
    return max(1, min(60, seconds // 10))


def requeueing(command: str) -> tuple[int, int]:
    """Return how often a result of ``limit_time`` may be requeued, and its grace period; zeros if never."""
    found = _REQUEUES.search(command) if "$pai_script" in command else None
    return (int(found[2]), int(found[1])) if found else (0, 0)


def asks_to_run_again(log: bytes) -> bool:
    """Whether a result of ``limit_time`` asks in the end of its log to be requeued.

    Its line need not be the last: container runtimes may log the last lines of stdout after those of stderr.
    """
    return bool(_ASKS_TO_RUN_AGAIN.search(log))


def unlimited(command: str) -> str:
    """Return the command inside a result of ``limit_time``; any other command as it is."""
    if time_limit(command) is None or not command.startswith(_SCRIPT):
        return command
    quoted, rest, _ = command.removeprefix(_SCRIPT).rpartition(_OPTIONS)
    try:
        [own] = shlex.split(quoted) if rest else []
    except ValueError:
        return command
    return own


def time_limit(command: str) -> int | None:
    """Return the seconds after which a result of ``limit_time`` ends; None for another command."""
    if "$pai_script" not in command:
        return None
    match = _TIME_LIMIT.search(command)
    return int(match[1]) if match else None
