"""Descriptions of the parts of a v2 job document, which editors show; the rules are in schema.py.

A star stands for a name that the user chooses, or an index in a list.
"""

from __future__ import annotations

from typing import Any

from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Hint:
    """A description of a key, its default, and examples of values."""

    about: str
    default: Any = None
    examples: tuple[Any, ...] = ()


_PREREQUISITE = "What the job needs to run: images, and scripts, data and outputs that commands refer to."
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
    "prerequisites.*": Hint("An image, script, data set or output; `type` says which."),
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
    "prerequisites.*.require": Hint("Prerequisites that this one needs."),
    "prerequisites.*.require.*": Hint("The name of a prerequisite."),
    "prerequisites.*.auth": Hint("The login for a private image registry."),
    "prerequisites.*.auth.username": Hint("The user at the registry."),
    "prerequisites.*.auth.password": Hint(
        "The password; put it under `secrets` and refer to it here.", examples=("<% $secrets.registry %>",)
    ),
    "prerequisites.*.auth.registryuri": Hint("The registry.", examples=("docker.io",)),
    "parameters": Hint("Values that commands use as <% $parameters.NAME %>."),
    "secrets": Hint("Values that commands use as <% $secrets.NAME %>; the server never shows them again."),
    "jobRetryCount": Hint("How often a failed job is retried.", default=0),
    "taskRoles": Hint("The task roles of the job, by names that you choose."),
    "taskRoles.*": Hint("A task role: a number of identical tasks that run in parallel."),
    "taskRoles.*.protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "taskRoles.*.instances": Hint("Number of tasks of this role.", default=1),
    "taskRoles.*.completion": Hint("When the end of single tasks ends the whole job."),
    "taskRoles.*.completion.minFailedInstances": Hint(
        "Number of failed tasks that fail the job; -1 for none.", default=1
    ),
    "taskRoles.*.completion.minSucceededInstances": Hint(
        "Number of succeeded tasks that make the job succeed; -1 for none. All of them if not given."
    ),
    "taskRoles.*.taskRetryCount": Hint(
        "How often a failed task is retried; only with `gangAllocation: false` in extras.",
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
    "taskRoles.*.resourcePerInstance.ports": Hint(
        "Number of ports by label; ssh and http ports are always there."
    ),
    "taskRoles.*.resourcePerInstance.ports.*": Hint(
        "Number of ports; commands find them in PAI_PORT_LIST_<role>_<index>_<label>."
    ),
    "taskRoles.*.commands": Hint("The commands that each task runs, in order."),
    "taskRoles.*.commands.*": Hint("A shell command."),
    "deployments": Hint("Variants of the job; `defaults` chooses one."),
    "deployments.*": Hint("Commands that run before and after those of the roles."),
    "deployments.*.protocolVersion": Hint("The version of this protocol.", examples=(2,)),
    "deployments.*.name": Hint("The name by which `defaults` chooses it."),
    "deployments.*.taskRoles": Hint("The roles it adds commands to."),
    "deployments.*.taskRoles.*": Hint("What it adds to this role."),
    "deployments.*.taskRoles.*.preCommands": Hint(_PRE),
    "deployments.*.taskRoles.*.preCommands.*": Hint("A shell command."),
    "deployments.*.taskRoles.*.postCommands": Hint(_POST),
    "deployments.*.taskRoles.*.postCommands.*": Hint("A shell command."),
    "defaults": Hint("The default deployment and virtual cluster."),
    "defaults.deployment": Hint("The deployment to use."),
    "defaults.virtualCluster": Hint("The virtual cluster to run in.", default="default"),
    "extras": Hint("Options of the platform; you may add keys of your own."),
    "extras.storages": Hint(
        "Storages to mount, each at ${PAI_MOUNT_ROOT-}/mnt/<name>; an empty list for your default ones."
    ),
    "extras.gangAllocation": Hint(
        "Whether all tasks start together; `false` allows to retry single tasks.", default=True
    ),
    "extras.hivedScheduler": Hint("Options of the HiveD scheduler, if the cluster has it."),
    "extras.com.microsoft.pai.runtimeplugin": Hint("Plugins to run around the commands: ssh, cmd, git, ..."),
    "extras.jobStatusChangeNotification": Hint("The state changes to be notified of by email."),
    "extras.submitFrom": Hint("The program that submitted the job."),
}
