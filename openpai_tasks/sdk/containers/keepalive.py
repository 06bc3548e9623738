"""The command that keeps a container alive until a deadline that can be moved, and watches its GPUs.

Its state is in a folder that a login to the container finds: ``deadline`` is when it ends, ``idle`` since
when its GPUs are idle, both in seconds of the container's clock. A later deadline in that file, or in
``jobs/<job>/deadline`` of the mounted workspace, keeps it alive longer. All of it is POSIX sh.
"""

from __future__ import annotations

import re

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import DEADLINE as DEADLINE
from openpai_tasks.text import hints

MARK = "# openpai-tasks: keep-alive"
"""First line of the command, which identifies such a job."""
DEADLINE_SECONDS = 5  # between two looks at the deadline
GPU_SECONDS = 60  # between two looks at the GPUs, at most
BUSY_PERCENT = 5  # utilisation from which a GPU counts as busy
NO_STATE = 3
DEADLINE_DIGITS = 11  # of the latest accepted time

_STATE = """\
if [ -n "${PAI_MOUNT_ROOT-}" ]; then pai_state=$PAI_WORK_DIR/.pai-container
else pai_state=/tmp/.pai-container; fi
pai_is_time() {
  case $1 in '' | *[!0-9]* | ????????????*) return 1 ;; esac
}
"""
_STAY = """\
(umask 077 && mkdir -p "$pai_state") || exit 1
rm -f "$pai_state/idle"
pai_keep() {{
  pai_deadline=$1
  echo "$1" >"$pai_state/{deadline}.new" && mv -f "$pai_state/{deadline}.new" "$pai_state/{deadline}"
}}
pai_later() {{
  pai_value=$(cat "$1" 2>/dev/null) || return 0
  if pai_is_time "$pai_value" && [ "$pai_value" -ge "$pai_deadline" ]; then
    [ "$pai_value" -eq "$pai_deadline" ] || pai_keep "$pai_value"
  elif [ "$1" = "$pai_state/{deadline}" ]; then
    pai_keep "$pai_deadline"  # the file must show the deadline that counts
  fi
}}
pai_keep $(($(date +%s) + {seconds})) || exit 1
pai_watcher=
echo "this container runs for {seconds} s; keep it longer with \\`{extend} ${{PAI_JOB_NAME#*~}}\\`"
"""
_WATCH = """\
pai_use() {{
  if [ -n "${{CUDA_VISIBLE_DEVICES-}}" ]; then set -- -i "$CUDA_VISIBLE_DEVICES"; fi
  nvidia-smi "$@" --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null
}}
pai_watch() {{
  pai_since=$(date +%s) pai_warned=$(date +%s)
  while sleep {look} >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    pai_seen=$(pai_use) || continue
    pai_known= pai_busy=
    for pai_one in $pai_seen; do
      case $pai_one in *[!0-9]*) continue ;; esac
      pai_known=1
      [ "$pai_one" -lt {busy} ] || pai_busy=1
    done
    pai_time=$(date +%s)
    if [ -n "$pai_busy" ] || [ -z "$pai_known" ]; then
      pai_since=$pai_time pai_warned=$pai_time
      rm -f "$pai_state/idle"
    elif [ $((pai_time - pai_warned)) -ge {idle} ]; then
      pai_warned=$pai_time
      echo "$pai_since" >"$pai_state/idle"
      echo "warning: the GPUs of this container have been idle for $((pai_time - pai_since)) s;" \\
        "free them with \\`{stop} ${{PAI_JOB_NAME#*~}}\\`" >&2
    fi
  done
}}
if command -v nvidia-smi >/dev/null; then pai_watch & pai_watcher=$!; fi
"""
_LOOP = """\
while :; do
  pai_later "$pai_state/{deadline}"
  case ${{PAI_OUTPUT_DIR-}} in */output) pai_later "${{PAI_OUTPUT_DIR%/output}}/{deadline}" ;; esac
  pai_left=$((pai_deadline - $(date +%s)))
  [ "$pai_left" -gt 0 ] || break
  [ "$pai_left" -lt {nap} ] || pai_left={nap}
  sleep "$pai_left" >/dev/null 2>&1
done
[ -z "$pai_watcher" ] || kill "$pai_watcher" 2>/dev/null || :
echo "the time limit is reached, stopping this container"
"""
_PRINT = """\
[ -r "$pai_state/{deadline}" ] || exit {no_state}
echo "now ${{pai_now:-$(date +%s)}}"
for pai_one in {deadline} idle; do
  pai_value=$(cat "$pai_state/$pai_one" 2>/dev/null) || continue
  ! pai_is_time "$pai_value" || echo "$pai_one $pai_value"
done
"""
_EXTEND = """\
[ -r "$pai_state/{deadline}" ] || exit {no_state}
pai_now=$(date +%s)
pai_new=$((pai_now + {seconds})) pai_value=$(cat "$pai_state/{deadline}")
pai_is_time "$pai_value" && [ "$pai_new" -le "$pai_value" ] || {{
  echo "$pai_new" >"$pai_state/{deadline}.extended" &&
    mv -f "$pai_state/{deadline}.extended" "$pai_state/{deadline}" || exit 1
}}
"""


def command(seconds: int, idle_seconds: int) -> str:
    """Return the job's command; it warns after ``idle_seconds`` without GPU work, or never if 0."""
    look = max(1, min(GPU_SECONDS, idle_seconds // 3))
    watch = ""
    if idle_seconds:
        stop = hints.command("container.stop")
        watch = _WATCH.format(look=look, busy=BUSY_PERCENT, idle=idle_seconds, stop=stop)
    stay = _STAY.format(deadline=DEADLINE, seconds=seconds, extend=hints.command("container.extend"))
    loop = _LOOP.format(deadline=DEADLINE, nap=DEADLINE_SECONDS)
    return f"{MARK}\n{_STATE}{stay}{watch}{loop}".rstrip("\n")


def is_keep_alive(command: str) -> bool:
    """Return whether this command only keeps its container alive."""
    return MARK in command.splitlines()


def initial_seconds(command: str) -> int:
    """Return how many seconds the container stays by default; 0 if unknown."""
    found = re.search(r"^pai_keep \$\(\(\$\(date \+%s\) \+ (\d+)\)\)", command, re.M)
    return int(found[1]) if found else 0


def parse_deadline(text: bytes) -> int:
    """Parse a deadline as the container does; 0 if it is invalid."""
    found = re.fullmatch(rb"(\d{1,%d})\n?" % DEADLINE_DIGITS, text)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class ContainerStay:
    """How long a container still stays, and how long its GPUs have been idle, in seconds."""

    left: int
    idle: int | None = None


def state_command() -> str:
    """Return the command that prints the state; it exits with NO_STATE in any other container."""
    return _STATE + _PRINT.format(deadline=DEADLINE, no_state=NO_STATE)


def extend_command(seconds: int) -> str:
    """Return the command that keeps the container alive that long from now, and never shortens its stay."""
    return _STATE + _EXTEND.format(deadline=DEADLINE, seconds=seconds, no_state=NO_STATE) + state_command()


def parse_stay(text: str) -> ContainerStay | None:
    """Parse the output of ``state_command``."""
    found = {name: int(value) for name, value in re.findall(r"^(now|deadline|idle) (\d+)$", text, re.M)}
    if "now" not in found or "deadline" not in found:
        return None
    since = found.get("idle")
    return ContainerStay(found["deadline"] - found["now"], None if since is None else found["now"] - since)
