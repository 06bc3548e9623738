"""What a user wants done; functions that take values and return values."""
