"""Which job starts when, what its tasks run with, and how attempts end."""
