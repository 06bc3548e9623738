"""Notebooks as jobs, run as a batch or served by Jupyter."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "link": ["LinkOptions", "RunningServer", "open_link"],
        "notebook_file": ["read_notebook"],
        "progress": ["CELL", "ERROR", "NOTE", "OTHER", "follow_run"],
        "pull": ["CONFLICT", "NEW", "UPDATED", "check_pulled", "find_changes", "pull_changes"],
        "resubmission": ["check_first_run", "choose_original", "prepare_rerun"],
        "results": [
            "DONE",
            "FAILED",
            "RUNNING",
            "best_page",
            "download_results",
            "find_results",
            "is_for_browsers",
            "plain_traceback",
            "results_folder",
        ],
        "running": [
            "as_line",
            "check_parameters",
            "parse_parameters",
            "plan_run",
            "remarks",
            "run_options",
        ],
        "serving": [
            "IDLE",
            "check_reconnect",
            "check_token",
            "plan_server",
            "serve_options",
            "source_origins",
        ],
        "sessions": [
            "SavedSession",
            "forget_all_ended",
            "forget_ended",
            "redirect_file",
            "save_session",
            "token_of",
        ],
    },
)
