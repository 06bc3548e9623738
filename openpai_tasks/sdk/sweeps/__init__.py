"""Sweeps: many jobs from one command."""
