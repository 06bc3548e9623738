"""Slurm on a login node: our own server there, which speaks OpenPAI's API, reached through ssh."""
