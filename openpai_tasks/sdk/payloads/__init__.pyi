from .notebook_runner import NOT_CONVERTED as NOT_CONVERTED
from .notebook_runner import NOT_SAVED as NOT_SAVED
from .notebook_server import LARGEST as LARGEST
