"""The operations that commands offer, as functions that take values and return values."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
