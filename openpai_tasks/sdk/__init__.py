"""The operations that commands offer, as functions that take values and return values."""

import lazy_loader

# Written out, as reading the stub would cost every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    [
        "amounts",
        "clusters",
        "containers",
        "diagnosis",
        "doctor",
        "files",
        "images",
        "jobs",
        "known_names",
        "logs",
        "notebooks",
        "payloads",
        "project_files",
        "ssh",
        "sweeps",
        "templates",
    ],
)
