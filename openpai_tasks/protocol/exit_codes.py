"""The exit codes of a cluster: the meaning of each, and whether the job is retried."""

from __future__ import annotations

from typing import Any

ALWAYS_RETRY = "ALWAYS_RETRY"
ALWAYS_BACKOFF_RETRY = "ALWAYS_BACKOFF_RETRY"
RETRY_TO_MAX = "RETRY_TO_MAX"
NEVER_RETRY = "NEVER_RETRY"

STOPPED_BY_USER = -210
STOPPED_WITH_ATTEMPT = -220
DEADLINE_EXCEEDED = -1004
COMMAND_NOT_FOUND = 220
USER_FAILURE = 255
RUNTIME_FAILURE = 256
UNDEFINED_NEGATIVE = -8000

_NOTHING: tuple[str, ...] = ()
_RETRY = ("wait for the next retry", "ask the cluster's administrator if it happens again")
_DOCUMENT = ("look at the diagnostics and fix the job document",)
_LOOK = ("look at the logs for the cause",)
_PROGRAM = ("look at the logs and fix the program",)
_MEMORY = ("ask for more memory per task", "let the program use less memory, for example with more tasks")
_PLATFORM = ("report it to the cluster's administrator",)
_COMMAND = ("check the command's spelling and the PATH in the image",)
_IMAGE = ("use another image, or correct its name or credentials",)
_GPU_MEMORY = ("use a GPU with more memory", "make the batch or the model smaller")
_PATH = ("check the paths that the program saves to and restores from",)
_BARRIER = ("check that SSH is enabled for every task role that is waited for",)
_SMALLER = ("wait for the next retry", "ask for fewer tasks or for less per task")
_PORTS = ("wait for the next retry", "ask for fewer ports")
_DEADLINE = ("give the job a later deadline",)

_FIELDS = ("issuer", "causer", "type", "stage", "behavior", "reaction")
_CODES: dict[str, dict[int, tuple[str, str, tuple[str, ...]]]] = {
    "USER_CONTAINER USER_CONTAINER USER_SUCCESS COMPLETING UNKNOWN NEVER_RETRY": {
        0: ("Succeeded", "", _NOTHING)
    },
    "PAI_FC PAI_UNKNOWN PLATFORM_FAILURE UNKNOWN TRANSIENT ALWAYS_RETRY": {
        -100: ("ConfigMapExternalDeleted", "the attempt's ConfigMap was deleted externally", _RETRY),
        -101: ("PodExternalDeleted", "the pod was deleted externally", _RETRY),
    },
    "PAI_FC PAI_UNKNOWN PLATFORM_FAILURE LAUNCHING TRANSIENT ALWAYS_RETRY": {
        -110: (
            "ConfigMapLocalCacheCreationTimeout",
            "the attempt's ConfigMap did not appear in time",
            _RETRY,
        ),
        -111: ("PodLocalCacheCreationTimeout", "the pod did not appear in time", _RETRY),
        -120: ("PodCreationTransientError", "the pod could not be created at that moment", _RETRY),
    },
    "PAI_FC USER_SUBMISSION USER_FAILURE SUBMITTING PERMANENT NEVER_RETRY": {
        -200: (
            "PodCreationPermanentError",
            "the pod could not be created; its specification is probably wrong",
            _DOCUMENT,
        )
    },
    "PAI_FC USER_STOP USER_STOP UNKNOWN PERMANENT NEVER_RETRY": {
        -210: ("StopFrameworkRequested", "the job was stopped on request", _NOTHING),
        -220: ("FrameworkAttemptCompletion", "the task was stopped because its attempt was over", _NOTHING),
    },
    "PAI_FC USER_SCALEDOWN USER_STOP UNKNOWN PERMANENT NEVER_RETRY": {
        -230: ("DeleteTaskRequested", "the task was removed because the job was scaled down", _NOTHING)
    },
    "PAI_FC UNKNOWN UNKNOWN_FAILURE LAUNCHING UNKNOWN RETRY_TO_MAX": {
        -300: (
            "PodFailedWithoutFailedContainer",
            "the pod failed although none of its containers did",
            _LOOK,
        ),
        -310: ("PodCreationUnknownError", "the pod could not be created, for an unknown reason", _LOOK),
    },
    "PAI_K8S PAI_K8S PLATFORM_FAILURE RUNNING TRANSIENT ALWAYS_RETRY": {
        -1000: ("PodEvicted", "the node ran short of resources and evicted the pod", _RETRY),
        -1001: ("PodNodeLost", "the node was lost", _RETRY),
        -1003: ("PodPreemptedForCriticalPod", "the pod was preempted by a critical one", _RETRY),
    },
    "PAI_K8S PAI_K8S PLATFORM_FAILURE LAUNCHING TRANSIENT ALWAYS_RETRY": {
        -1002: (
            "PodScheduledToInsufficientResourceNode",
            "the node had fewer resources than planned",
            _RETRY,
        ),
        -1006: ("PodNodeAdmissionUnexpectedError", "the node refused the pod unexpectedly", _RETRY),
    },
    "PAI_K8S USER_STOP USER_STOP RUNNING PERMANENT NEVER_RETRY": {
        -1004: ("PodDeadlineExceeded", "the pod ran past its deadline", _DEADLINE)
    },
    "PAI_K8S USER_SUBMISSION USER_FAILURE LAUNCHING PERMANENT NEVER_RETRY": {
        -1005: ("PodNodeAdmissionForbidden", "the node permanently refused the pod", _DOCUMENT)
    },
    "PAI_DB_CONTROLLER USER_SUBMISSION USER_FAILURE SUBMITTING PERMANENT NEVER_RETRY": {
        -1100: (
            "CreateFrameworkPermanentFailed",
            "the accepted job could not be created in the cluster",
            _DOCUMENT,
        )
    },
    "PAI_DOCKER PAI_RUNTIME PLATFORM_FAILURE LAUNCHING TRANSIENT ALWAYS_RETRY": {
        -1300: ("InitContainerDockerOOMKilled", "preparing the task took more memory than allowed", _RETRY)
    },
    "PAI_DOCKER USER_CONTAINER USER_FAILURE RUNNING PERMANENT NEVER_RETRY": {
        -1200: ("UserContainerDockerOOMKilled", "the task used more memory than it asked for", _MEMORY)
    },
    "PAI_DOCKER UNKNOWN UNKNOWN_FAILURE LAUNCHING UNKNOWN RETRY_TO_MAX": {
        -1201: ("ContainerDockerCreationError", "the container could not be created", _LOOK),
        -1204: ("ContainerDockerStartUnknownError", "the container could not be started", _LOOK),
    },
    "PAI_DOCKER PAI_RUNTIME PLATFORM_FAILURE LAUNCHING PERMANENT NEVER_RETRY": {
        -1202: (
            "ContainerDockerStartCmdPermissionDenied",
            "the container's start script is not executable",
            _PLATFORM,
        ),
        -1203: ("ContainerDockerStartCmdNotFound", "the container's start script was not found", _PLATFORM),
    },
    "PAI_DOCKER PAI_HW PLATFORM_FAILURE LAUNCHING TRANSIENT ALWAYS_RETRY": {
        -1205: ("ContainerGpuDeviceNotFoundError", "the GPU assigned to the task is not on the node", _RETRY)
    },
    "USER_CONTAINER PAI_HW PLATFORM_FAILURE RUNNING UNKNOWN RETRY_TO_MAX": {
        128: (
            "ContainerMayFailDueToGpuDeviceEccError",
            "the task failed, perhaps because of a memory error of its GPU",
            _RETRY,
        )
    },
    "PAI_OS PAI_OS PLATFORM_FAILURE RUNNING TRANSIENT ALWAYS_RETRY": {
        130: ("ContainerSigIntReceived", "the task was killed by SIGINT", _RETRY),
        131: ("ContainerSigQuitReceived", "the task was killed by SIGQUIT", _RETRY),
        137: ("ContainerSigKillReceived", "the task was killed by SIGKILL", _RETRY),
        143: ("ContainerSigTermReceived", "the task was killed by SIGTERM", _RETRY),
    },
    "USER_CONTAINER USER_CONTAINER USER_FAILURE RUNNING PERMANENT NEVER_RETRY": {
        132: ("ContainerSigIllReceived", "the task was killed by SIGILL", _PROGRAM),
        135: ("ContainerSigBusReceived", "the task was killed by SIGBUS", _PROGRAM),
        136: ("ContainerSigFpeReceived", "the task was killed by SIGFPE", _PROGRAM),
        141: ("ContainerSigPipeReceived", "the task was killed by SIGPIPE", _PROGRAM),
        220: ("UserCommandExitWithError", "a command was not found", _COMMAND),
    },
    "USER_CONTAINER UNKNOWN UNKNOWN_FAILURE RUNNING UNKNOWN RETRY_TO_MAX": {
        134: ("ContainerSigAbrtReceived", "the task was killed by SIGABRT", _LOOK),
        139: ("ContainerSigSegvReceived", "the task was killed by SIGSEGV", _LOOK),
    },
    "PAI_RUNTIME USER_CONTAINER USER_FAILURE RUNNING PERMANENT NEVER_RETRY": {
        221: ("ContainerTensorflowOOMKilled", "TensorFlow ran out of memory", _MEMORY),
        222: ("ContainerMPISegvFault", "an MPI process accessed invalid memory", _PROGRAM),
        224: ("ContainerCudaVersionMismatch", "the image's CUDA is too new for the driver", _IMAGE),
        225: ("ContainerCudaDnnVersionMismatch", "the image's cuDNN does not match", _IMAGE),
        226: ("ContainerCudaOOMKilled", "the GPU ran out of memory", _GPU_MEMORY),
        228: ("ContainerIncorrectParameterError", "the program got an invalid argument", _PROGRAM),
        229: ("ContainerIncorrectDataModelError", "the program could not read its data or model", _PROGRAM),
        230: ("ContainerInvalidSavePath", "the program cannot restore from the given path", _PATH),
        231: ("ContainerSyntaxError", "the code has an error", _PROGRAM),
        232: ("ContainerImportError", "an import failed", _PROGRAM),
        233: ("ContainerIndexOutOfRange", "an index was out of range", _PROGRAM),
        234: ("ContainerSigvFault", "a process accessed invalid memory", _PROGRAM),
        235: ("ContainerEngineCoreDump", "a process crashed and left a core dump", _PROGRAM),
    },
    "PAI_RUNTIME PAI_HW PLATFORM_FAILURE RUNNING TRANSIENT ALWAYS_RETRY": {
        223: ("ContainerCudaUncorrectableECCError", "the GPU had an uncorrectable memory error", _RETRY)
    },
    "PAI_RUNTIME PAI_RUNTIME PLATFORM_FAILURE RUNNING PERMANENT NEVER_RETRY": {
        249: ("PAIRuntimeSSHBarrierTimeout", "waiting for the other tasks' SSH took too long", _BARRIER)
    },
    "PAI_RUNTIME PAI_RUNTIME PLATFORM_FAILURE LAUNCHING TRANSIENT ALWAYS_RETRY": {
        250: ("FrameworkBarrierTransientFailed", "the tasks could not reach each other this time", _RETRY),
        253: ("ContainerPortConflict", "a port of the task was already taken", _PORTS),
    },
    "PAI_RUNTIME RESOURCE_ALLOCATION_TIMEOUT RESOURCE_ALLOCATION_TIMEOUT ALLOCATING TRANSIENT_CONFLICT"
    " ALWAYS_BACKOFF_RETRY": {
        251: ("JobGangAllocationTimeout", "not all tasks of the job got their resources in time", _SMALLER)
    },
    "PAI_RUNTIME PAI_RUNTIME PLATFORM_FAILURE LAUNCHING PERMANENT NEVER_RETRY": {
        252: ("FrameworkBarrierPermanentFailed", "the tasks cannot reach each other", _PLATFORM)
    },
    "PAI_RUNTIME PAI_RUNTIME USER_FAILURE LAUNCHING PERMANENT NEVER_RETRY": {
        254: ("ContainerImageNotExists", "the image does not exist, or may not be pulled", _IMAGE)
    },
    "PAI_RUNTIME UNKNOWN UNKNOWN_FAILURE UNKNOWN UNKNOWN RETRY_TO_MAX": {
        255: ("PAIRuntimeUnknownFailed", "the command failed", _LOOK)
    },
    "UNKNOWN UNKNOWN UNKNOWN_FAILURE UNKNOWN UNKNOWN RETRY_TO_MAX": {
        -8000: (
            "ContainerUndefinedNegativeExitCode",
            "the task ended with an unknown negative exit code",
            _PLATFORM,
        )
    },
    "PAI_RUNTIME PAI_RUNTIME PLATFORM_FAILURE UNKNOWN UNKNOWN RETRY_TO_MAX": {
        256: ("PAIRuntimeExitAbnormally", "the runtime around the command failed", _PLATFORM)
    },
}
REPRO: dict[int, str] = {
    0: "end the program with exit code 0",
    -100: "delete the attempt's ConfigMap by hand",
    -101: "delete a pod of the job by hand",
    -110: "stop the Kubernetes API server right after the ConfigMap was created",
    -111: "stop the Kubernetes API server right after the pod was created",
    -120: "stop the Kubernetes API server right before the pod is created",
    -200: "describe a pod with two containers of the same name",
    -210: "stop the job",
    -220: "let one task end the attempt while another one is still running",
    -230: "scale down a job whose tasks are running",
    -300: "submit a job that the node refuses",
    -310: "delete the job's priority class right after submitting",
    -1000: "use up the node's memory outside of the pod",
    -1001: "stop the kubelet of the pod's node",
    -1002: "bind a pod to a node that has less memory than the pod asks for",
    -1003: "submit a critical pod to a node that is full of ordinary ones",
    -1004: "let a pod run past its deadline",
    -1005: "submit a privileged pod to a node that does not allow them",
    -1006: "hit a transient error of the kubelet",
    -1100: "submit a job with a very large document",
    -1200: "use more memory than the task asks for",
    -1201: "run an image that no container can be created from",
    -1202: "start a container with a directory as its command",
    -1203: "start a container with a command that does not exist",
    -1204: "ask for a capability that the node does not know",
    -1205: "use GPU number 3 on a node with three GPUs",
    -1300: "let the init container use more memory than it has",
    128: "run on a GPU with memory errors",
    130: "send SIGINT to the container's process",
    131: "send SIGQUIT to the container's process",
    132: "execute an illegal instruction",
    134: "call abort()",
    135: "access an unaligned address",
    136: "divide an integer by zero",
    137: "send SIGKILL to the container's process",
    139: "access an address that is not mapped",
    141: "write to a pipe without a reader",
    143: "send SIGTERM to the container's process",
    220: "start a job whose command does not exist",
    221: "let TensorFlow allocate more memory than the task has",
    222: "let an MPI process access an address that is not mapped",
    223: "run TensorFlow on a GPU with uncorrectable memory errors",
    224: "run an image whose CUDA is newer than the node's driver",
    225: "run a new PyTorch with an old cuDNN",
    226: "allocate more GPU memory than there is",
    228: "call TensorFlow with a wrong argument",
    229: "load a model or data of the wrong format",
    230: "save a model to a path that does not exist",
    231: "run code with a syntax error",
    232: "import a module that is not installed",
    233: "access an element that is out of range",
    234: "access an invalid address",
    235: "crash a process so that it dumps core",
    249: "wait for the SSH of a role without the ssh plugin",
    251: "ask for more tasks at once than the virtual cluster can run",
    252: "run the barrier with a time limit of one second",
    253: "run a task on a node whose ports are mostly taken",
    254: "submit a job with an image name that does not exist",
    255: "end the program with exit code 1",
    256: "let the runtime end with exit code 1",
    -8000: "end a task with a negative exit code that is not in the table",
}  # fmt: skip


def _specs() -> dict[int, dict[str, Any]]:
    specs = {}
    for facts, codes in _CODES.items():
        shared = dict(zip(_FIELDS, facts.split(), strict=True))
        for code, (phrase, reason, solution) in codes.items():
            specs[code] = {
                **{"code": code, "phrase": phrase, **shared, **({"reason": reason} if reason else {})},
                **{"repro": [REPRO[code]] if code in REPRO else [], "solution": list(solution)},
            }
    return specs


_SPECS = _specs()


def exit_spec(code: int) -> dict[str, Any]:
    """Return the specification of an exit code; unknown codes get a general one by their sign."""
    known = _SPECS.get(code) or _SPECS[RUNTIME_FAILURE if code > 0 else UNDEFINED_NEGATIVE]
    return {**known, "code": code, "repro": list(known["repro"]), "solution": list(known["solution"])}


def is_known(code: int) -> bool:
    """Whether the code is in the table."""
    return code in _SPECS


def reaction(code: int) -> str:
    """Return whether a job that ended with this code is retried."""
    return str(exit_spec(code)["reaction"])


def from_user_code(code: int) -> int:
    """Return the cluster's code for a command's own exit code: signals keep theirs, others become 255."""
    if code == 0 or code in _SIGNALS:
        return code
    return COMMAND_NOT_FOUND if code == 127 else USER_FAILURE


_SIGNALS = frozenset(code for code in _SPECS if 129 <= code <= 143)
