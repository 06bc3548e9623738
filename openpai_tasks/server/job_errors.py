"""Errors for which one job fails, while the others go on."""

from __future__ import annotations

import logging

from openpai_tasks.errors import PaiError
from openpai_tasks.protocol.fields import MALFORMED

log = logging.getLogger(__name__)

JOB_ERRORS = (PaiError, *MALFORMED)


def describe(err: Exception) -> str:
    """Return why a job fails; the text of an internal error may contain secrets, and is only logged."""
    if isinstance(err, PaiError):
        return str(err)
    log.error("a job has failed", exc_info=err)
    return f"internal error ({type(err).__name__}): see the server's log"
