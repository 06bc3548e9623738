"""Why a job waits or failed, in plain words."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"explain": ["JobReporter", "explain_job", "why"]},
)
