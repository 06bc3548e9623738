"""Settings and their layers, known clusters, credentials, trusted folders, and the home folder."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    [
        "config",
        "credentials",
        "home",
        "keeping",
        "key_pairs",
        "layers",
        "ownership",
        "project",
        "registry",
        "trust",
        "value_types",
    ],
)
