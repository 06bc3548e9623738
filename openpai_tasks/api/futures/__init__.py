"""Calls of functions that run as jobs, with the futures of ``concurrent.futures``."""
