"""Keep the environment of a failed task: a shell script around its commands, and the line that it prints.

The script works alike with every engine: while it waits, the task runs, with its container, its GPUs and its
ssh service. When the commands have failed, it prints a line with the exit code, in which the scheduler finds
that the task is kept. It ends with that exit code when the time is over, or with TERM.
"""

from __future__ import annotations

import re

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.policy import JobPolicy
from openpai_tasks.protocol.document.scripts import REQUEUED
from openpai_tasks.server.engines.container_program import BASE
from openpai_tasks.server.ssh import CRASH
from openpai_tasks.server.state.records import Task

SLACK = 5000  # milliseconds after the end of the time, in which the script ends by itself
TAIL = 1 << 14  # bytes of a log that are searched for the line
_LINE = re.compile(rb"^keep-failed: (\S+) (\S+): exit code (\d{1,3}); kept until (\d{10,12}) ", re.MULTILINE)

# A subshell has the options of this shell, but not its traps. -e would have no effect in it if its exit code
# were tested. A shell that a signal ends does not know its exit code, so the crash file is always written.
# With a time limit, the commands run in an inner shell (see scripts.limit_time), which ends first. TERM and
# SHLVL are those of the login. What this shell prints about killed processes would have all commands in it.
_SCRIPT = f"""\
pai_crash=
for pai_folder in "${{{{0%/*}}}}" {BASE}/io {BASE}; do
  if (umask 077; : >"$pai_folder/{CRASH}") 2>/dev/null; then pai_crash=$pai_folder/{CRASH}; break; fi
done
export PAI_CRASH_FILE="$pai_crash"
pai_on_exit='
trap "
  if [ -n \\"\\$PAI_CRASH_FILE\\" ] && [ ! -s \\"\\$PAI_CRASH_FILE\\" ]; then
    (unset TERM SHLVL PAI_CRASH_FILE; export PWD; export -p) >\\"\\$PAI_CRASH_FILE\\" 2>/dev/null || :
  fi
" EXIT
'
pai_stopped= pai_clock=
trap 'pai_stopped=1; [ -z "$pai_clock" ] || kill "$pai_clock" 2>/dev/null || :' TERM INT
set +e
exec 3>&2 2>/dev/null
(
exec 2>&3 3>&-
set -e
eval "$pai_on_exit"
{{commands}}
)
pai_code=$?
if [ "$pai_code" -ne 0 ] && [ "$pai_code" != "{{again}}" ] && [ -z "$pai_stopped" ]; then
  pai_end=$(($(date +%s) + {{seconds}}))
  pai_time=$(date -d "@$pai_end" '+%H:%M:%S %Z' 2>/dev/null || date -r "$pai_end" '+%H:%M:%S %Z' 2>/dev/null)
  pai_task=$PAI_CURRENT_TASK_ROLE_NAME-$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX
  echo "keep-failed: $PAI_JOB_NAME $pai_task: exit code $pai_code; kept until $pai_end ($pai_time)" >&3
  while [ -z "$pai_stopped" ] && [ "$(date +%s)" -lt "$pai_end" ]; do
    pai_left=$((pai_end - $(date +%s)))
    [ "$pai_left" -lt 30 ] || pai_left=30
    sleep "$pai_left" & pai_clock=$!
    [ -z "$pai_stopped" ] || kill "$pai_clock" 2>/dev/null
    wait "$pai_clock"
    pai_clock=
  done
fi
exit "$pai_code"
"""


def keep_failed(commands: str, policy: JobPolicy) -> str:
    """Return commands that, if they fail, end only after the time of the policy; unchanged without one.

    Commands that are to run again because of their time limit have not failed.
    """
    if not policy.keep_failed:
        return commands
    again = REQUEUED if policy.requeues else ""
    return _SCRIPT.format(commands=commands, seconds=policy.keep_failed, again=again).rstrip("\n")


@dataclass(frozen=True)
class KeptFailure:
    """The exit code of a failed task, until when it is kept, in milliseconds, and the end of its own log."""

    code: int
    until: int
    log: bytes = b""


def find_failure(task: Task, log: bytes) -> KeptFailure | None:
    """Return the failure that the script of this task has printed at the end of its log; None if it runs."""
    own = (task.job.encode(), f"{task.role}-{task.index}".encode())
    found = [match for match in _LINE.finditer(log) if match.group(1, 2) == own]
    if not found:
        return None
    return KeptFailure(int(found[-1][3]), int(found[-1][4]) * 1000, log[: found[-1].start()])
