"""Where jobs run; each class with a ``kind`` is one engine of the embedded cluster."""
