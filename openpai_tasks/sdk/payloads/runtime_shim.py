"""Stand-in for openpai_tasks inside a job: the ``__init__.py`` of the folder with ``runtime.py``.

If the package itself is installed there, it is loaded instead; an older one gets this ``runtime.py``.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_installed() -> None:
    """Load the installed package into this module, if there is one."""
    others = [path for path in sys.path if os.path.basename(os.path.abspath(path)) != ".pai-runtime"]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(__name__, others) if find else None
        if spec is None or spec.loader is None or not spec.submodule_search_locations:
            continue
        folders = [os.path.abspath(folder) for folder in spec.submodule_search_locations]
        if _HERE in folders:
            continue
        module = sys.modules[__name__]
        module.__path__ = [*folders, _HERE]
        module.__file__ = spec.origin
        spec.loader.exec_module(module)
        return


_load_installed()
