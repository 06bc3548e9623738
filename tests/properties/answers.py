"""Responses of real servers of three generations, and a server that sends them."""

from __future__ import annotations

from typing import Any

from tests.scripted import ReceivedRequest, Reply, Scripted
from tests.sdk.pai_server import jwt

TOKEN = jwt("ann", application=False, exp=4102444800)
LOGIN = {"user": "ann", "token": TOKEN, "admin": False}
INFO = {"name": "PAI RESTful API", "version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic"}
AUTHN = {"authn_type": "basic", "loginURI": "/api/v1/authn/basic/login", "loginURIMethod": "post"}
USER = {
    "username": "ann",
    "grouplist": ["default"],
    "admin": False,
    "virtualCluster": ["default"],
    "extension": {},
}
AMOUNTS = {"cpu": 2, "memory": 24065, "gpu": 4, "vCores": 2, "GPUs": 4}
CLUSTERS = {
    "default": {
        "capacity": 100.0,
        "usedCapacity": 0.0,
        "dedicated": False,
        "resourcesUsed": {**AMOUNTS, "gpu": 0, "GPUs": 0},
        "resourcesGuaranteed": {**AMOUNTS, "gpu": 2, "GPUs": 2},
        "resourcesTotal": AMOUNTS,
    }
}
STORAGES = {"storages": [{"name": "team", "share": True, "volumeName": "team-pv", "default": True}]}
STORAGE = {
    "name": "team",
    "share": True,
    "volumeName": "team-pv",
    "type": "nfs",
    "data": {"server": "nas", "path": "/exports/team"},
    "readOnly": False,
    "mountOptions": ["nolock"],
}
ROW = {
    "debugId": "03fcd269",
    "name": "train",
    "username": "ann",
    "state": "FAILED",
    "subState": "Completed",
    "executionType": "START",
    "retries": 0,
    "retryDetails": {"user": 0, "platform": 0, "resource": 0},
    "submissionTime": 1794764631094,
    "createdTime": 1794764631094,
    "launchedTime": 1794764631097,
    "completedTime": 1794764631193,
    "appExitCode": 255,
    "virtualCluster": "default",
    "totalGpuNumber": 0,
    "totalTaskNumber": 1,
    "tags": ["a"],
}
LIST = {"totalCount": 1, "data": [ROW]}
TASK = {
    "taskIndex": 0,
    "taskState": "FAILED",
    "launchedTime": 1794764631097,
    "completedTime": 1794764631190,
    "attemptId": 0,
    "containerId": "fd997c9f",
    "containerIp": "127.0.0.1",
    "containerPorts": {"ssh": "29365", "http": "18513"},
    "containerGpus": None,
    "containerLog": "/api/v2/jobs/ann~train/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs",
    "containerExitCode": 255,
    "containerExitDiagnostics": "exited with code 3",
}
DETAIL = {
    "debugId": "03fcd269",
    "name": "train",
    "tags": ["a"],
    "jobStatus": {
        "username": "ann",
        "state": "FAILED",
        "retries": 0,
        "submissionTime": 1794764631094,
        "createdTime": 1794764631094,
        "launchedTime": 1794764631097,
        "completedTime": 1794764631193,
        "attemptId": 0,
        "appExitCode": 255,
        "appExitSpec": {"code": 255, "phrase": "Failed", "reason": "it failed", "solution": ["Look", "Wait"]},
        "appExitDiagnostics": "task main-0 exited with code 3",
        "appExitMessages": {"container": None, "runtime": {"exitCode": 255, "originUserExitCode": 3}},
        "appExitTriggerMessage": "task main-0 exited with code 3",
        "virtualCluster": "default",
    },
    "taskRoles": {"main": {"taskRoleStatus": {"name": "main"}, "taskStatuses": [TASK]}},
}
RUNNING = {
    **DETAIL,
    "jobStatus": {**DETAIL["jobStatus"], "state": "RUNNING", "completedTime": None},
    "taskRoles": {"main": {"taskStatuses": [{**TASK, "taskState": "RUNNING"}]}},
}
RETRYING = {
    **RUNNING,
    "jobStatus": {
        **RUNNING["jobStatus"],
        "subState": "AttemptCompleted",
        "executionType": "START",
        "retries": 1,
        "retryDelayTime": 3,
        "appExitMessages": None,
        "appExitDiagnostics": "PodPattern matched:\ncontainers:\n- reason: Error\n  message: |-\n"
        "    [PAI_RUNTIME_ERROR_START]\n    originUserExitCode: 3\n    errorLogs:\n      user: |\n"
        "        no such file\n    [PAI_RUNTIME_ERROR_END]\n",
    },
}
WAITING = {
    **DETAIL,
    "jobStatus": {"username": "ann", "state": "WAITING", "submissionTime": 1},
    "taskRoles": {},
}
EVENTS = {
    "totalCount": 1,
    "data": [
        {
            "uid": "0397b502",
            "podUid": None,
            "taskIndex": None,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
            "firstTimestamp": "2026-11-15T17:43:51.193Z",
            "lastTimestamp": "2026-11-15T17:43:51.193Z",
            "count": 1,
        }
    ],
}
LOCATIONS = {
    "locations": [{"name": name, "uri": f"/logs/{name}?token=t"} for name in ("all", "stdout", "stderr")]
}
SSH = {
    "containers": [{"id": "fd997c9f", "sshIp": "127.0.0.1", "sshPort": "29365"}],
    "keyPair": {
        "folderPath": "hdfs://nn/ssh",
        "publicKeyFileName": "train.pub",
        "privateKeyFileName": "train",
        "privateKeyDirectDownloadLink": "/key",
    },
}
DOCUMENT = {
    "protocolVersion": 2,
    "name": "train",
    "type": "job",
    "jobRetryCount": 0,
    "prerequisites": [
        {
            "type": "dockerimage",
            "name": "i",
            "uri": "python:3",
            "auth": {"username": "u", "password": "******"},
        }
    ],
    "parameters": {"rate": 0.1},
    "secrets": "******",
    "taskRoles": {
        "main": {
            "instances": 1,
            "completion": {"minFailedInstances": 1},
            "dockerImage": "i",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 100, "gpu": 1},
            "commands": ["echo <% $secrets.KEY %>", "python train.py"],
        }
    },
    "defaults": {"virtualCluster": "default", "deployment": "d"},
    "deployments": [{"name": "d", "taskRoles": {"main": {"preCommands": ["true"]}}}],
    "extras": {
        "storages": [{"name": "team"}],
        "com.microsoft.pai.runtimeplugin": [{"plugin": "ssh", "parameters": {"jobssh": False}}],
        "openpaiTasks": {
            "version": "0.1",
            "storage": "team",
            "workspace": "ann",
            "commit": "abc",
            "dirty": False,
        },
        "openpaiNotebook": {"file": "a.ipynb", "formats": ["ipynb"], "parameters": "{}", "cellSeconds": 5},
    },
}
DOCUMENT_V1 = {
    "jobName": "train",
    "image": "python:3",
    "virtualCluster": "default",
    "retryCount": 0,
    "gpuType": "",
    "taskRoles": [
        {
            "name": "main",
            "taskNumber": 1,
            "cpuNumber": 1,
            "memoryMB": 100,
            "shmMB": 64,
            "gpuNumber": 0,
            "portList": [{"label": "web", "beginAt": 0, "portNumber": 1}],
            "command": "python train.py",
            "minFailedTaskCount": 1,
            "minSucceededTaskCount": None,
        }
    ],
    "jobEnvs": {"isDebug": True},
    "extras": {"virtualCluster": "default"},
}
ERROR = {"code": "NoJobError", "message": '[{"dataPath": ".name", "message": "should be string"}]'}

V2 = "/rest-server/api/v2"
V1 = "/rest-server/api/v1"
JOB = f"{V2}/jobs/ann~train"
OPEN: dict[str, Any] = {f"GET {V1}/authn/info": AUTHN, f"POST {V1}/token": LOGIN, f"GET {V1}/user/ann": USER}
KINDS: dict[str, dict[str, Any]] = {
    "1.8": {
        **OPEN,
        f"GET {V2}/info": INFO,
        f"GET {V2}/virtual-clusters": CLUSTERS,
        f"GET {V2}/storages": STORAGES,
        f"GET {V2}/storages/team": STORAGE,
        f"GET {V2}/jobs": LIST,
        f"GET {JOB}": DETAIL,
        f"GET {JOB}/attempts/0": DETAIL,
        f"GET {JOB}/config": DOCUMENT,
        f"GET {JOB}/events": EVENTS,
        f"GET {JOB}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs": LOCATIONS,
        f"GET {V2}/tokens/check": {"username": "ann", "token": TOKEN},
        f"POST {V2}/tokens/application": {"token": TOKEN, "application": True},
        "GET /logs/all": "hi\n",
    },
    "0.14": {
        **OPEN,
        f"GET {V1}": "<pre>PAI RESTful API</pre>",
        f"GET {V1}/virtual-clusters": CLUSTERS,
        f"GET {V1}/jobs": [ROW],
        f"GET {V1}/jobs/ann~train": {
            **DETAIL,
            "taskRoles": {
                "main": {"taskStatuses": [{**TASK, "containerLog": "/yarn/n:8042/node/containerlogs/c/ann/"}]}
            },
        },
        f"GET {V1}/jobs/ann~train/config": DOCUMENT_V1,
        f"GET {V1}/jobs/ann~train/ssh": SSH,
        "GET /key": "-----BEGIN PRIVATE KEY-----\n",
        "GET /yarn/n:8042/node/containerlogs/c/ann/user.pai.stdout/": "<pre>hi</pre>",
    },
}
KINDS["0.18"] = {
    **KINDS["1.8"],
    f"GET {V2}/info": {**INFO, "version": "v1.0.0"},
    f"GET {V2}/jobs": [ROW],
}


class OddCluster(Scripted):
    """A server of one generation that answers chosen requests with a body given by the test."""

    def __init__(self, generation: str) -> None:
        super().__init__(KINDS[generation])
        self.instead: dict[str, Reply] = {}

    def respond(self, asked: ReceivedRequest) -> Reply:
        self.seen.clear()
        return self.instead.get(f"{asked.method} {asked.path}") or super().respond(asked)
