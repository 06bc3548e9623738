"""Values to text, terminal drawings and HTML for people; JSON, YAML and CSV for programs. Prints nothing."""

import lazy_loader

# Written out, as reading the stub would cost every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    ["drawing", "svg"],
    submod_attrs={
        "charts": ["Chart", "Series"],
        "html": ["picture", "values"],
        "log_lines": ["json_line", "log_line"],
        "metric_charts": ["metric_charts"],
        "text": [
            "age",
            "cell",
            "check_format",
            "difference",
            "document",
            "duration",
            "explanation",
            "explanations",
            "facts",
            "flat_table",
            "format_values",
            "progress",
            "rows",
            "size",
            "status",
            "statuses",
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
