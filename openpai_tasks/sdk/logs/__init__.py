"""Jobs' output: read, followed, labelled."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "output": [
            "LogChoice",
            "TextLines",
            "add_labels",
            "choose_stream",
            "merge_jobs",
            "output_steps",
            "read_lines",
            "read_output",
            "sleep_between",
        ],
        "structured": ["parse_filter", "read_structured"],
    },
)
