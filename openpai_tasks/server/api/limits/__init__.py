"""Limits of what one caller may use."""
