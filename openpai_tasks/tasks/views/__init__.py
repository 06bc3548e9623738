"""What commands show while they run, and the flags they share."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
