"""The public Python API, above the SDK; its names are those of ``openpai_tasks``."""
