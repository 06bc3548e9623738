"""The scripts of a container's first process, in plain sh, for any image that has it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

BASE = "/usr/local/pai"  # OpenPAI's folder in a container
RUNTIME, WORK, NOTES = f"{BASE}/runtime", f"{BASE}/work", f"{BASE}/notes"
OUT_OF_MEMORY = "Warning OutOfMemory it used all of the memory that it asked for, and a process was killed"
SSHD = "sshd"  # the script in RUNTIME that starts it

_ENTRY = f"""\
# What a shell prints when its command is killed is not the job's output.
exec 3>&2 2>/dev/null
# Where it is not the first process of its namespace, it must still outlive the command.
trap : TERM
. {RUNTIME}/environment
cd {WORK}
owner=$(stat -c %u:%g .) || owner=0:0
[ ! -e {RUNTIME}/{SSHD} ] || /bin/sh {RUNTIME}/{SSHD} 2>&3
if command -v bash >/dev/null; then set -- bash -eu -o pipefail; else set -- /bin/sh -eu; fi
(exec 2>&3 3>&-; exec "$@" {RUNTIME}/command)
code=$?
for events in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r $events ] || continue
  while read -r what count; do
    [ "$what" != oom_kill ] || [ "$count" = 0 ] || echo "{OUT_OF_MEMORY}" >>{NOTES}
  done <$events
done
for file in memory.peak memory/memory.max_usage_in_bytes cpu.stat cpuacct/cpuacct.usage; do
  if read -r used </sys/fs/cgroup/$file; then echo "Usage $file $used" >>{NOTES}; fi
done
# The owner of the folder could not remove files of root.
[ "$owner" = 0:0 ] || find . {{folders}} -user 0 -exec chown -h "$owner" {{{{}}}} +
# In a user namespace, the same holds for files of anyone but root.
read -r _ root _ </proc/self/uid_map
[ "$root" = 0 ] || find . {{folders}} ! -user 0 -exec chown -h 0:0 {{{{}}}} +
exit $code
"""


def entry(folders: Sequence[str] = ()) -> str:
    """Return the container's first script; ``folders`` are the mounted folders of the host.

    It remains the first process, which the kernel shields from signals, so the command can be signalled.
    """
    return _ENTRY.format(folders=" ".join(map(shlex.quote, folders)))


def environment(variables: Mapping[str, str]) -> str:
    """Return exports of the variables; options of the engine cannot hold newlines, and would be visible."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    )
