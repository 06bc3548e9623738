"""What the parts of a v2 job document are for, in the words an editor shows; the rules are in schema.py.

A star stands for a name of the user's own or the place in a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hint:
    """One sentence, what counts when the key is left out, and values people write."""

    about: str
    default: Any = None
    examples: tuple[Any, ...] = ()


_PREREQUISITE = "What the job needs before it runs: an image, or scripts, data and output that commands name."
_PRE = "Commands that run before those of the role."
_POST = "Commands that run after those of the role."

HINTS: dict[str, Hint] = {
    "": Hint("A job for OpenPAI, protocol version 2."),
    "protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "name": Hint("The job's name, unique among your jobs: letters, digits, _ and -.", examples=("mnist-1",)),
    "type": Hint("What this document describes.", examples=("job",)),
    "version": Hint("The version of your job, for yourself.", examples=("1.0",)),
    "contributor": Hint("Who wrote it."),
    "description": Hint("What the job does."),
    "prerequisites": Hint(_PREREQUISITE),
    "prerequisites.*": Hint("One thing the job needs; `type` says what it is."),
    "prerequisites.*.protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "prerequisites.*.name": Hint("The name by which task roles refer to it.", examples=("image",)),
    "prerequisites.*.type": Hint("dockerimage, script, data or output."),
    "prerequisites.*.version": Hint("Its version, for yourself."),
    "prerequisites.*.contributor": Hint("Who provided it."),
    "prerequisites.*.description": Hint("What it is."),
    "prerequisites.*.uri": Hint(
        "Where it is: an image's name, or the address that commands see as <% $script.uri %> and the like.",
        examples=("python:3.11",),
    ),
    "prerequisites.*.uri.*": Hint("One address."),
    "prerequisites.*.plugin": Hint("The plugin that makes it available."),
    "prerequisites.*.require": Hint("Prerequisites that this one needs itself."),
    "prerequisites.*.require.*": Hint("The name of a prerequisite."),
    "prerequisites.*.auth": Hint("The login for a private image registry."),
    "prerequisites.*.auth.username": Hint("The user at the registry."),
    "prerequisites.*.auth.password": Hint(
        "The password; keep it under `secrets` and name it here.", examples=("<% $secrets.registry %>",)
    ),
    "prerequisites.*.auth.registryuri": Hint("The registry.", examples=("docker.io",)),
    "parameters": Hint("Values that commands name as <% $parameters.NAME %>."),
    "secrets": Hint("Values that commands name as <% $secrets.NAME %>; the server never shows them again."),
    "jobRetryCount": Hint("How often a failed job is tried again.", default=0),
    "taskRoles": Hint("The kinds of tasks of the job, by names of your own."),
    "taskRoles.*": Hint("One kind of task: so many equal instances of it run side by side."),
    "taskRoles.*.protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "taskRoles.*.instances": Hint("How many tasks of this kind run.", default=1),
    "taskRoles.*.completion": Hint("When the end of single tasks ends the whole job."),
    "taskRoles.*.completion.minFailedInstances": Hint(
        "So many failed tasks fail the job; -1: failures do not.", default=1
    ),
    "taskRoles.*.completion.minSucceededInstances": Hint(
        "So many succeeded tasks make the job succeed; -1: they do not. All of them if not given."
    ),
    "taskRoles.*.taskRetryCount": Hint(
        "How often a failed task is tried again; counts only with `gangAllocation: false` in extras.",
        default=0,
    ),
    "taskRoles.*.prerequisites": Hint("Names of prerequisites that this role needs."),
    "taskRoles.*.prerequisites.*": Hint("The name of a prerequisite."),
    "taskRoles.*.dockerImage": Hint("The name of the prerequisite of type dockerimage to run in."),
    "taskRoles.*.data": Hint("The name of a data prerequisite, <% $data %> in commands."),
    "taskRoles.*.output": Hint("The name of an output prerequisite, <% $output %> in commands."),
    "taskRoles.*.script": Hint("The name of a script prerequisite, <% $script %> in commands."),
    "taskRoles.*.extraContainerOptions": Hint("Options of the container."),
    "taskRoles.*.extraContainerOptions.shmMB": Hint("Shared memory (/dev/shm), in MB.", examples=(64,)),
    "taskRoles.*.extraContainerOptions.infiniband": Hint("Whether InfiniBand devices are needed."),
    "taskRoles.*.resourcePerInstance": Hint("What each task gets."),
    "taskRoles.*.resourcePerInstance.cpu": Hint("CPU cores.", examples=(4,)),
    "taskRoles.*.resourcePerInstance.memoryMB": Hint("Memory, in MB.", examples=(8192,)),
    "taskRoles.*.resourcePerInstance.gpu": Hint("GPUs.", examples=(0, 1)),
    "taskRoles.*.resourcePerInstance.ports": Hint("How many ports of each label; ssh and http come anyway."),
    "taskRoles.*.resourcePerInstance.ports.*": Hint(
        "How many ports; commands find them in PAI_PORT_LIST_<role>_<index>_<label>."
    ),
    "taskRoles.*.commands": Hint("What each task runs, line after line."),
    "taskRoles.*.commands.*": Hint("A shell command."),
    "deployments": Hint("Variants of the job, of which `defaults` chooses one."),
    "deployments.*": Hint("Commands to put around those of the roles."),
    "deployments.*.protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "deployments.*.name": Hint("The name by which `defaults` chooses it."),
    "deployments.*.taskRoles": Hint("The roles it adds commands to."),
    "deployments.*.taskRoles.*": Hint("What it adds to this role."),
    "deployments.*.taskRoles.*.preCommands": Hint(_PRE),
    "deployments.*.taskRoles.*.preCommands.*": Hint("A shell command."),
    "deployments.*.taskRoles.*.postCommands": Hint(_POST),
    "deployments.*.taskRoles.*.postCommands.*": Hint("A shell command."),
    "defaults": Hint("Where and how the job runs unless said otherwise."),
    "defaults.deployment": Hint("The deployment to use."),
    "defaults.virtualCluster": Hint("The virtual cluster to run in.", default="default"),
    "extras": Hint("Wishes to the platform; other keys are yours."),
    "extras.storages": Hint("Storages to mount, each at /mnt/<name>; an empty list for your default ones."),
    "extras.gangAllocation": Hint(
        "Whether all tasks start together; `false` lets single tasks be tried again.", default=True
    ),
    "extras.hivedScheduler": Hint("Wishes to the HiveD scheduler, where the cluster has it."),
    "extras.com.microsoft.pai.runtimeplugin": Hint("Plugins to run around the commands: ssh, cmd, git, ..."),
    "extras.jobStatusChangeNotification": Hint("The changes of state you want to be told of by mail."),
    "extras.submitFrom": Hint("The program the job came from."),
}
