"""ssh into containers: keys, hosts, connections, the files of OpenSSH."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
