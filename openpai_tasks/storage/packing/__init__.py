"""Pack many small files into a few large ones, with an index to find each file."""
