"""Sweeps: many jobs from one command."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "choosing": ["ChosenJob", "choose_jobs", "choose_names", "name_some"],
        "grid": ["parse_points"],
        "records": ["list_sweeps"],
        "results": ["follow_metrics", "gather_metrics", "gather_results", "sort_results"],
        "sweep": ["SweepRun", "check_sweep", "describe_progress", "plan_sweep", "read_sweep_mark"],
    },
)
