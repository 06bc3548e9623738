"""Files that travel with a job and need only the standard library."""
