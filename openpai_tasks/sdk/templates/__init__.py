"""Job templates and schemas for editors."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "catalog": [
            "build_request",
            "fill",
            "find_template",
            "list_templates",
            "packaged_folder",
            "write_job_file",
        ],
        "schemas": ["job_schema", "settings_schema"],
    },
)
