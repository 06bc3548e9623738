"""Files on storages, storages of users, and jobs' folders."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cleaning": [
            "check_cleaned",
            "check_parts",
            "clean_parts",
            "clean_up",
            "find_leftovers",
            "plan_cleanup",
        ],
        "job_folders": ["require_home"],
        "operations": [
            "check_copied",
            "copy",
            "copy_rules",
            "disk_usage",
            "file_facts",
            "find_existing",
            "find_files",
            "head",
            "list_files",
            "locate",
            "locate_all",
            "make_folders",
            "read_files",
            "require_two",
            "sync",
            "tree",
            "upload",
        ],
        "packing": ["pack", "packing_rules", "unpack"],
        "removing": ["check_guesses", "plan_exact_removals", "plan_removals", "remove"],
        "storages": [
            "ClusterStorages",
            "add_storage",
            "forget_storages",
            "list_storages",
            "mounts",
            "no_storage_named",
            "select_storage",
        ],
        "user_storages": ["check_installed", "parse_storage"],
    },
)
