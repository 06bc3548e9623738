"""PaddleCloud as its users know it: packages, jobs, workers, quotas, PFS, and the program of that name."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
