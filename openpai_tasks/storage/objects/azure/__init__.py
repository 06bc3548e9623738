"""Azure Blob containers, by adlfs."""
