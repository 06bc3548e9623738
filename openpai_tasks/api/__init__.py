"""The Python API: submit jobs, wait for them, and work with clusters from programs and notebooks.

Its names are public in ``openpai_tasks``, which loads each on first use.
"""
