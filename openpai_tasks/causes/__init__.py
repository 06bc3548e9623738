"""The causes of failures: one table, and how a cause is found in the output of a program."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
