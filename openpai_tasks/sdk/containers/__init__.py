"""Running containers: shells, commands, files, ports."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "endpoints": [
            "RUNNING",
            "check_settings",
            "choose",
            "explain_end",
            "explain_lost",
            "first_running",
            "not_over",
            "open_remote",
            "open_when_ready",
            "reach",
            "ssh_target",
        ],
        "fanout": ["Fanout"],
        "files": ["get", "open_files", "put"],
        "forwarding": ["Forward", "find_ports", "parse_port"],
        "interactive": [
            "NAME",
            "extend",
            "keep_alive",
            "only_container",
            "read_stay",
            "read_stays",
            "stop",
            "wait_ready",
        ],
        "keepalive": ["MARK"],
        "sessions": ["open_shell", "run_command"],
        "top": ["MACHINE", "check_interval"],
    },
)
