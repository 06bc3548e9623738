"""What goes wrong meanwhile; each class with a ``kind`` is a fault."""
