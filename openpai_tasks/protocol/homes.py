"""Where a user's jobs keep their files, as a job sees it, and the shell text that fetches and keeps them.

``sources/<sha256>.tar.gz`` is fetched, checked and unpacked into the working folder; what a job writes to
``$PAI_OUTPUT_DIR`` ends in ``jobs/<job>/output``. On a storage that the cluster mounts that takes `cp` alone;
HDFS is spoken to with `curl`. All of it is POSIX sh; a step that fails ends the job with a line that says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from openpai_tasks.protocol import scripts

SOURCES = "# openpai-tasks: sources"
OUTPUT = "# openpai-tasks: output"
"""The first line of a step of ours, by which a copy of the job finds it."""

ARCHIVES, JOBS = "sources", "jobs"
DEADLINE = "deadline"
"""The file in a job's folder that keeps the job longer."""
KEEP = "pai_keep_output"
_BEGIN, _END = f"(\ntrap {KEEP} EXIT\n", "\n)"
_FILE = ".pai-sources"
_JOB = "${PAI_JOB_NAME#*~}"  # of the job that runs, so that a copy of it has a folder of its own
_PRINT_HASH = f'import hashlib; print(hashlib.sha256(open("{_FILE}", "rb").read()).hexdigest())'
_DOWNLOAD_IT = f'import sys, urllib.request as web; web.urlretrieve(sys.argv[1], "{_FILE}")'


def archive_name(sha256: str) -> str:
    return f"{sha256}.tar.gz"


@dataclass(frozen=True)
class Mounted:
    """A folder of a storage that the cluster mounts in every task."""

    storage: str
    folder: str  # /mnt/<storage>/<workspace>

    def output(self) -> str:
        """The variable, and the folder behind it."""
        folder = scripts.mounted(f"{self.folder.rstrip('/')}/{JOBS}/")[:-1] + f'{_JOB}/output"'
        command = f'export {scripts.OUTPUT}={folder} && mkdir -p "${scripts.OUTPUT}"'
        return f"{OUTPUT}\n{scripts.step(command)}"

    def fetch(self, sha256: str) -> str:
        """A copy of the archive; a second look, as a share may show a new file a little later."""
        place = scripts.mounted(f"{self.folder.rstrip('/')}/{ARCHIVES}/{archive_name(sha256)}")
        return "\n".join([SOURCES, _STOP, _COPY.format(place=place, file=_FILE), _checked(sha256)])

    def around(self, commands: Sequence[str]) -> list[str]:
        return list(commands)


@dataclass(frozen=True)
class WebHdfs:
    """A folder of an HDFS, by the address it has at each name node."""

    urls: tuple[str, ...]  # http://HOST/webhdfs/v1/<workspace>, with everything odd in it escaped
    user: str  # as it stands in a url

    def output(self) -> str:
        """A folder of the task's own, and what sends it on when the command has ended."""
        bases = " ".join(shlex.quote(url.rstrip("/")) for url in self.urls)
        return _KEEPING.format(
            mark=OUTPUT, variable=scripts.OUTPUT, keep=KEEP, bases=bases, jobs=JOBS, job=_JOB, user=self.user
        )

    def fetch(self, sha256: str) -> str:
        """The archive by curl; by wget or python where there is none."""
        path = f"{ARCHIVES}/{archive_name(sha256)}?op=OPEN&user.name={self.user}"
        places = " ".join(shlex.quote(f"{url.rstrip('/')}/{path}") for url in self.urls)
        got = _DOWNLOAD.format(places=places, file=_FILE, python=_DOWNLOAD_IT)
        return "\n".join([SOURCES, _STOP, got, _checked(sha256)])

    def around(self, commands: Sequence[str]) -> list[str]:
        """The commands in a shell of their own, whose end, whatever it is, sends the output."""
        found = inner(commands)
        found[0] = _BEGIN + found[0]
        found[-1] += _END
        return found


Home = Mounted | WebHdfs


def is_fetch(step: str) -> bool:
    return step.startswith(SOURCES + "\n")


def is_output(step: str) -> bool:
    return step.startswith(OUTPUT + "\n")


def inner(commands: Sequence[str]) -> list[str]:
    """The commands without what ``around`` put around them."""
    found = list(commands)
    if found and found[0].startswith(_BEGIN) and found[-1].endswith(_END):
        found[0] = found[0].removeprefix(_BEGIN)
        found[-1] = found[-1].removesuffix(_END)
    return found


def _checked(sha256: str) -> str:
    return _CHECK.format(sha256=sha256, file=_FILE, python=_PRINT_HASH)


_STOP = 'pai_stop() { echo "error: $1" >&2; exit 1; }'

_CHECK = """\
pai_sum=$({{ sha256sum {file} || shasum -a 256 {file} || openssl dgst -sha256 -r {file} ||
  python3 -c '{python}'; }} 2>/dev/null) ||
  pai_stop "the sources cannot be checked: no sha256sum, shasum, openssl or python3 here"
[ "${{pai_sum%% *}}" = {sha256} ] ||
  pai_stop "the sources are damaged: $pai_from has sha256 ${{pai_sum%% *}}"
tar -xzf {file} && rm -f {file} || pai_stop "the sources cannot be unpacked\""""

_COPY = """\
pai_from={place}
cp "$pai_from" {file} || {{ sleep 3 && cp "$pai_from" {file}; }} ||
  pai_stop "cannot fetch the sources from $pai_from\""""

_DOWNLOAD = """\
rm -f {file}
for pai_from in {places}; do
  if command -v curl >/dev/null; then curl -fsSL --retry 3 -o {file} "$pai_from"
  elif command -v wget >/dev/null; then wget -q -O {file} "$pai_from"
  else python3 -c '{python}' "$pai_from"
  fi && break
done
[ -s {file} ] || pai_stop "cannot fetch the sources from $pai_from\""""

_KEEPING = """\
{mark}
export {variable}="$PWD/.pai-output" && mkdir -p "${variable}" || exit 1
{keep}() {{
  pai_code=$?
  [ -d "${variable}" ] || exit "$pai_code"
  for pai_at in {bases}; do
    cd "${variable}" && find . -type f -exec sh -c '
      for file; do
        name=$(printf %s "${{file#./}}" | od -An -v -tx1 | tr -d " \\n" | sed "s/../%&/g; s/%2f/\\//g")
        to=$(curl -fsS -X PUT -o /dev/null -w "%{{redirect_url}}" \\
          "$0/$name?op=CREATE&overwrite=true&user.name={user}") &&
          curl -gfsS -o /dev/null -T "$file" "$to" || exit 1
      done' "$pai_at/{jobs}/{job}/output" {{}} + && exit "$pai_code"
  done
  echo "error: cannot keep the output: sending it to $pai_at failed" >&2
  [ "$pai_code" -ne 0 ] || pai_code=1
  exit "$pai_code"
}}"""
