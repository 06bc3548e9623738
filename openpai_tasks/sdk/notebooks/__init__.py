"""Notebooks as jobs, run as a batch or served by Jupyter."""
