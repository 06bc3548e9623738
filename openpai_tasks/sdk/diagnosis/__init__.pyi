from .explain import UNEXPLAINED as UNEXPLAINED
from .explain import JobReporter as JobReporter
from .explain import add_cause as add_cause
from .explain import explain_job as explain_job
from .explain import success_line as success_line
from .explain import wait_reason as wait_reason
from .explain import why as why
