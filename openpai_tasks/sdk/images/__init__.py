"""Container images by docker or podman."""
