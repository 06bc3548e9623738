"""Hooks: whom to notify when a job starts, ends or waits too long, and how."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
