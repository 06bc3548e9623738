"""Many small files as a few large ones, with an index by which each is found again."""
