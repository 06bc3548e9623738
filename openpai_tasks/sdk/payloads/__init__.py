"""Files that travel with a job and need only the standard library."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"notebook_runner": ["NOT_CONVERTED", "NOT_SAVED"], "notebook_server": ["LARGEST"]},
)
