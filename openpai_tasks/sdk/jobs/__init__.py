"""Jobs: submit, find, wait, stop, resubmit, fetch outputs."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "documents": ["compare_jobs", "job_document", "parse_reference"],
        "equivalents": ["as_command", "as_python"],
        "flags": ["build_changes", "build_request", "setting_overrides"],
        "lookup": [
            "at_attempt",
            "check_succeeded",
            "command_for",
            "count_gpus",
            "describe",
            "find",
            "is_pattern",
            "list_jobs",
            "parse_states",
            "stop",
            "stop_all",
            "submitted_document",
            "summarise_users",
            "wait",
            "wait_all",
            "wait_for_success",
            "watch",
            "watch_list",
            "watch_steps",
        ],
        "metrics": ["MetricReader", "metric_rows", "read_metrics", "select_metrics"],
        "outputs": ["download_outputs", "find_outputs"],
        "resubmission": ["choose_start", "find_checkpoint", "repeat"],
        "submission": [
            "add_tags",
            "build",
            "report_notices",
            "check_request",
            "check_tags",
            "load_document",
            "new_name",
            "pack_files",
            "prepare",
            "read_document",
            "read_job_file",
            "submit",
            "submit_when_ready",
        ],
        "validation": ["check_verdicts", "validate_file", "validate_text"],
        "watching": ["ask_patiently", "is_outage"],
    },
)
