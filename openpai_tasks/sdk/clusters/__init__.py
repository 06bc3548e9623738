"""Clusters: add, sign in, describe; and the embedded one."""

import lazy_loader

# Listed here because reading the stub would slow down every start; a test compares the two.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "editing": ["begin_edit", "editor_command", "finish_edit"],
        "embedded": [
            "embedded_status",
            "embedded_uri",
            "restart_embedded",
            "start_embedded",
            "stop_embedded",
        ],
        "known": [
            "NewCluster",
            "ClusterUpdate",
            "access_info",
            "add",
            "check_updated",
            "cluster_row",
            "connect",
            "connect_unsaved",
            "delete",
            "describe",
            "describe_client",
            "list_clusters",
            "log_in",
            "open_registry",
            "select",
            "update",
            "update_all",
        ],
        "ssh_machines": ["address_and_kind", "install_on", "restart_server", "tunnel_status"],
        "portal": [
            "can_open_browser",
            "has_portal",
            "open_browser",
            "open_private_link",
            "write_redirect",
        ],
        "resources": [
            "ask_clusters",
            "cluster_resources",
            "jobs_over_time",
            "list_queue",
            "list_recent",
            "list_resources",
        ],
        "start_options": ["start_request"],
    },
)
