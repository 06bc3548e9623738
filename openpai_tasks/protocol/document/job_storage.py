"""The storage of a user's jobs as a job sees it, and the shell scripts that fetch sources and keep outputs.

``sources/<sha256>.tar.gz`` is fetched, checked and unpacked into the working folder; files that a job writes
to ``$PAI_OUTPUT_DIR`` end up in ``jobs/<job>/output``, and so do files that match the patterns of the
request when the command has ended. On a storage that the cluster mounts, `cp` is enough; HDFS is accessed
with `curl` or python3, with retries. All of it is POSIX sh; a failing step ends the job with a message.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import kept_files, scripts

SOURCES = f"{scripts.MARK}sources"
OUTPUT = f"{scripts.MARK}output"
EARLIER = f"{scripts.MARK}earlier jobs"
"""The first lines of our steps, with which a resubmission recognises them."""

ARCHIVES, JOBS = "sources", "jobs"
RUNTIME = ".pai-runtime"
"""The folder with `openpai_tasks.runtime`, which travels with a job's sources."""
DEADLINE = "deadline"
"""The file in a job's folder with its extended deadline."""
KEEP = "pai_keep_output"
_BEGIN, _END = "{ pai_watch\n(\ntrap - INT QUIT\n", f'\n) & {KEEP} "$!"\n}}'
_FILE = ".pai-sources"
_JOB = "${PAI_JOB_NAME#*~}"  # the running job's, so that a resubmission gets its own folder
_PRINT_HASH = f'import hashlib; print(hashlib.sha256(open("{_FILE}", "rb").read()).hexdigest())'
_PAUSES = "1 3 6 10"  # seconds between five tries
_MAY_PASS = "*Standby* | *Retriable* | *SafeMode* | *atanode* | *could?only?be* | *last?block* | *get?block*"
"""Answers of HDFS that have the status 403 of a refusal but only mean that it is not ready."""
_REFUSAL = "*RemoteException*"
"""Part of every other refusal of HDFS; after other answers the next server is tried."""
_LIMITS = "--connect-timeout 20 --speed-limit 1000 --speed-time 300"
"""Options of curl: a server that sends fewer bytes in a second, for as many seconds, is given up."""
_REQUEST = """\
import os, signal, sys, urllib.error, urllib.request as web
method, url, file = sys.argv[1:]
signal.alarm(600 + (os.path.getsize(file) // 10000 if file else 0))
try:
    request = web.Request(url, method=method)
    if file:
        request.data = open(file, "rb")
        request.add_header("Content-Type", "application/octet-stream")
        request.add_header("Content-Length", str(os.path.getsize(file)))
    try:
        answer = web.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    end = "|%s %s" % (answer.getcode(), answer.headers.get("Location", ""))
    sys.stdout.buffer.write(answer.read(1 << 20) + end.encode())
except Exception as error:
    sys.exit("python3: %s" % error)"""
"""What curl does in `_SENDING`, for images without it."""
_DOWNLOAD_IT = f"""\
import shutil, signal, sys, urllib.request as web
signal.alarm(300)
answer = web.urlopen(sys.argv[1], timeout=60)
signal.alarm(0)
with open("{_FILE}", "wb") as file: shutil.copyfileobj(answer, file)"""


def archive_name(sha256: str) -> str:
    return f"{sha256}.tar.gz"


@dataclass(frozen=True)
class MountedFolder:
    """A folder of a storage that the cluster mounts in every task."""

    storage: str
    folder: str  # /mnt/<storage>/<workspace>

    def output(self, patterns: Sequence[str] = ()) -> str:
        """Return the step that creates the output folder and exports its variable.

        With patterns, it also defines how files that match them are kept.
        """
        folder = scripts.quote_mounted(f"{self.folder.rstrip('/')}/{JOBS}/")[:-1] + f'{_JOB}/output"'
        command = f'export {scripts.OUTPUT}={folder} && mkdir -p "${scripts.OUTPUT}"'
        lines = [OUTPUT, *kept_files.mark(patterns), scripts.step(command)]
        if patterns:
            lines.append(_keep_functions(kept_files.script(patterns)))
        return "\n".join(lines)

    def fetch(self, sha256: str) -> str:
        """Return the step that copies the archive; it retries once, as shares may show new files late."""
        place = scripts.quote_mounted(f"{self.folder.rstrip('/')}/{ARCHIVES}/{archive_name(sha256)}")
        return "\n".join([SOURCES, _STOP, _COPY.format(place=place, file=_FILE), _check_step(sha256)])

    def around(self, commands: Sequence[str], patterns: Sequence[str] = ()) -> list[str]:
        return wrap(commands) if patterns else list(commands)


@dataclass(frozen=True)
class HdfsFolder:
    """A folder in HDFS, by its address at each name node."""

    urls: tuple[str, ...]  # http://HOST/webhdfs/v1/<workspace>, percent-encoded
    user: str  # percent-encoded

    def output(self, patterns: Sequence[str] = ()) -> str:
        """Return the step that creates a local output folder and uploads it when the command has ended."""
        bases = " ".join(shlex.quote(url.rstrip("/")) for url in self.urls)
        answers = {"may_pass": _MAY_PASS, "refusal": _REFUSAL}
        sending = _SENDING.format(user=self.user, pauses=_PAUSES, limits=_LIMITS, **answers)
        names = {"variable": scripts.OUTPUT, "place": f"{JOBS}/{_JOB}/output", "user": shlex.quote(self.user)}
        local = _LOCAL.format(**names, bases=bases)
        upload = _UPLOAD.format(**names, sending=sending, request=_REQUEST)
        finish = "\n".join([*([kept_files.script(patterns)] if patterns else ()), upload])
        return "\n".join([OUTPUT, *kept_files.mark(patterns), local, _keep_functions(finish)])

    def fetch(self, sha256: str) -> str:
        """Return the step that downloads the archive with curl, wget or python."""
        path = f"{ARCHIVES}/{archive_name(sha256)}?op=OPEN&user.name={self.user}"
        places = " ".join(shlex.quote(f"{url.rstrip('/')}/{path}") for url in self.urls)
        answers = {"may_pass": _MAY_PASS, "refusal": _REFUSAL}
        programs = {"limits": _LIMITS, "python": _DOWNLOAD_IT}
        got = _DOWNLOAD.format(places=places, file=_FILE, pauses=_PAUSES, **programs, **answers)
        return "\n".join([SOURCES, _STOP, got, _check_step(sha256)])

    def around(self, commands: Sequence[str], patterns: Sequence[str] = ()) -> list[str]:
        return wrap(commands)


Home = MountedFolder | HdfsFolder


def is_fetch(step: str) -> bool:
    return step.startswith(SOURCES + "\n")


def is_output(step: str) -> bool:
    return step.startswith(OUTPUT + "\n")


def earlier_step(jobs: Sequence[str]) -> str:
    """Return the step that names the jobs that this one was resubmitted from, for their checkpoints."""
    return f"{EARLIER}\n{scripts.step(scripts.export('PAI_EARLIER_JOBS', ' '.join(jobs)))}"


def read_earlier(step: str) -> list[str] | None:
    """Return the jobs of such a step; None if it is another."""
    if not step.startswith(EARLIER + "\n"):
        return None
    return shlex.split(step.splitlines()[1])[1].partition("=")[2].split()


def wrap(commands: Sequence[str]) -> list[str]:
    """Run the commands in a subshell, so that the outer shell is still there when they have ended.

    An ``exec`` or traps in them do not affect the outer shell, which passes its signals on.
    """
    found = unwrap(commands)
    found[0] = _BEGIN + found[0]
    found[-1] += _END
    return found


def _keep_functions(finish: str) -> str:
    """Return the functions that wait for the command, pass signals on to it, and then keep files."""
    return _KEEPING.format(keep=KEEP, signals=_SIGNALS, finish=finish)


def unwrap(commands: Sequence[str]) -> list[str]:
    """Return the commands outside of their subshell."""
    found = list(commands)
    if found and found[0].startswith(_BEGIN) and found[-1].endswith(_END):
        found[0] = found[0].removeprefix(_BEGIN)
        found[-1] = found[-1].removesuffix(_END)
    return found


def _check_step(sha256: str) -> str:
    return _CHECK.format(sha256=sha256, file=_FILE, python=_PRINT_HASH, runtime=RUNTIME)


_STOP = 'pai_stop() { echo "error: $1" >&2; exit 1; }'

_CHECK = """\
pai_sum=$({{ sha256sum {file} || shasum -a 256 {file} || openssl dgst -sha256 -r {file} ||
  python3 -c '{python}'; }} 2>/dev/null) ||
  pai_stop "cannot check the sources: this image has no sha256sum, shasum, openssl or python3"
[ "${{pai_sum%% *}}" = {sha256} ] ||
  pai_stop "the sources are damaged: $pai_from has sha256 ${{pai_sum%% *}}"
tar -xzf {file} && rm -f {file} || pai_stop "the sources cannot be unpacked"
[ ! -d {runtime} ] || export PYTHONPATH="$PWD/{runtime}${{PYTHONPATH:+:$PYTHONPATH}}\""""

_COPY = """\
pai_from={place}
cp "$pai_from" {file} || {{ sleep 3 && cp "$pai_from" {file}; }} ||
  pai_stop "cannot fetch the sources from $pai_from\""""

_DOWNLOAD = """\
for pai_pause in {pauses} ""; do
  pai_again=
  for pai_from in {places}; do
    rm -f {file}
    pai_told=
    if command -v curl >/dev/null; then
      pai_told=$(curl -sSL {limits} -o {file} -w "%{{http_code}}" "$pai_from") &&
        [ "$pai_told" = 200 ]
    elif command -v wget >/dev/null; then wget -q -O {file} "$pai_from"
    else python3 -c '{python}' "$pai_from"
    fi && break 2
    case $pai_told in
      403 | 404) case $(cat {file} 2>/dev/null) in
          {may_pass}) pai_again=1 ;;
          {refusal}) rm -f {file}; break 2 ;;
        esac ;;
      *) pai_again=1 ;;
    esac
    rm -f {file}
  done
  [ -n "$pai_again" ] && [ -n "$pai_pause" ] || break
  sleep "$pai_pause"
done
[ -s {file} ] || pai_stop "cannot fetch the sources from $pai_from${{pai_told:+ (HTTP status $pai_told)}}\""""

# A failed upload starts over; a temporary name hides the incomplete file. Files that HDFS refuses are
# skipped, whatever another name node says; when no name node answers, the remaining files are not tried.
_SENDING = """
set -f
bases=$0 as="user.name={user}" lost=
if command -v curl >/dev/null; then
  web() {{
    curl -gsS {limits} -w "|%{{http_code}} %{{redirect_url}}" -X "$1" ${{3:+-T "$3"}} "$2"
  }}
elif command -v python3 >/dev/null; then
  web() {{ python3 -Ic "$PAI_REQUEST" "$1" "$2" "${{3-}}"; }}
else
  echo "error: there is neither curl nor python3 here" >&2
  exit 1
fi
ask() {{
  want=$1; shift
  answer=$(web "$@") && case ${{answer##*|}} in "$want"*) ;; *) false ;; esac
}}
send() {{
  [ ! -d "$file" ] || {{ ask 2 PUT "$at?op=MKDIRS&$as"; return; }}
  ask 307 PUT "$part?op=CREATE&overwrite=true&$as" && ask 2 PUT "${{answer##* }}" "$file" &&
    ask 2 PUT "$part?op=RENAME&destination=${{at#*/webhdfs*/v1}}&renameoptions=OVERWRITE&$as"
}}
for file; do
  [ ! -d "$file" ] || [ -z "$(ls -A "$file")" ] || continue
  name=$(printf %s "${{file#./}}" | od -An -v -tx1 | tr -d " \\n" | sed "s/../%&/g; s/%2f/\\//g")
  id=$(printf %08x "$(date +%s)")$(od -An -N4 -tx1 /dev/urandom | tr -d " \\n")
  for pause in {pauses} ""; do
    again=
    for base in $bases; do
      at=$base/$name
      part=${{at%/*}}/.pai-part-$id
      if send; then bases="$base ${{0%%"$base"*}}${{0#*"$base"}}"; continue 3; fi
      case ${{answer##*|}} in
        4*) case $answer in {may_pass}) again=1 ;; {refusal}) again=; break 2 ;; esac ;;
        *) again=1 ;;
      esac
    done
    [ -n "$again" ] && [ -n "$pause" ] || break
    sleep "$pause"
  done
  lost=1 why=${{answer%|*}}
  [ -d "$file" ] || for to in $bases; do
    part=$to/$name
    part=${{part%/*}}/.pai-part-$id
    ask 2 DELETE "$part?op=DELETE&$as" 2>/dev/null && break
  done
  echo "error: cannot send ${{file#./}} to $base${{why:+: $why}}" >&2
  [ -z "$again" ] || exit 1
done
[ -z "$lost" ]"""

_SIGNALS = "HUP INT QUIT TERM USR1 USR2"

# A signal for the whole process group has already reached the command and must not reach it twice; it has
# then also killed pai_twin, an idle process. Children of shells other than bash ignore INT and QUIT. The
# traps pass signals on themselves, as one may arrive just before `wait`; a flag keeps them from interrupting
# each other. One that interrupts the `wait` for pai_twin says nothing about its end. If a child ends while a
# signal interrupts `wait`, its status may be lost: the next `wait` then returns 127 (-1 in bash), or waits as
# long as there is any other child, so pai_twin must have ended before. While files are uploaded, signals are
# ignored.
_KEEPING = """\
pai_work=$PWD
pai_twin() {{ (trap - INT QUIT; exec sleep 2147483647) >/dev/null 2>&1 & pai_twin=$!; }}
pai_end_twin() {{
  kill -KILL "$pai_twin" 2>/dev/null || :
  while
    pai_before=$pai_signals
    wait "$pai_twin" 2>/dev/null && pai_end=0 || pai_end=$?
    [ "$pai_signals" != "$pai_before" ]
  do :; done
}}
pai_watch() {{
  pai_child= pai_signals= pai_passing=
  for pai_signal in {signals}; do
    trap "pai_signals=\\"\\${{pai_signals}}$pai_signal \\"; pai_pass" "$pai_signal"
  done
  pai_twin
}}
pai_pass() {{
  pai_interrupted=1
  [ -n "$pai_child" ] && [ -z "$pai_passing" ] || return 0
  while [ -n "$pai_signals" ]; do
    pai_passing=1 pai_signal=${{pai_signals%% *}} pai_signals=${{pai_signals#* }}
    case $pai_signal${{BASH_VERSION-}} in INT | QUIT) pai_signal=TERM ;; esac
    pai_end_twin
    [ "$pai_end" -gt 128 ] && [ "$pai_end" -ne 137 ] || kill -s "$pai_signal" "$pai_child" 2>/dev/null || :
    ! kill -0 "$pai_child" 2>/dev/null || pai_twin
    pai_passing=
  done
}}
{keep}() {{
  pai_child=$1 pai_code=
  pai_pass
  while :; do
    pai_interrupted=
    kill -0 "$pai_child" 2>/dev/null || pai_end_twin
    wait "$pai_child" 2>/dev/null && pai_last=0 || pai_last=$?
    case $pai_last in 127 | -*) [ -z "$pai_code" ] || break ;; esac
    pai_code=$pai_last
    [ -n "$pai_interrupted" ] || break
  done
  trap "" {signals}
  pai_end_twin
{finish}
  trap - {signals}
  return "$pai_code"
}}"""

_LOCAL = """\
export {variable}="$PWD/.pai-output" && mkdir -p "${variable}" || exit 1
pai_urls=
for pai_at in {bases}; do pai_urls="$pai_urls $pai_at/{place}"; done
export PAI_OUTPUT_URLS="$pai_urls" PAI_OUTPUT_USER={user}"""

_UPLOAD = """\
  if [ -d "${variable}" ]; then
    (cd "${variable}" &&
      PAI_REQUEST='{request}' \
        find . ! -name . "(" -type f -o -type d ")" -exec sh -c '{sending}' "$pai_urls" {{}} +) || {{
      echo "error: cannot keep the output: it stays in ${variable} only while this container runs" >&2
      [ "$pai_code" -ne 0 ] || pai_code=1
    }}
  fi"""
