"""``pai://`` as an fsspec filesystem."""
