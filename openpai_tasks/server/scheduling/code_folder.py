"""The ``codeDir`` of a job of version 1, which is in the working folder when its commands begin.

OpenPAI 0.14 downloads the folder from its HDFS, under its own name. Here, a path without a server is looked
for in the user's storage, then on this machine.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from openpai_tasks.protocol import JobDocument
from openpai_tasks.protocol.document import references
from openpai_tasks.protocol.legacy.conversion import EXPORT_CODE

_PACKAGES = str(Path(__file__).parents[3])
_RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from openpai_tasks.__main__ import main; "
    "sys.argv[0] = 'pai'; main()"
)
_FETCH = """\
pai_code={code}
pai_name=${{pai_code%"${{pai_code##*[!/]}}"}} && pai_name=${{pai_name##*/}}
pai_stop() {{ echo "error: cannot get the codeDir $pai_code: $1" >&2; exit 1; }}
case $pai_code in
hdfs://* | webhdfs://*)
  case $pai_code in *@*) ;; *) pai_code=${{pai_code%%://*}}://$PAI_USER_NAME@${{pai_code#*://}} ;; esac
  if [ -n "${{PAI_MOUNT_ROOT-}}" ]; then
    {copy} "$pai_code" "./$pai_name" >/dev/null || pai_stop "see above"
  elif command -v hdfs >/dev/null; then
    HADOOP_USER_NAME=$PAI_USER_NAME hdfs dfs -get "$pai_code" . || pai_stop "see above"
  else
    pai_stop "the image has no hdfs command"
  fi ;;
*)
  pai_found=
  for pai_place in "${{PAI_MOUNT_ROOT-}}/mnt/home/${{pai_code#/}}" "$pai_code"; do
    [ -n "$pai_found" ] || [ ! -e "$pai_place" ] || pai_found=$pai_place
  done
  [ -n "$pai_found" ] || pai_stop "no such folder in your storage or on this machine"
  cp -R -- "$pai_found" . || pai_stop "see above" ;;
esac"""


def fetch_code(document: JobDocument, role: str) -> str:
    """Return the script that downloads the folder; empty if the role has none."""
    if EXPORT_CODE not in references.commands(document.data, role):
        return ""
    name = dict(references.roles(document.data))[role].get("script")
    uri = str(references.prerequisite(document.data, "script", name).get("uri", ""))
    copy = shlex.join([sys.executable, "-I", "-c", _RUN, _PACKAGES, "storage.copy"])
    return _FETCH.format(code=f'"{uri}"', copy=copy) if uri else ""
