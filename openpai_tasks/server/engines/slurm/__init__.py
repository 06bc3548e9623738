"""Run tasks as jobs of Slurm, which queues them and chooses their machines.

The server runs on a login node, as one user. The folder of its jobs is on a file system that all machines
share, and so is the Python that it runs with. All tasks of a job attempt that start together are one job of
Slurm, so that they start together there too; tasks with other needs are another component of it
(``hetjob``). Jobs of one task with the same needs that start together are one array.

On its machine, a task chooses its ports, writes its ``place``, waits for the places of its peers, and then
runs under the same runner as a process of this machine (see ../runner/). So logs and exits are files in the
task's folder, and Slurm is asked only for what has no exit yet: one ``squeue`` for all tasks.

In the folder of a task, ``slurm`` has its id there. A batch is written before it is submitted, and its name
is the comment of the job, so that a server that was killed in between finds it again.
"""
