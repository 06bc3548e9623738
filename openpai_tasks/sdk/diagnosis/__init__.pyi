from .explain import JobReporter as JobReporter
from .explain import explain_job as explain_job
from .explain import wait_reason as wait_reason
from .explain import why as why
