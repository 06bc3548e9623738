from .api.cluster import Cluster as Cluster
from .api.cluster import OpenPAIClient as OpenPAIClient
from .api.cluster_list import ClusterList as ClusterList
from .api.futures.executor import PaiExecutor as PaiExecutor
from .api.futures.remote import remote as remote
from .api.job import Job as Job
from .api.submit import submit as submit
from .backends.openpai import Client as Client
from .errors import PaiError as PaiError
from .magics import submit_this_notebook as submit_this_notebook
from .protocol import JobRequest as JobRequest
from .protocol import validate as validate
from .sdk.files.dataset import PackedDataset as PackedDataset
from .tasks import namespace as namespace

__version__: str

def load_ipython_extension(shell: object) -> None: ...
def unload_ipython_extension(shell: object) -> None: ...
