"""The stored state of the embedded cluster: jobs, attempts, tasks, events, and their files."""
