"""What a job's containers use: CPU, memory and GPUs, read by a small script that any POSIX shell can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openpai_tasks.errors import PaiError
from openpai_tasks.sdk import sessions
from openpai_tasks.sdk.remote import Remote

SECONDS = 30.0

# Writes lines "name value ..."; of the control group where the container has its own, else of the machine.
SCRIPT = r"""
cpu() {
  cat /proc/uptime | while read up rest; do echo "at $up"; done
  if [ -r /sys/fs/cgroup/cpu.stat ]; then
    while read name value; do [ "$name" != usage_usec ] || echo "usec $value"; done </sys/fs/cgroup/cpu.stat
  elif [ -r /sys/fs/cgroup/cpuacct/cpuacct.usage ]; then
    echo "nsec $(cat /sys/fs/cgroup/cpuacct/cpuacct.usage)"
  else
    while read name user nice system idle wait irq soft rest; do
      [ "$name" != cpu ] || echo "ticks $((user + nice + system + irq + soft))"
    done </proc/stat
  fi
}
cpu
sleep 0.5 2>/dev/null || sleep 1
cpu
group=/sys/fs/cgroup
if [ -r $group/memory.current ]; then
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
nvidia-smi --query-gpu=$facts --format=csv,noheader,nounits 2>/dev/null |
  while IFS=, read index busy used total; do echo "gpu $index $busy $used $total"; done
exit 0
"""


@dataclass(frozen=True)
class Gpu:
    index: int
    busy: int | None  # percent
    memory_mb: int | None
    total_mb: int | None


@dataclass(frozen=True)
class Usage:
    """What one container uses now; ``error`` says why it is not known."""

    container: str
    cpu: float | None = None  # cores
    cpu_limit: float | None = None
    memory: int | None = None  # bytes
    memory_limit: int | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str = ""


def usage(remote: Remote, label: str) -> Usage:
    """Ask one container; it takes about half a second."""
    said: list[bytes] = []
    limits = sessions.Limits(SECONDS)
    code = sessions.run(remote, SCRIPT, said.append, lambda piece: None, limits=limits)
    if code:
        return Usage(label, error=f"no POSIX shell that can tell (it ended with {code})")
    return read(b"".join(said).decode("utf-8", "replace"), label)


def failed(label: str, err: PaiError) -> Usage:
    return Usage(label, error=str(err))


def read(text: str, label: str) -> Usage:
    """What the script has written."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    first = {words[0]: words[1:] for words in reversed(lines)}
    last = {words[0]: words[1:] for words in lines}
    cores = _number(first, "cores")
    total = _number(first, "total")
    memory, limit = _memory(first, total)
    return Usage(
        label,
        cpu=_cpu(first, last),
        cpu_limit=_quota(first) or cores,
        memory=memory,
        memory_limit=limit,
        gpus=tuple(_gpus(lines)),
    )


def _cpu(first: dict[str, list[str]], last: dict[str, list[str]]) -> float | None:
    """Cores busy between the two looks."""
    units = {"usec": 1e-6, "nsec": 1e-9, "ticks": 1 / (_number(first, "ticks_per_second") or 100)}
    began, ended = _number(first, "at"), _number(last, "at")
    for name, seconds in units.items():
        before, after = _number(first, name), _number(last, name)
        if None not in (before, after, began, ended) and ended > began:  # type: ignore[operator]
            return round((after - before) * seconds / (ended - began), 2)  # type: ignore[operator]
    return None


def _quota(found: dict[str, list[str]]) -> float | None:
    words = found.get("quota", [])
    if len(words) != 2 or not (words[0].isdecimal() and words[1].isdecimal()):  # "max" and "-1" are none
        return None
    return round(int(words[0]) / int(words[1]), 2)


def _memory(found: dict[str, list[str]], total: float | None) -> tuple[int | None, int | None]:
    """Used without what is only cached, and the limit; the machine's own where no limit is set."""
    machine = int(total * 1024) if total else None
    words = found.get("memory", [])
    if not words or not words[0].isdecimal():
        free = _number(found, "available")
        return (machine - int(free * 1024) if machine and free is not None else None), machine
    used = max(0, int(words[0]) - int(_number(found, "cache") or 0))
    limit = int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
    return used, min(filter(None, (limit, machine)), default=None)


def _gpus(lines: Iterable[list[str]]) -> Iterator[Gpu]:
    for words in lines:
        if words[0] == "gpu" and len(words) > 1 and words[1].isdecimal():
            values = [int(word) if word.isdecimal() else None for word in [*words[2:5], "", "", ""]]
            yield Gpu(int(words[1]), *values[:3])


def _number(found: dict[str, list[str]], name: str) -> float | None:
    try:
        return float(found[name][0])
    except (KeyError, IndexError, ValueError):
        return None
