"""The command of a job that only stays: until a time that can be moved, and with an eye on its GPUs.

It keeps what it knows in a folder that a login to the container finds: ``deadline`` is when it ends,
``idle`` since when its GPUs do nothing; both in seconds of the container's own clock. A later deadline in
that file, or in ``jobs/<job>/deadline`` of the mounted workspace, keeps it longer. All of it is POSIX sh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from openpai_tasks.protocol.document.job_storage import DEADLINE as DEADLINE

MARK = "# openpai-tasks: keep-alive"
"""The first line of the command, by which such a job is known."""
NAP = 5  # seconds between two looks at the deadline
LOOK = 60  # seconds between two looks at the GPUs, at most
BUSY = 5  # per cent of use from which on a GPU does something
NO_STATE = 3
DIGITS = 11  # of the latest time that is believed

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
  pai_told=$(cat "$1" 2>/dev/null) || return 0
  if pai_is_time "$pai_told" && [ "$pai_told" -ge "$pai_deadline" ]; then
    [ "$pai_told" -eq "$pai_deadline" ] || pai_keep "$pai_told"
  elif [ "$1" = "$pai_state/{deadline}" ]; then
    pai_keep "$pai_deadline"  # what a login is told is what counts here
  fi
}}
pai_keep $(($(date +%s) + {seconds})) || exit 1
pai_watcher=
echo "this container stays for {seconds} s; container.extend ${{PAI_JOB_NAME#*~}} keeps it longer"
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
      echo "warning: the GPUs of this container do nothing for $((pai_time - pai_since)) s now;" \\
        "container.stop ${{PAI_JOB_NAME#*~}} frees them" >&2
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
echo "the time is over, this container ends"
"""
_TELL = """\
[ -r "$pai_state/{deadline}" ] || exit {no_state}
echo "now $(date +%s)"
for pai_one in {deadline} idle; do
  pai_told=$(cat "$pai_state/$pai_one" 2>/dev/null) || continue
  ! pai_is_time "$pai_told" || echo "$pai_one $pai_told"
done
"""
_EXTEND = """\
[ -r "$pai_state/{deadline}" ] || exit {no_state}
pai_new=$(($(date +%s) + {seconds})) pai_told=$(cat "$pai_state/{deadline}")
pai_is_time "$pai_told" && [ "$pai_new" -le "$pai_told" ] || {{
  echo "$pai_new" >"$pai_state/{deadline}.told" &&
    mv -f "$pai_state/{deadline}.told" "$pai_state/{deadline}" || exit 1
}}
"""


def command(seconds: int, idle_seconds: int) -> str:
    """What the job runs; ``idle_seconds`` without work on its GPUs make it warn, 0 never."""
    look = max(1, min(LOOK, idle_seconds // 3))
    watch = _WATCH.format(look=look, busy=BUSY, idle=idle_seconds) if idle_seconds else ""
    stay = _STAY.format(deadline=DEADLINE, seconds=seconds)
    return f"{MARK}\n{_STATE}{stay}{watch}{_LOOP.format(deadline=DEADLINE, nap=NAP)}".rstrip("\n")


def is_kept(command: str) -> bool:
    """Whether this is the command of a job that only stays."""
    return MARK in command.splitlines()


def first_stay(command: str) -> int:
    """How many seconds it stays if nobody says more; 0 if it does not say."""
    found = re.search(r"^pai_keep \$\(\(\$\(date \+%s\) \+ (\d+)\)\)", command, re.M)
    return int(found[1]) if found else 0


def time_of(text: bytes) -> int:
    """The deadline that the text is, as the container reads it; 0 if it would not be believed."""
    found = re.fullmatch(rb"(\d{1,%d})\n?" % DIGITS, text)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Stay:
    """How long a container stays from now on, and for how long its GPUs have done nothing; in seconds."""

    left: int
    idle: int | None = None


def tell() -> str:
    """What a login runs to be told; it ends with NO_STATE in a container that is no such job's."""
    return _STATE + _TELL.format(deadline=DEADLINE, no_state=NO_STATE)


def extend(seconds: int) -> str:
    """What a login runs to keep the container that long from now; never shorter than it stays anyway."""
    return _STATE + _EXTEND.format(deadline=DEADLINE, seconds=seconds, no_state=NO_STATE) + tell()


def told(text: str) -> Stay | None:
    """What the container said."""
    found = {name: int(value) for name, value in re.findall(r"^(now|deadline|idle) (\d+)$", text, re.M)}
    if "now" not in found or "deadline" not in found:
        return None
    since = found.get("idle")
    return Stay(found["deadline"] - found["now"], None if since is None else found["now"] - since)
