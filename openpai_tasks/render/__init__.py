"""Values to text, terminal drawings and HTML for people; JSON, YAML and CSV for programs. Prints nothing."""

from openpai_tasks.lazy_package import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
