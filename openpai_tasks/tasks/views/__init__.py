"""What commands show while they run, and the flags they share."""

import lazy_loader

# Written out, as reading the stub would cost every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    [
        "browsing",
        "containers",
        "following",
        "job_flags",
        "listings",
        "notebooks",
        "paddle",
        "serving",
        "submitting",
        "sweeps",
        "transfers",
    ],
)
