"""The protocol between client and server: paths, states, and the job document; pure data, no I/O."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "document.build": ["build_document", "wrap_commands"],
        "document.job": ["JobDocument", "validate"],
        "document.request": ["JobRequest", "RoleRequest"],
        "document.roles": ["StorageMount", "TaskRole"],
        "legacy.conversion": ["fit_names", "to_v2"],
        "legacy.v1": ["validate_v1"],
        "problems": ["Problem"],
        "yaml.dumping": ["dump"],
        "yaml.reader": ["read"],
    },
)
