"""The web portal: pages over the SDK, for the embedded cluster and any configured one."""
