"""Accounts of the embedded cluster: users, groups, tokens."""
