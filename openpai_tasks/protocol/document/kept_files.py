"""The shell script that copies files matching patterns to the output folder after a job's command."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Sequence

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import scripts

_MARK = "# keeps: "


def check(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns; raise for those that do not name files below the working folder."""
    found = tuple(patterns)
    for pattern in found:
        parts = pattern.split("/")
        if not pattern.strip() or "\n" in pattern or "\0" in pattern or parts[0] == "" or ".." in parts:
            rule = "expected a path below the job's working folder, such as 'model/*.pt'"
            raise ProtocolError(f"invalid output {pattern!r}: {rule}")
    return found


def mark(patterns: Sequence[str]) -> list[str]:
    """Return the line that names the patterns, if any, for ``read_mark``."""
    return [f"{_MARK}{shlex.join(patterns)}"] if patterns else []


def read_mark(step: str) -> tuple[str, ...]:
    """Return the patterns of a step that keeps outputs."""
    lines = step.splitlines()
    return tuple(shlex.split(lines[1][len(_MARK) :])) if lines[1:] and lines[1].startswith(_MARK) else ()


def script(patterns: Sequence[str]) -> str:
    """Return commands that copy the files, and set ``pai_code`` if that fails."""
    saves = "\n".join(f"    {_save(pattern)} || pai_lost=1" for pattern in patterns)
    return _SCRIPT.format(variable=scripts.OUTPUT, copy=shlex.quote(_COPY), saves=saves)


def _save(pattern: str) -> str:
    """Return the command for a pattern: the shell's own patterns know no ``**``, so `find` is used for it."""
    if "**" not in pattern.split("/"):
        return f"pai_save {shlex.quote(f'./{pattern}')}"
    parts = [("", "*/") if part == "**" else (f"{part}/",) for part in pattern.split("/")]
    if pattern.endswith("**"):
        parts[-1] = ("*/",)
    paths = ["./" + "".join(chosen).rstrip("/") for chosen in itertools.product(*parts)]
    tests = " -o ".join(f"-path {shlex.quote(path)}" for path in paths)
    run = """-exec sh -c "$pai_copy" "$pai_to" {} +"""
    return f"find . -name '.pai-*' -prune -o '(' {tests} ')' -type f {run}"


_COPY = """\
lost=
for file; do
  name=${file#./}
  at=$0/$name
  part=${at%/*}/.pai-part-$(printf %08x "$(date +%s)")$(od -An -N4 -tx1 /dev/urandom | tr -d " \\n")
  mkdir -p "${at%/*}" && cp "$file" "$part" && mv -f "$part" "$at" || {
    rm -f "$part"
    echo "error: cannot keep $name" >&2
    lost=1
  }
done
[ -z "$lost" ]"""

# Without IFS, the pattern expands to the names of files but is not split at its spaces.
_SCRIPT = """\
  pai_copy={copy}
  pai_to=${variable}
  [ "${{PAI_TASKS_NUM:-1}}" -le 1 ] ||
    pai_to=$pai_to/${{PAI_CURRENT_TASK_ROLE_NAME:-main}}-${{PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX:-0}}
  (
    cd "$pai_work" || exit 1
    pai_lost=
    pai_save() {{
      pai_pattern=$1 IFS=
      set +f
      set -- $1
      unset IFS
      [ -e "$1" ] || {{ echo "warning: no file matches ${{pai_pattern#./}}" >&2; return 0; }}
      find -H "$@" -type f -exec sh -c "$pai_copy" "$pai_to" {{}} +
    }}
{saves}
    [ -z "$pai_lost" ]
  ) || [ "$pai_code" -ne 0 ] || pai_code=1"""
