"""PaddleCloud as its users know it: packages, jobs, workers, quotas, PFS, and the program of that name."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "datacenters": ["connect"],
        "jobs": [
            "check_logs",
            "check_own",
            "job_folder",
            "kill",
            "known_job",
            "list_jobs",
            "list_quota",
            "list_workers",
            "newest_job",
            "parse_resource",
            "plan_training",
            "read_logs",
            "wait_for_end",
        ],
        "package": ["prepare"],
        "pfs_places": ["PfsPlaces", "check_chunk_size", "check_pair", "check_pfs", "list_pfs", "make_folder"],
        "request": ["PaddleRequest", "check_job_name"],
    },
)
