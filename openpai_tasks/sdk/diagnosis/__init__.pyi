from .explain import explain_job as explain_job
from .explain import why as why
from .news import News as News
