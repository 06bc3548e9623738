"""What the old SDK's documents import from ``openpaisdk.core``."""

import os
from uuid import uuid4 as randstr

import openpaisdk

__all__ = ["in_job_container", "randstr"]

CONTAINER = "PAI_CONTAINER_ID"


def in_job_container(varname=CONTAINER):
    """Whether this program runs inside a job; with another ``varname``, whether that variable is set.

    The variable of the old clusters is set if it is missing, since old notebooks print it.
    """
    from openpai_tasks import runtime

    if varname == CONTAINER and runtime.in_job():
        here = runtime.where()
        os.environ.setdefault(CONTAINER, f"{here.job}-{here.role}-{here.index}")
    return bool(os.environ.get(varname))


def __getattr__(name):
    return getattr(openpaisdk, name)
