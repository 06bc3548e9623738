"""The protocol between client and server: paths, states, and the job document; pure data, no I/O."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
