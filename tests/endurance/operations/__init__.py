"""What clients do; each class with a ``kind`` is an operation."""
