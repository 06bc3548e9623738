"""Text that users type and read: hints, durations, plurals, wildcards, safe characters."""
