from .explain import explain_job as explain_job
from .explain import why as why
from .news import News as News
from .task_end import job_end as job_end
from .task_end import task_end as task_end
