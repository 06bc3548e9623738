"""Azure Blob containers, with adlfs."""
