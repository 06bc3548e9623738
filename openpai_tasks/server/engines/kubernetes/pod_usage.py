"""What a pod uses over time: rows as in runner/usage.py, which a script in the pod writes into its log.

The log is copied while the task runs, so rows need no request of their own, and those of a task that is
killed for its memory are not lost. The metrics of Kubernetes (metrics.k8s.io) have no GPUs and a value every
15 seconds at best, and not every cluster has them, nor may every user read them.
"""

from __future__ import annotations

from openpai_tasks.server.engines.runner.usage import GPU_QUERY, GPU_SECONDS, LONGEST_PAUSE

MARK = b"\x1eusage "
"""What is in front of a row, after the last line of the task if that has no end yet."""
ROW_SECONDS = 5
DOUBLE_ROWS = 120
"""Rows after which further ones are twice as long: there are some 1,500 in a month."""
GROUPS = "/sys/fs/cgroup"

SCRIPT = f"""\
# Arguments: the seconds of a row, the folder of control groups, and a file for GPUs or nothing.
trap '' TERM
seconds=$1 gpus=$3
cd "$2"
if [ -e cgroup.events ]; then
  cpu=cpu.stat memory=memory.current counts=memory.stat cache=inactive_file
elif [ -e cpuacct/cpuacct.usage ]; then
  cpu=cpuacct/cpuacct.usage memory=memory/memory.usage_in_bytes
  counts=memory/memory.stat cache=total_inactive_file
else
  printf '\\036usage # its container cannot see its control group\\n'
  exit
fi
if [ -n "$gpus" ] && command -v nvidia-smi >/dev/null; then
  nvidia-smi {GPU_QUERY} --format=csv,noheader,nounits -l {GPU_SECONDS} >>"$gpus" &
fi
# Hundredths of a second, microseconds and bytes; a shell can read them without another process.
sample() {{
  read -r now rest </proc/uptime
  now=${{now%.*}}${{now#*.}}
  read -r used more <$cpu
  used=${{more:-$((used / 1000))}}
  read -r bytes <$memory
  while read -r name count; do
    [ "$name" != $cache ] || {{ bytes=$((bytes > count ? bytes - count : 0)); break; }}
  done <$counts
}}
# Means and maxima of what nvidia-smi has reported since the last row.
add_gpus() {{
  row= ids=
  while IFS=', ' read -r id busy filled; do
    case $id,$busy,$filled in *[!0-9,]* | ,* | *, | *,,*) continue ;; esac
    case "$ids " in *" $id "*) ;; *) ids="$ids $id"; eval "n$id=0 b$id=0 B$id=0 f$id=0 F$id=0" ;; esac
    eval "n=\\$n$id b=\\$b$id B=\\$B$id f=\\$f$id F=\\$F$id"
    eval "n$id=$((n + 1)) b$id=$((b + busy)) B$id=$((busy > B ? busy : B))"
    eval "f$id=$((f + filled)) F$id=$((filled > F ? filled : F))"
  done <"$gpus"
  : >"$gpus"
  for id in $ids; do
    eval "n=\\$n$id b=\\$b$id B=\\$B$id f=\\$f$id F=\\$F$id"
    row="$row gpu$id=$((b / n)):$B gpu$id.mb=$((f / n)):$F"
  done
}}
sample
start=$(($(date +%s) * 1000 - now * 10)) rows=0 row=
begin=$now last=$now at_first=$used at_last=$used fastest=0 sum=0 most=0 samples=0
while sleep $((seconds < {LONGEST_PAUSE:g} ? seconds : {LONGEST_PAUSE:g})); do
  sample
  [ "$now" -gt "$last" ] || continue
  rate=$(((used - at_last) / ((now - last) * 10)))
  fastest=$((rate > fastest ? rate : fastest)) last=$now at_last=$used
  sum=$((sum + bytes)) most=$((bytes > most ? bytes : most)) samples=$((samples + 1))
  length=$((now - begin))
  [ $length -ge $((seconds * 95)) ] || continue
  rate=$(((used - at_first) / (length * 10)))
  [ ! -s "$gpus" ] || add_gpus
  printf '\\036usage %d %d.%02d cpu=%d.%03d:%d.%03d memory=%d:%d%s\\n' $((start + begin * 10)) \\
    $((length / 100)) $((length % 100)) $((rate / 1000)) $((rate % 1000)) \\
    $((fastest / 1000)) $((fastest % 1000)) $((sum / samples)) $most "$row"
  begin=$now at_first=$used fastest=0 sum=0 most=0 samples=0 rows=$((rows + 1)) row=
  [ $((rows % {DOUBLE_ROWS})) -ne 0 ] || seconds=$((seconds * 2))
done
"""
