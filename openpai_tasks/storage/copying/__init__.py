"""Copying between any two stores: plan, walk, transfer, verify, resume."""
