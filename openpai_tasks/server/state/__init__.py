"""What the embedded cluster remembers: jobs, attempts, tasks, events, and their files."""
