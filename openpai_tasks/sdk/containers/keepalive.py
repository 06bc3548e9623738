"""The command that keeps a container alive until a deadline that can be moved, or until nobody uses it.

Its state is in a folder that a login to the container finds: ``deadline`` is when it ends, ``idle`` since
when its GPUs are idle, both in seconds of the container's clock, and ``limit`` how many seconds it may be
idle. A later deadline in that file, or in ``jobs/<job>/deadline`` of the mounted workspace, keeps it alive
longer. All of it is POSIX sh.

A background process looks at its GPUs and its CPU time, and writes to ``quiet`` since when it used neither
and when it looked last: a program that hangs never makes a container count as idle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import DEADLINE as DEADLINE
from openpai_tasks.protocol.document.policy import BUSY_PERCENT, LOOK_SECONDS
from openpai_tasks.text import hints
from openpai_tasks.text.durations import format_duration

MARK = "# openpai-tasks: keep-alive"
"""First line of the command, which identifies such a job."""
DEADLINE_SECONDS = 5  # between two looks at the deadline
OVER, IDLE = "the time limit is reached", "idle for"
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
rm -f "$pai_state/{deadline}" "$pai_state/idle" "$pai_state/quiet" "$pai_state/limit"
pai_watcher= pai_end= pai_stop=0
pai_used=$(date +%s)
pai_keep() {{
  pai_deadline=$1
  echo "$1" >"$pai_state/{deadline}.new" && mv -f "$pai_state/{deadline}.new" "$pai_state/{deadline}"
}}
pai_later() {{
  pai_value=$(cat "$1" 2>/dev/null) || return 0
  if pai_is_time "$pai_value" && [ "$pai_value" -ge "$pai_deadline" ]; then
    [ "$pai_value" -eq "$pai_deadline" ] || {{ pai_used=$(date +%s) && pai_keep "$pai_value"; }}
  elif [ "$1" = "$pai_state/{deadline}" ]; then
    pai_keep "$pai_deadline"  # the file must show the deadline that counts
  fi
}}
echo "this container runs for {seconds} s; keep it longer with \\`{extend} ${{PAI_JOB_NAME#*~}}\\`"
"""
_KEEP = "pai_keep $(($(date +%s) + {seconds})) || exit 1\n"
"""After ``limit`` is written: a login that finds the deadline reads both."""
_CPU = """\
pai_stat() {{
  {{ IFS= read -r pai_line <"$1"; }} 2>/dev/null || return 1
  pai_line=${{pai_line##*) }}
}}
pai_cpu() {{
  pai_group=/sys/fs/cgroup
  if [ -n "${{PAI_MOUNT_ROOT-}}" ]; then
    pai_stat "/proc/$$/stat" || return 1
    set -- $pai_line
    pai_session=$4 pai_ticks=0
    for pai_one in $(grep -laF "PAI_WORK_DIR=$PAI_WORK_DIR" /proc/[0-9]*/environ 2>/dev/null); do
      pai_stat "${{pai_one%environ}}stat" || continue
      set -- $pai_line
      [ "$4" = "$pai_session" ] || pai_ticks=$((pai_ticks + ${{12}} + ${{13}} + ${{14}} + ${{15}}))
    done
    echo $((pai_ticks * 1000 / $(getconf CLK_TCK 2>/dev/null || echo 100)))
  elif [ -r $pai_group/cgroup.type ] && [ -r $pai_group/cpu.stat ]; then
    while read -r pai_name pai_value; do
      [ "$pai_name" != usage_usec ] || echo $((pai_value / 1000))
    done <$pai_group/cpu.stat
  elif [ -r $pai_group/cpuacct/cpuacct.usage ]; then
    echo $(($(cat $pai_group/cpuacct/cpuacct.usage) / 1000000))
  else
    return 1
  fi
}}
pai_is_entered() {{
  pai_port=$(printf %04X "${{PAI_CONTAINER_SSH_PORT:-0}}")
  ! grep -qs ": [0-9A-F]*:$pai_port [0-9A-F]*:[0-9A-F]* 01 " /proc/net/tcp /proc/net/tcp6 || return 0
  [ -z "${{PAI_MOUNT_ROOT-}}" ] || return 1
  for pai_one in /proc/[0-9]*/stat; do  # processes of `kubectl exec` have no parent here
    pai_stat "$pai_one" || continue
    case $pai_line in [!Z]" 0 "*) [ "$pai_one" = /proc/1/stat ] || return 0 ;; esac
  done
  return 1
}}
pai_before=$(pai_cpu) || pai_before=
if [ -n "$pai_before" ] && [ -r /proc/net/tcp ] && command -v grep >/dev/null; then
  pai_stop={stop}
  echo "$pai_stop" >"$pai_state/limit"
  echo "it stops earlier after {stop} s without a login and without CPU or GPU use"
else
  echo "warning: this container does not stop when it is idle: its CPU use or logins cannot be seen" >&2
fi
"""
_GPU = """\
pai_use() {{
  if [ -n "${{CUDA_VISIBLE_DEVICES-}}" ]; then set -- -i "$CUDA_VISIBLE_DEVICES"; fi
  nvidia-smi "$@" --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null
}}
pai_look_at_gpus() {{
  pai_known= pai_busy=
  pai_seen=$(pai_use) || return 0
  for pai_one in $pai_seen; do
    case $pai_one in *[!0-9]*) continue ;; esac
    pai_known=1
    [ "$pai_one" -lt {busy} ] || pai_busy=1
  done
}}
"""
_WATCH = """\
pai_watch() {{
  pai_since=$(date +%s)
  pai_warned=$pai_since pai_quiet=$pai_since pai_looked=$pai_since
  while sleep {look} >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    {look_at_gpus}
    pai_time=$(date +%s)
    if [ -n "$pai_busy" ] || [ -z "$pai_known" ]; then
      pai_since=$pai_time pai_warned=$pai_time pai_quiet=$pai_time
      rm -f "$pai_state/idle"
    elif [ {warn} -gt 0 ] && [ $((pai_time - pai_warned)) -ge {warn} ]; then
      pai_warned=$pai_time
      echo "$pai_since" >"$pai_state/idle.new" && mv -f "$pai_state/idle.new" "$pai_state/idle"
      echo "warning: the GPUs of this container have been idle for $((pai_time - pai_since)) s;" \\
        "free them with \\`{stop_command} ${{PAI_JOB_NAME#*~}}\\`" >&2
    fi
    [ "$pai_stop" -gt 0 ] || continue
    pai_now=$(pai_cpu) || pai_now=0
    pai_ms=$((pai_now - pai_before)) pai_most=$(((pai_time - pai_looked) * 10 * {busy} + {busy}))
    [ "$pai_ms" -ge 0 ] && [ "$pai_ms" -le "$pai_most" ] || pai_quiet=$pai_time
    pai_before=$pai_now pai_looked=$pai_time
    echo "$pai_quiet $pai_time" >"$pai_state/quiet.new" && mv -f "$pai_state/quiet.new" "$pai_state/quiet"
  done
}}
pai_watch & pai_watcher=$!
"""
_LOOP = """\
pai_is_idle() {{
  [ "$pai_stop" -gt 0 ] || return 1
  ! pai_is_entered || pai_used=$(date +%s)
  {{ read -r pai_quiet pai_looked <"$pai_state/quiet"; }} 2>/dev/null || return 1
  pai_is_time "$pai_quiet" && pai_is_time "$pai_looked" || return 1
  [ "$pai_quiet" -ge "$pai_used" ] || pai_quiet=$pai_used
  [ $((pai_looked - pai_quiet)) -ge "$pai_stop" ]
}}
while :; do
  pai_now=$(date +%s)  # before the deadline is read, so that one that was extended in time counts
  pai_later "$pai_state/{deadline}"
  case ${{PAI_OUTPUT_DIR-}} in */output) pai_later "${{PAI_OUTPUT_DIR%/output}}/{deadline}" ;; esac
  pai_left=$((pai_deadline - pai_now))
  [ "$pai_left" -gt 0 ] || {{ pai_end="{over}" && break; }}
  ! pai_is_idle || {{ pai_end="{idle} $pai_stop s" && break; }}
  [ "$pai_left" -lt {nap} ] || pai_left={nap}
  sleep "$pai_left" >/dev/null 2>&1
done
[ -z "$pai_watcher" ] || kill "$pai_watcher" 2>/dev/null || :
echo "$pai_end, stopping this container"
"""
_PRINT = """\
[ -r "$pai_state/{deadline}" ] || exit {no_state}
echo "now ${{pai_now:-$(date +%s)}}"
for pai_one in {deadline} idle limit; do
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
_END = re.compile(rf"(?:{OVER}|{IDLE} (\d{{1,9}}) s), stopping this container")


def command(seconds: int, warn_seconds: int = 0, stop_seconds: int = 0, has_gpus: bool = False) -> str:
    """Return the job's command.

    It warns after ``warn_seconds`` without GPU work, and ends after ``stop_seconds`` without a login and
    without CPU or GPU work; 0 means never.
    """
    warn = warn_seconds if has_gpus else 0
    limits = [limit for limit in (warn, stop_seconds) if limit]
    stay = _STAY.format(deadline=DEADLINE, seconds=seconds, extend=hints.command("container.extend"))
    watch = _CPU.format(stop=stop_seconds) if stop_seconds else ""
    watch += _KEEP.format(seconds=seconds)
    if limits:
        watch += _GPU.format(busy=BUSY_PERCENT) if has_gpus else ""
        watch += _WATCH.format(
            look=max(1, min(LOOK_SECONDS, *(limit // 3 for limit in limits))),
            look_at_gpus="pai_look_at_gpus" if has_gpus else "pai_known=1 pai_busy=",
            busy=BUSY_PERCENT,
            warn=warn,
            stop_command=hints.command("container.stop"),
        )
    nap = min(DEADLINE_SECONDS, max(1, stop_seconds // 3)) if stop_seconds else DEADLINE_SECONDS
    loop = _LOOP.format(deadline=DEADLINE, nap=nap, over=OVER, idle=IDLE)
    return f"{MARK}\n{_STATE}{stay}{watch}{loop}".rstrip("\n")


def find_end(lines: Iterable[str]) -> str:
    """Return why a container ended by itself, from its output; empty if it did not."""
    found = [_END.fullmatch(line) for line in lines]
    last = next((one for one in reversed(found) if one), None)
    if last is None:
        return ""
    if last[1]:
        return f"it stopped itself after {format_duration(int(last[1]))} without a login and without work"
    return "it stopped itself at its time limit"


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


_STATE_LINE = re.compile(r"^(now|deadline|idle|limit) ([0-9]{1,15})$", re.M)


@dataclass(frozen=True)
class ContainerStay:
    """How long a container still stays, how long its GPUs have been idle and it may be, in seconds."""

    left: int
    idle: int | None = None
    idle_limit: int = 0  # without a login and without work; 0 if it does not stop when idle


def state_command() -> str:
    """Return the command that prints the state; it exits with NO_STATE in any other container."""
    return _STATE + _PRINT.format(deadline=DEADLINE, no_state=NO_STATE)


def extend_command(seconds: int) -> str:
    """Return the command that keeps the container alive that long from now, and never shortens its stay."""
    return _STATE + _EXTEND.format(deadline=DEADLINE, seconds=seconds, no_state=NO_STATE) + state_command()


def parse_stay(text: str) -> ContainerStay | None:
    """Parse the output of ``state_command``."""
    found = {name: int(value) for name, value in _STATE_LINE.findall(text)}
    if "now" not in found or "deadline" not in found:
        return None
    since, now = found.get("idle"), found["now"]
    idle = None if since is None else now - since
    return ContainerStay(found["deadline"] - now, idle, found.get("limit", 0))
