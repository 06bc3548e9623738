"""Read the CPU, memory and GPU usage of containers with a script for any POSIX shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.sdk.containers import sessions
from openpai_tasks.sdk.ssh.connection import Remote

ANSWER_SECONDS = 30.0
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.1, 86400.0  # seconds
LARGEST = 1e19  # what the kernel has for no limit, and a bit more
CONTAINER, MACHINE = "container", "machine"

# Writes lines "name value ...". A task that is a set of processes on a machine (PAI_MOUNT_ROOT is set) is the
# sum of the processes with its variables, without this session; a container is its control group. A machine's
# root group has no type: if there is no other, the usage is the machine's and is labelled so.
SCRIPT = r"""
group=/sys/fs/cgroup
if [ -n "${PAI_MOUNT_ROOT-}" ]; then kind=processes
elif [ -r $group/cgroup.type ] && [ -r $group/cpu.stat ]; then kind=group
elif [ -r $group/cpuacct/cpuacct.usage ]; then kind=old_group
else kind=machine; fi
stat_of() {
  { IFS= read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  line=${line##*) }
}
stat_of $$ && set -- $line
session=$4
tasks() {
  grep -laF "PAI_WORK_DIR=$PAI_WORK_DIR" /proc/[0-9]*/environ 2>/dev/null | while read -r place; do
    pid=${place#/proc/} pid=${pid%/environ}
    stat_of "$pid" || continue
    set -- $line
    [ "$4" = "$session" ] || "$use" "$@"
  done
}
number() { echo 1; }
ticks() { echo $((${12} + ${13} + ${14} + ${15})); }
memory() {
  [ -r "/proc/$pid/smaps_rollup" ] && found=$(grep '^Pss:' "/proc/$pid/smaps_rollup" 2>/dev/null) ||
    found=$(grep '^VmRSS:' "/proc/$pid/status" 2>/dev/null) || return 0
  set -- $found
  echo "$2"
}
sum() {
  use=$1 all=0
  for one in $(tasks); do all=$((all + one)); done
  echo $all
}
cpu() {
  while read -r up rest; do echo "at $up"; done </proc/uptime
  case $kind in
  processes) echo "ticks $(sum ticks)" ;;
  group)
    while read -r name value; do [ "$name" != usage_usec ] || echo "usec $value"; done <$group/cpu.stat ;;
  old_group) echo "nsec $(cat $group/cpuacct/cpuacct.usage)" ;;
  *)
    while read -r name user nice system idle wait irq soft rest; do
      [ "$name" != cpu ] || echo "ticks $((user + nice + system + irq + soft))"
    done </proc/stat ;;
  esac
}
if [ $kind = processes ] && [ "$(sum number)" = 0 ]; then kind=machine; fi  # not permitted to read them
echo "kind $kind"
cpu
sleep 0.5 2>/dev/null || sleep 1
cpu
if [ $kind = processes ]; then
  echo "memory $(($(sum memory) * 1024)) max"
elif [ $kind = machine ]; then :
elif [ -r $group/memory.current ]; then
  echo "memory $(cat $group/memory.current) $(cat $group/memory.max)"
  while read name value; do [ "$name" != inactive_file ] || echo "cache $value"; done <$group/memory.stat
elif [ -r $group/memory/memory.usage_in_bytes ]; then
  echo "memory $(cat $group/memory/memory.usage_in_bytes) $(cat $group/memory/memory.limit_in_bytes)"
  while read name value; do
    [ "$name" != total_inactive_file ] || echo "cache $value"
  done <$group/memory/memory.stat
fi
[ ! -r $group/cpu.max ] || echo "quota $(cat $group/cpu.max)"
[ ! -r $group/cpu/cpu.cfs_quota_us ] ||
  echo "quota $(cat $group/cpu/cpu.cfs_quota_us) $(cat $group/cpu/cpu.cfs_period_us)"
echo "ticks_per_second $(getconf CLK_TCK 2>/dev/null || echo 100)"
echo "cores $(grep -c '^processor' /proc/cpuinfo)"
while read name value unit; do
  case $name in MemTotal:) echo "total $value";; MemAvailable:) echo "available $value";; esac
done </proc/meminfo
facts=index,utilization.gpu,memory.used,memory.total
set --
if [ $kind = processes ] && [ -n "${CUDA_VISIBLE_DEVICES-}" ]; then set -- -i "$CUDA_VISIBLE_DEVICES"; fi
nvidia-smi "$@" --query-gpu=$facts --format=csv,noheader,nounits 2>/dev/null |
  while IFS=, read index busy used total; do echo "gpu $index $busy $used $total"; done
exit 0
"""


@dataclass(frozen=True)
class GpuUsage:
    index: int
    busy: int | None  # percent
    memory_mb: int | None
    total_mb: int | None


@dataclass(frozen=True)
class ContainerUsage:
    """A container's current usage; ``error`` is set if it is unknown."""

    container: str
    cpu: float | None = None  # cores
    cpu_limit: float | None = None
    memory: int | None = None  # bytes
    memory_limit: int | None = None
    scope: str = CONTAINER  # MACHINE if the container's own usage is unknown
    gpus: tuple[GpuUsage, ...] = ()
    error: str = ""


def check_interval(every: float) -> float:
    """Return the interval in seconds if it is within limits."""
    if not SHORTEST_INTERVAL <= every <= LONGEST_INTERVAL:
        raise ConfigError(
            f"--every must be {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g} seconds, got {every:g}"
        )
    return every


def read_usage(remote: Remote, label: str) -> ContainerUsage:
    """Measure one container, which takes about half a second."""
    output: list[bytes] = []
    code = sessions.run_command(remote, SCRIPT, output.append, sessions.ignore, seconds=ANSWER_SECONDS)
    if code:
        return ContainerUsage(label, error=f"cannot measure without a POSIX shell (it exited with {code})")
    return parse_usage(b"".join(output).decode("utf-8", "replace"), label)


def parse_usage(text: str, label: str) -> ContainerUsage:
    """Parse the script's output."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    first = {words[0]: words[1:] for words in reversed(lines)}
    last = {words[0]: words[1:] for words in lines}
    cores = _number(first, "cores")
    total = _number(first, "total")
    memory, limit = _memory(first, total)
    is_machine = first.get("kind") == [MACHINE] or "memory" not in first
    return ContainerUsage(
        label,
        cpu=_cpu(first, last),
        cpu_limit=_quota(first) or cores,
        memory=memory,
        memory_limit=limit,
        scope=MACHINE if is_machine else CONTAINER,
        gpus=tuple(_gpus(lines)),
    )


def _cpu(first: dict[str, list[str]], last: dict[str, list[str]]) -> float | None:
    """Return the cores that were busy between the two samples."""
    units = {"usec": 1e-6, "nsec": 1e-9, "ticks": 1 / (_number(first, "ticks_per_second") or 100)}
    began, ended = _number(first, "at"), _number(last, "at")
    for name, seconds in units.items():
        before, after = _number(first, name), _number(last, name)
        if None not in (before, after, began, ended) and ended > began:  # type: ignore[operator]
            used = max(0.0, after - before)  # type: ignore[operator] # ended processes no longer count
            return round(used * seconds / (ended - began), 2)  # type: ignore[operator]
    return None


def _quota(found: dict[str, list[str]]) -> float | None:
    quota, period = _number(found, "quota"), _number(found, "quota", 1)  # "max" and "-1" mean no limit
    return round(quota / period, 2) if quota is not None and period else None


def _memory(found: dict[str, list[str]], total: float | None) -> tuple[int | None, int | None]:
    """Return the memory in use without caches, and the limit or else the machine's memory."""
    machine = int(total * 1024) if total else None
    memory = _number(found, "memory")
    if memory is None:
        free = _number(found, "available")
        return (machine - int(free * 1024) if machine and free is not None else None), machine
    used = max(0, int(memory) - int(_number(found, "cache") or 0))
    limit = int(_number(found, "memory", 1) or 0)
    return used, min(filter(None, (limit, machine)), default=None)


def _gpus(lines: Iterable[list[str]]) -> Iterator[GpuUsage]:
    for words in lines:
        index, *values = (fields.whole(word) for word in [*words[1:5], "", "", "", ""][:4])
        if words[0] == "gpu" and index is not None:
            yield GpuUsage(index, *values)


def _number(found: dict[str, list[str]], name: str, place: int = 0) -> float | None:
    """Return a number that the container printed; None if it is missing, negative or too large."""
    try:
        value = float(found[name][place])
    except (KeyError, IndexError, ValueError):
        return None
    return value if 0 <= value < LARGEST else None
