"""When jobs start, what their tasks run with, and how attempts end."""
