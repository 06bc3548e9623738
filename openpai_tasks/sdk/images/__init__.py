"""Container images by docker or podman."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "dockerfiles": ["dockerfile", "write_dockerfile"],
        "programs": [
            "LIST_SECONDS",
            "LONGEST_SECONDS",
            "build_command",
            "check_command",
            "check_ended",
            "check_findings",
            "check_push",
            "check_reference",
            "find_engine",
            "list_command",
            "parse_findings",
            "parse_images",
            "push_command",
        ],
    },
)
