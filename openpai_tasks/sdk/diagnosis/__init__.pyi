from .explain import why as why
from .news import News as News
