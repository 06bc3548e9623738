"""Words that people search for and that a page does not use, or uses only in passing."""

from __future__ import annotations

KEYWORDS = {
    "README.md": ("quick start", "getting started", "tutorial"),
    "docs/pytorch.md": ("torch", "lightning", "resume training", "fine-tuning", "ddp"),
    "docs/jobs.md": ("queue", "priority", "secret", "dependencies", "pipeline"),
    "docs/runtime.md": ("resume training", "ddp", "multi-node", "distributed training", "torchrun", "nccl"),
    "docs/afterwards.md": ("preempt", "preempted", "evicted", "out of memory", "oom", "crash", "reproduce"),
    "docs/troubleshooting.md": ("error message", "exit code", "traceback", "cuda out of memory"),
    "docs/sweeps.md": ("hyperparameter", "hyperparameters", "tuning", "grid search", "array job", "optuna"),
    "docs/templates.md": ("multi-node", "ddp", "horovod", "mpi"),
    "docs/metrics.md": ("wandb", "mlflow", "tensorboard", "experiment tracking", "learning curve"),
    "docs/portal.md": ("dashboard", "web ui", "gui"),
    "docs/storage.md": ("hdfs mount", "dataset", "upload", "download", "bucket", "nfs", "rclone", "scp"),
    "docs/packing.md": ("small files", "webdataset", "tfrecord", "shards", "hadoop archive"),
    "docs/containers.md": ("vscode", "debugging", "port forwarding"),
    "docs/images.md": ("docker image", "dockerfile", "registry", "conda"),
    "docs/notebooks.md": ("jupyter", "ipynb", "jupyterlab", "colab", "papermill"),
    "docs/python.md": ("sdk", "library"),
    "docs/executor.md": ("concurrent.futures", "dask", "joblib"),
    "docs/clusters.md": ("certificate", "oidc", "sso"),
    "docs/embedded.md": ("queue", "scheduler", "gpu sharing"),
    "docs/ssh.md": ("workstation", "remote server", "bare metal"),
    "docs/slurm.md": ("hpc", "sbatch", "srun", "partition"),
    "docs/kubernetes.md": ("k8s", "pods", "kubectl", "namespace"),
    "docs/settings.md": ("invoke.yaml", "proxy"),
    "docs/customising.md": ("plugin", "tasks.py"),
    "docs/comparison.md": ("alternatives", "skypilot", "dstack", "submitit", "ray", "determined"),
    "docs/from-openpaisdk.md": ("opai", "migrate"),
    "docs/security.md": ("secret", "threat model"),
}
"""The tags of each page in the search index, where a tag counts as much as a title."""
