"""Limits for each caller."""
