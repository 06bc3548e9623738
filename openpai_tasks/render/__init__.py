"""Values to text, terminal drawings and HTML for people; JSON, YAML and CSV for programs. Prints nothing."""

import lazy_loader

# Written out, as reading the stub would cost every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    ["drawing", "svg"],
    submod_attrs={
        "charts": ["Chart", "Series", "metric_charts"],
        "html": ["picture", "values"],
        "text": [
            "age",
            "cell",
            "check_format",
            "difference",
            "document",
            "duration",
            "explanation",
            "facts",
            "flat_table",
            "format_values",
            "json_line",
            "log_line",
            "progress",
            "rows",
            "size",
            "status",
            "table",
            "verdicts",
            "when",
        ],
        "views": [
            "Bar",
            "Facts",
            "Page",
            "TextTable",
            "View",
            "drawn_width",
            "has_colours",
        ],
    },
)
