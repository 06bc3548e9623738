"""ssh into containers: keys, hosts, connections, the files of OpenSSH."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "job_files": ["forget_cluster"],
        "hosts_file": ["host_block", "job_host", "plan_hosts", "prune_hosts", "ssh_command", "write_hosts"],
        "keys": ["fetched_key", "private_key", "public_key"],
        "user_config": [
            "configure_fabric",
            "fabric_manual",
            "fabric_settings",
            "include_hosts",
            "is_fabric_configured",
            "is_included",
            "manual_steps",
            "named_hosts",
            "user_config_path",
        ],
    },
)
