"""The job document of a submission, and the script that starts its tasks.

The script sets the variables that PaddleCloud's pods have, changes to the package and runs the entry. All
parameter servers run on this machine, so each has a loopback address; the port is the same for all of them,
as in the original, but a free one instead of 7164. Where there is only one loopback address, as on macOS,
each has a port instead. ``PADDLE_PSERVERS_IP_PORT_LIST`` is right everywhere.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from openpai_tasks.protocol import dump
from openpai_tasks.protocol.document.roles import DEFAULTS
from openpai_tasks.server.paddlecloud import places
from openpai_tasks.server.paddlecloud.submission import DEFAULT_MEMORY_MB, PaddleSubmission

TRAINER, PSERVER = "trainer", "pserver"
EXTRAS = "paddlecloud"
RETRIES = 3  # of a fault tolerant job
_PORT = "paddle"


def namespace(user: str) -> str:
    return re.sub(r"[@._]", "-", user)


def package_path(user: str, wanted: PaddleSubmission) -> str:
    """Return the path of the package on PFS."""
    return wanted.package or places.home_path(wanted.datacenter, user, "jobs", wanted.name)


def document(user: str, name: str, wanted: PaddleSubmission) -> str:
    """Return the text of the document; ``name`` is the job's name in OpenPAI's API."""
    trainer = {"cpu": wanted.cpu, "gpu": wanted.gpu, "memoryMB": wanted.memory_mb}
    roles = {TRAINER: _role(wanted.trainers, trainer, script(user, wanted, TRAINER))}
    if wanted.pservers:
        pserver = {"cpu": wanted.pserver_cpu, "gpu": 0, "memoryMB": wanted.pserver_memory_mb}
        needs = {**pserver, "ports": {_PORT: 1}}
        roles[PSERVER] = _role(wanted.pservers, needs, script(user, wanted, PSERVER))
        roles[PSERVER]["completion"] = {"minFailedInstances": 1, "minSucceededInstances": -1}
    value = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "jobRetryCount": RETRIES if wanted.fault_tolerant else 0,
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": wanted.image}],
        "taskRoles": roles,
        "extras": {
            "storages": [{"name": places.HOME, "mountPath": places.home_path(wanted.datacenter, user)}],
            EXTRAS: {"name": wanted.name, "datacenter": wanted.datacenter},
            DEFAULTS: {"memoryMB": DEFAULT_MEMORY_MB},
        },
    }
    return dump(value)


def _role(instances: int, resources: Mapping[str, object], command: str) -> dict[str, Any]:
    return {
        "instances": instances,
        "dockerImage": "image",
        "resourcePerInstance": resources,
        "commands": [command],
    }


def script(user: str, wanted: PaddleSubmission, role: str) -> str:
    """Return the commands of a task, for any POSIX shell."""
    exports = [f"export {name}={_quote(value)}" for name, value in _variables(user, wanted).items()]
    package = package_path(user, wanted)
    return "\n".join(
        [
            *exports,
            f'export TRAINER_PACKAGE="$PAI_MOUNT_ROOT"{_quote(package)}',
            'export OUTPUT="$TRAINER_PACKAGE/output"',
            _ADDRESSES.format(count=wanted.pservers, several=int(sys.platform == "linux"), port=_PORT),
            _PLACE,
            _START_TRAINER if role == TRAINER else _START_PSERVER,
        ]
    )


def _variables(user: str, wanted: PaddleSubmission) -> dict[str, str]:
    return {
        "PADDLE_JOB_NAME": wanted.name,
        "TRAINERS": str(wanted.trainers),
        "PSERVERS": str(wanted.pservers),
        "TOPOLOGY": wanted.topology,
        "ENTRY": wanted.entry,
        "PADDLE_INIT_TRAINER_COUNT": str(wanted.gpu or wanted.cpu),
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(wanted.trainers),
        "PADDLE_INIT_NUM_PASSES": str(wanted.passes),
        "PADDLE_INIT_USE_GPU": "1" if wanted.gpu else "0",
        **({"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"} if wanted.gpu else {}),
        "NAMESPACE": namespace(user),
        "PADDLE_CLOUD_CURRENT_DATACENTER": wanted.datacenter,
        "PADDLE_CLOUD_USERNAME": user,
    }


def _quote(text: str) -> str:
    """Quote a word for a shell, and break the brackets that begin a template of a document."""
    return shlex.quote(text).replace("<%", "<''%")


_ADDRESSES = """\
PADDLE_INIT_PSERVERS= PADDLE_PSERVERS_IP_PORT_LIST= PADDLE_INIT_PORT=7164
POD_IP=$PAI_CURRENT_CONTAINER_IP pserver=0
while [ "$pserver" -lt {count} ]; do
  eval "host=\\$PAI_HOST_IP_pserver_$pserver port=\\$PAI_PORT_LIST_pserver_${{pserver}}_{port}"
  case {several}:$host in
    1:127.*) host=127.0.$((pserver / 250)).$((pserver % 250 + 1)) port=$PAI_PORT_LIST_pserver_0_{port} ;;
  esac
  if [ "$PAI_CURRENT_TASK_ROLE_NAME" = pserver ] && [ "$PAI_TASK_INDEX" = "$pserver" ]; then
    POD_IP=$host PADDLE_INIT_PORT=$port
  elif [ "$pserver" = 0 ]; then
    PADDLE_INIT_PORT=$port
  fi
  PADDLE_INIT_PSERVERS=${{PADDLE_INIT_PSERVERS:+$PADDLE_INIT_PSERVERS,}}$host
  PADDLE_PSERVERS_IP_PORT_LIST=${{PADDLE_PSERVERS_IP_PORT_LIST:+$PADDLE_PSERVERS_IP_PORT_LIST,}}$host:$port
  pserver=$((pserver + 1))
done
export PADDLE_INIT_PSERVERS PADDLE_PSERVERS_IP_PORT_LIST PADDLE_INIT_PORT POD_IP"""

_PLACE = """\
export PYTHONPATH="$TRAINER_PACKAGE${PYTHONPATH:+:$PYTHONPATH}"
python=$(command -v python || command -v python3 || echo python)
cd "$TRAINER_PACKAGE" || { echo "error: the package $TRAINER_PACKAGE is not there" >&2; exit 1; }"""

_START_TRAINER = """\
export TRAINING_ROLE=TRAINER PADDLE_INIT_TRAINER_ID="$PAI_TASK_INDEX"
if [ -n "$ENTRY" ]; then exec sh -c "$ENTRY"; fi
if command -v paddle >/dev/null; then exec paddle train --config="$TOPOLOGY" --local=0 \
--use_gpu="$PADDLE_INIT_USE_GPU" --save_dir="$OUTPUT" \
--trainer_count="$PADDLE_INIT_TRAINER_COUNT" --num_passes="$PADDLE_INIT_NUM_PASSES" \
--trainer_id="$PADDLE_INIT_TRAINER_ID" --pservers="$PADDLE_INIT_PSERVERS" --port="$PADDLE_INIT_PORT"; fi
exec "$python" "$TOPOLOGY\""""

_START_PSERVER = """\
export TRAINING_ROLE=PSERVER PADDLE_INIT_PSERVER_ID="$PAI_TASK_INDEX"
if [ -f pserver.sh ]; then exec sh pserver.sh; fi
if [ -f pserver.py ]; then exec "$python" pserver.py; fi
if command -v paddle >/dev/null; then exec paddle pserver --port="$PADDLE_INIT_PORT" \
--ports_num=1 --ports_num_for_sparse=1 --num_gradient_servers="$TRAINERS"; fi
echo "this parameter server waits for the end of the trainers: the package has no pserver.py"
exec tail -f /dev/null"""
