"""Jobs' output: read, followed, labelled."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "lines": ["TextLines", "read_lines"],
        "many": ["merge_jobs"],
        "output": [
            "LogChoice",
            "add_labels",
            "choose_stream",
            "output_steps",
            "read_output",
            "sleep_between",
        ],
        "structured": ["parse_filter", "read_structured"],
    },
)
